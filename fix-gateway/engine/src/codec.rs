//! Bytes to messages and back.
//!
//! [`Framer`] cuts a byte stream into frames, [`Parser`] checks a frame's length and checksum and indexes its fields,
//! [`encode`] writes one. None of them knows a dictionary, and none allocates once its buffers have grown.

mod encode;
mod encoding;
mod framer;
mod message;
mod msg_type;
mod parse;
mod scan;
#[cfg(test)]
pub(crate) mod tests;
mod text;

pub use encode::{Body, Head, encode};
pub use encoding::{Encoding, NoEncoding};
pub use framer::{Framed, Framer};
pub use message::{Field, Message, MessageRef};
pub use msg_type::MsgType;
pub use parse::{Garbled, Parser};
pub(crate) use text::digit;

/// The delimiter after every field.
pub const SOH: u8 = 1;
