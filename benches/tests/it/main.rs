//! The feed under writers; a large history: its books, and the plans of every statement over it.

mod feed;
mod history;
mod plans;
