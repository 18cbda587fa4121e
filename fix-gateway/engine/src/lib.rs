//! FIX without IO: bytes to messages, dictionary checks, and the session as a state machine.
//!
//! **Architecture invariant:** nothing here reads a clock, a socket, a file or the environment, and nothing waits.
//! Time comes in as an argument; what has to happen outside goes out as a value.
//!
//! Reading order: [`codec`] (frames, fields, encoding), [`dictionary`] (what a version allows), [`session`] (who is
//! owed what, and in which order), [`schedule`] (when there is a session at all).

pub mod codec;
pub mod dictionary;
pub mod schedule;
pub mod seq;
pub mod session;
pub mod tag;
pub mod time;

pub use seq::SeqNum;
pub use time::UtcNanos;
