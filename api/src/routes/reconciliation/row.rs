//! One execution of a report, as known at the report's position.

use dvp_domain::canonical::hex32;
use dvp_domain::fees::FeeItem;
use dvp_domain::money::Minor;
use dvp_domain::settlement::State;
use dvp_domain::snapshot::{SnapshotInput, SnapshotOutput};
use dvp_domain::status::ExecutionStatus;
use dvp_domain::time::Timestamp;
use dvp_store::orders::reports::ReportedExecution;
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) client_reference: Option<String>,
    pub(super) reference: String,
    pub(super) intent_id: String,
    pub(super) status: &'static str,
    pub(super) input: Money,
    pub(super) output: Money,
    /// Once the payout was carried out; nothing is charged before.
    pub(super) fees: Vec<FeeItem>,
    pub(super) lock_tx_hash: Option<String>,
    pub(super) settle_tx_hash: Option<String>,
    pub(super) receipt_hash: Option<String>,
    pub(super) anchor_tx_hash: Option<String>,
    pub(super) accepted_at: String,
    pub(super) terminal_at: Option<String>,
    /// `Created`, `Filled`, `Settled`, `Cancelled` or `Refunded`; null without an event on the chain.
    pub(super) chain_state: Option<String>,
    /// The result of the last comparison of the database with the chain.
    pub(super) breaks: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Money {
    pub(super) amount_minor: Minor,
    pub(super) currency: String,
    pub(super) exponent: u8,
}

impl From<SnapshotInput> for Money {
    fn from(input: SnapshotInput) -> Self {
        let SnapshotInput { asset, amount_minor, exponent, chain: _ } = input;
        Self { amount_minor, currency: asset, exponent }
    }
}

impl From<SnapshotOutput> for Money {
    fn from(output: SnapshotOutput) -> Self {
        let SnapshotOutput { currency, amount_minor, exponent } = output;
        Self { amount_minor, currency, exponent }
    }
}

/// The events of the settler and the escrow, in the order of a settlement's lifetime.
const CHAIN_STATES: [&str; 5] = ["Created", "Filled", "Settled", "Cancelled", "Refunded"];

impl From<ReportedExecution> for Row {
    fn from(execution: ReportedExecution) -> Self {
        let is_paid = execution.last.is_paid();
        let (settle_tx_hash, anchor_tx_hash) = match execution.state {
            State::Completed { settle_tx, finality, .. } if is_paid => {
                (settle_tx, finality.map(|finality| finality.tx_hash))
            }
            _ => (None, None),
        };
        let chain_state =
            execution.chain_events.iter().rev().find(|event| CHAIN_STATES.contains(&event.as_str()));
        let hash = execution.receipt_hash.as_deref().filter(|_| is_paid);
        let hash = hash.and_then(|hash| <&[u8; 32]>::try_from(hash).ok());
        Self {
            client_reference: execution.terms.request.client_reference.clone(),
            reference: execution.terms.reference.to_string(),
            intent_id: execution.terms.request.intent_id.clone(),
            status: ExecutionStatus::after(execution.last).as_str(),
            fees: if is_paid { execution.terms.plan.priced.fees.clone() } else { Vec::new() },
            lock_tx_hash: execution.snapshot.lock.map(|lock| lock.tx_hash),
            settle_tx_hash,
            receipt_hash: hash.map(hex32),
            anchor_tx_hash,
            accepted_at: execution.terms.accepted_at.iso8601(),
            terminal_at: execution
                .last
                .is_terminal()
                .then(|| Timestamp::from(execution.last_observed_at).iso8601()),
            chain_state: chain_state.cloned(),
            breaks: execution.breaks,
            input: execution.snapshot.input.into(),
            output: execution.snapshot.output.into(),
        }
    }
}
