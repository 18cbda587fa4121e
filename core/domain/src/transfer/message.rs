//! What cells tell each other: one JSON document, signed by the cell that makes it.
//!
//! The signature covers [`signed_bytes`]: a fixed line and the message's canonical JSON, so that white space and the
//! order of keys do not matter and nothing else that the key signs can be taken for a message. A message names its
//! kind, its environment and both cells, so that it can be taken for no other.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Transfer, TransferDirection, TransferState};
use crate::canonical::canonical_json;
use crate::cell::CellId;
use crate::environment::Environment;
use crate::ids::TransferId;
use crate::ledger::Owner;
use crate::money::Minor;
use crate::time::{Timestamp, iso};

/// The first line of what is signed.
const PURPOSE: &str = "dvp transfer between cells, version 1";

/// A message of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Message {
    /// The sender has posted it.
    Transfer { environment: Environment, transfer: Transfer },
    /// The receiver has posted it.
    Receipt {
        environment: Environment,
        transfer: Transfer,
        #[serde(with = "iso")]
        at: Timestamp,
    },
    /// The receiver will never post it.
    Refusal {
        environment: Environment,
        transfer: Transfer,
        #[serde(with = "iso")]
        at: Timestamp,
    },
    /// Every transfer that a cell has with another one.
    Transfers {
        environment: Environment,
        cell: CellId,
        with: CellId,
        #[serde(with = "iso")]
        at: Timestamp,
        transfers: Vec<Listed>,
    },
}

/// A transfer in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Listed {
    pub id: TransferId,
    pub direction: TransferDirection,
    #[serde(flatten)]
    pub owner: Owner,
    pub asset: String,
    pub amount_minor: Minor,
    pub state: TransferState,
    #[serde(with = "iso")]
    pub sent_at: Timestamp,
    /// When it came into its state.
    #[serde(with = "iso")]
    pub since: Timestamp,
}

impl Message {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Transfer { .. } => "transfer",
            Self::Receipt { .. } => "receipt",
            Self::Refusal { .. } => "refusal",
            Self::Transfers { .. } => "transfers",
        }
    }

    pub const fn environment(&self) -> Environment {
        match self {
            Self::Transfer { environment, .. }
            | Self::Receipt { environment, .. }
            | Self::Refusal { environment, .. }
            | Self::Transfers { environment, .. } => *environment,
        }
    }

    /// The only cell that may sign it.
    pub const fn author(&self) -> CellId {
        match self {
            Self::Transfer { transfer, .. } => transfer.from,
            Self::Receipt { transfer, .. } | Self::Refusal { transfer, .. } => transfer.to,
            Self::Transfers { cell, .. } => *cell,
        }
    }

    /// The cell that it is for.
    pub const fn addressee(&self) -> CellId {
        match self {
            Self::Transfer { transfer, .. } => transfer.to,
            Self::Receipt { transfer, .. } | Self::Refusal { transfer, .. } => transfer.from,
            Self::Transfers { with, .. } => *with,
        }
    }
}

/// A message with its signature, as it is in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Signed {
    pub signed: Value,
    /// 64 bytes as hex digits.
    pub signature: String,
}

/// The bytes that a message's signature covers.
pub fn signed_bytes(message: &Value) -> Vec<u8> {
    format!("{PURPOSE}\n{}", canonical_json(message)).into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::transfer::tests::{of_partner, transfer};

    fn messages() -> [Message; 4] {
        let (environment, at) = (Environment::Test, Timestamp::from_millis(1_800_000_060_000));
        let transfer = transfer(5_000);
        let Transfer { id, from, to, owner, asset, amount_minor, sent_at } = transfer.clone();
        let (direction, state) = (TransferDirection::Out, TransferState::Sent);
        let listed = Listed { id, direction, owner, asset, amount_minor, state, sent_at, since: sent_at };
        [
            Message::Transfer { environment, transfer: transfer.clone() },
            Message::Receipt { environment, transfer: transfer.clone(), at },
            Message::Refusal { environment, transfer, at },
            Message::Transfers { environment, cell: from, with: to, at, transfers: vec![listed] },
        ]
    }

    #[test]
    fn the_bytes_that_are_signed_are_these() {
        let [sent, receipt, _, list] = messages().map(|message| serde_json::to_value(message).unwrap());
        let text = |value: &Value| String::from_utf8(signed_bytes(value)).unwrap();
        expect_test::expect![[r#"
            dvp transfer between cells, version 1
            {"environment":"test","message":"transfer","transfer":{"amountMinor":"5000","asset":"USD","from":"00a","id":"trf_1","provider":"north","sentAt":"2027-01-15T08:00:00.000Z","to":"00b"}}"#]]
        .assert_eq(&text(&sent));
        expect_test::expect![[r#"
            dvp transfer between cells, version 1
            {"at":"2027-01-15T08:01:00.000Z","environment":"test","message":"receipt","transfer":{"amountMinor":"5000","asset":"USD","from":"00a","id":"trf_1","provider":"north","sentAt":"2027-01-15T08:00:00.000Z","to":"00b"}}"#]]
        .assert_eq(&text(&receipt));
        expect_test::expect![[r#"
            dvp transfer between cells, version 1
            {"at":"2027-01-15T08:01:00.000Z","cell":"00a","environment":"test","message":"transfers","transfers":[{"amountMinor":"5000","asset":"USD","direction":"out","id":"trf_1","provider":"north","sentAt":"2027-01-15T08:00:00.000Z","since":"2027-01-15T08:00:00.000Z","state":"sent"}],"with":"00b"}"#]]
        .assert_eq(&text(&list));
    }

    #[test]
    fn a_message_is_read_as_it_was_written_and_unknown_fields_are_refused() {
        for message in messages() {
            let mut value = serde_json::to_value(&message).unwrap();
            assert_eq!(serde_json::from_value::<Message>(value.clone()).unwrap(), message);
            value["more"] = json!(1);
            assert!(serde_json::from_value::<Message>(value).is_err(), "{message:?}");
        }
    }

    #[test]
    fn a_transfer_has_one_owner_a_provider_or_a_partner() {
        let of_partner = Transfer { owner: of_partner(), ..transfer(5_000) };
        let mut value = serde_json::to_value(&of_partner).unwrap();
        expect_test::expect![[
            r#"{"amountMinor":"5000","asset":"USD","from":"00a","id":"trf_1","partner":{"id":"ptn_1","livemode":false},"sentAt":"2027-01-15T08:00:00.000Z","to":"00b"}"#
        ]]
        .assert_eq(&canonical_json(&value));
        assert_eq!(serde_json::from_value::<Transfer>(value.clone()).unwrap(), of_partner);
        value["provider"] = json!("north");
        assert!(serde_json::from_value::<Transfer>(value.clone()).is_err(), "two owners");
        let fields = value.as_object_mut().unwrap();
        fields.remove("provider");
        fields.remove("partner");
        assert!(serde_json::from_value::<Transfer>(value).is_err(), "no owner");
    }

    #[test]
    fn a_cell_signs_what_it_alone_can_know() {
        let who = messages()
            .map(|message| format!("{} {} to {}", message.kind(), message.author(), message.addressee()));
        assert_eq!(
            who,
            ["transfer 00a to 00b", "receipt 00b to 00a", "refusal 00b to 00a", "transfers 00a to 00b"]
        );
    }
}
