//! FIX without IO: bytes to messages, dictionary checks, and the session as a state machine.
//!
//! **Architecture invariant:** nothing here reads a clock, a socket, a file or the environment, and nothing waits.
//! Time is an argument; effects are returned as values.
//!
//! Reading order: [`codec`] (frames, fields, encoding), [`dictionary`] (the versions' rules), [`session`] (the
//! state machine), [`schedule`] (the windows of a session).

pub mod codec;
pub mod dictionary;
pub mod schedule;
pub mod seq;
pub mod session;
pub mod tag;
pub mod time;

pub use seq::SeqNum;
pub use time::{Precision, Stamp, UtcNanos};
