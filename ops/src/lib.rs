//! What operators may do: one table of actions, of which the console and the command line are two faces.
//!
//! An action is declared once, with its fields and their help (`actions`), and has a row in the table (`table`): the
//! roles that may carry it out, whether it needs a recent authentication, and whether a second operator. Both faces give
//! its name and its fields as text; [`perform`] reads them, decides by the caller's own authority, carries the action
//! out and appends who did it, from where and by which proof to the audit log.
//!
//! The console's forms are made of the same declarations ([`form`]).
//!
//! **Architecture invariant:** who acts is who was authenticated (`caller`), never a name that somebody types, and what a
//! command line or a page changes as an operator goes through [`perform`].
//!
//! Kept by `console/tests/it/faces.rs::every_action_takes_the_roles_and_the_step_up_of_its_row_in_both_environments` and
//! `tests/boundaries.rs::commands_and_pages_change_nothing_as_an_operator`.

pub mod actions;
mod caller;
mod desk;
mod form;
mod outcome;
mod performing;
mod table;

pub use self::caller::{Caller, Proof, authenticate, grant_login};
pub use self::desk::{FixRules, House};
pub use self::form::{ActionForm, FormField, Meaning, Takes, form};
pub use self::outcome::{Outcome, line, view};
pub use self::performing::{Refusal, perform};
pub use self::table::{
    ADMINISTRATION, APPROVAL, DENIAL, OPERATION, Second, Spec, TABLE, TREASURY, find, is_leaf,
};
