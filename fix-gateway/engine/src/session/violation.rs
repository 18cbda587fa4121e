//! The peer's violations of the protocol, and the response to each.

use std::borrow::Cow;

use crate::{
    SeqNum,
    dictionary::{Fault, RejectReason},
    tag::{self, Tag},
};

/// Something a peer must not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// The first message was no Logon, or a Logon that is not for this session or not as it must be.
    NoProperLogon,
    /// The driver refused the credentials.
    NotAuthenticated,
    /// A Logon inside a session that requests no reset, or one that is not allowed.
    UnexpectedLogon,
    IncorrectBeginString,
    CompIdMissing {
        tag: Tag,
    },
    CompIdWrong,
    SendingTimeOff,
    NoSeqNum,
    SeqTooLow {
        expected: SeqNum,
        received: SeqNum,
    },
    /// NextExpectedMsgSeqNum(789) beyond everything we ever sent.
    NextExpectedTooHigh {
        expected: SeqNum,
        received: SeqNum,
    },
    /// The peer requests the same range repeatedly.
    SameRequestTooOften,
    /// ApplVerID(1128) of another version than the session's.
    WrongApplVerId,
    PossDupWithoutOrigSendingTime,
    PossDupFromTheFuture,
    /// A SequenceReset that does not go forward.
    ResetBackwards,
    /// A ResendRequest for messages that were never sent, or with an inverted range.
    ResendRangeWrong {
        tag: Tag,
    },
    /// The message violates the dictionary.
    Malformed(Fault),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireResponse {
    /// Close the connection silently.
    Hangup,
    /// A Reject; the session goes on.
    Reject(Fault),
    /// A Reject, then a Logout whose answer is waited for.
    RejectThenLogout(Fault),
    /// A Logout whose answer is waited for; the message's number is used up.
    Logout(Cow<'static, str>),
    /// A Logout, and the connection ends.
    LogoutThenHangup(Cow<'static, str>),
}

impl Violation {
    pub fn response(self) -> WireResponse {
        match self {
            // FIX 4.4 volume 2, "Logon": an invalid Logon ends the connection; a text would help only an attacker.
            Self::NoProperLogon | Self::NotAuthenticated => WireResponse::Hangup,
            Self::UnexpectedLogon => WireResponse::LogoutThenHangup("Unexpected Logon".into()),
            Self::IncorrectBeginString => WireResponse::Logout("Incorrect BeginString".into()),
            Self::CompIdMissing { tag } => {
                WireResponse::Reject(Fault::at(RejectReason::RequiredTagMissing, tag))
            }
            Self::CompIdWrong => WireResponse::RejectThenLogout(Fault::whole(RejectReason::CompIdProblem)),
            Self::SendingTimeOff | Self::PossDupFromTheFuture => {
                WireResponse::RejectThenLogout(Fault::whole(RejectReason::SendingTimeAccuracy))
            }
            Self::NoSeqNum => WireResponse::LogoutThenHangup("Received message without MsgSeqNum".into()),
            Self::SeqTooLow { expected, received } => WireResponse::LogoutThenHangup(
                format!("MsgSeqNum too low, expecting {expected} but received {received}").into(),
            ),
            Self::NextExpectedTooHigh { expected, received } => WireResponse::LogoutThenHangup(
                format!("NextExpectedMsgSeqNum too high, expecting {expected} but received {received}")
                    .into(),
            ),
            Self::SameRequestTooOften => WireResponse::Logout("Same messages requested too often".into()),
            Self::WrongApplVerId => {
                WireResponse::Reject(Fault::at(RejectReason::ApplicationVersion, tag::APPL_VER_ID))
            }
            Self::PossDupWithoutOrigSendingTime => {
                WireResponse::Reject(Fault::at(RejectReason::RequiredTagMissing, tag::ORIG_SENDING_TIME))
            }
            Self::ResetBackwards => WireResponse::Reject(Fault::whole(RejectReason::ValueIncorrect)),
            Self::ResendRangeWrong { tag } => {
                WireResponse::Reject(Fault::at(RejectReason::ValueIncorrect, tag))
            }
            Self::Malformed(fault) => WireResponse::Reject(fault),
        }
    }
}
