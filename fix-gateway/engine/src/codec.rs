//! Bytes to messages and back.
//!
//! [`Framer`] cuts a byte stream into frames, [`Message::parse`] checks a frame's length and checksum and indexes its
//! fields, [`encode`] writes one. None of them knows a dictionary.

mod encode;
mod framer;
mod message;
#[cfg(test)]
pub(crate) mod tests;

pub use encode::{Body, Head, encode};
pub use framer::{Framed, Framer};
pub use message::{Field, Garbled, Message, index};

/// The delimiter after every field.
pub const SOH: u8 = 1;
