//! The outputs of a session, which its driver carries out.

use crate::{
    SeqNum, Stamp,
    codec::{Body, Message, MsgType},
    schedule::Epoch,
};

/// The driver's tasks, in the order given.
#[derive(Debug)]
pub enum Output {
    /// Authenticate this peer, and call `handle_authentication`.
    Authenticate(Credentials),
    /// Both numbers begin anew: persist 1 and 1, and forget stored messages. Those that the peer has not seen and still
    /// wants are kept under the numbers from `first_kept` on, and [`Session::handle_kept`] receives their count.
    ///
    /// [`Session::handle_kept`]: super::Session::handle_kept
    Reset { first_kept: SeqNum },
    /// Make durable which window of the schedule the numbers belong to. Comes after the [`Output::Reset`] that begins
    /// it: a crash in between resets once more, before any message was sent.
    Epoch(Epoch),
    /// Make the numbers durable. Only the last of several in a row matters.
    Persist { next_in: SeqNum, next_out: SeqNum },
    /// Write a message, after everything before it.
    Transmit(Transmit),
    /// An application message, in order. Its number counts as used once its effect is durable. Without `queued` it is
    /// the message just handed in; with it, one that waited for its turn.
    Deliver { seq: SeqNum, queued: Option<Box<Message>> },
    /// Read this slice of the stored messages and call `handle_stored`.
    Fetch(ResendSlice),
    /// The peer is logged on: reports may flow.
    LoggedOn,
    /// Close the connection after the preceding transmissions.
    Disconnect,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    pub seq: SeqNum,
    pub msg_type: MsgType,
    pub body: Body,
    pub sending_time: Stamp,
    /// When it was sent first, if this is a resend.
    pub orig_sending_time: Option<Stamp>,
}

/// The first `limit` stored messages of a range: numbers without a stored message cost nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResendSlice {
    pub from: SeqNum,
    pub to: SeqNum,
    pub limit: usize,
}

/// A message as the store kept it, for a resend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub seq: SeqNum,
    pub msg_type: MsgType,
    pub body: Body,
    pub sending_time: Stamp,
    /// Is it sent again, or passed over as stale?
    pub resend: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub username: Option<String>,
    /// Password(554), or RawData(96) where the version has no 554.
    pub password: Option<String>,
}

/// Never the password.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}
