//! The differences between the service's books, the chain and the bank, and what to do about them.
//!
//! [`bank`] compares bank accounts with the ledger, [`wallets`] the balances of wallets. This module compares three records
//! of every settlement: the service's own execution, the events that the indexer stored, and the contracts' state at one
//! final block. A difference is a [`Break`].
//!
//! Invariants: nothing here acts, it proposes; a settlement in progress is not a break (the events may be ahead of the
//! execution, and the execution ahead of the final block); `stuck` is reported only where no other break is.
//!
//! Kept by `core/domain/src/reconcile/tests.rs::each_planted_break_is_found_and_no_other` and
//! `tests/e2e/reconcile.rs::exactly_the_planted_breaks_of_every_type_are_found`.

use serde::{Deserialize, Serialize};

use crate::money::Minor;
use crate::names::names;
use crate::recall::RecallStatus;
use crate::settlement::State;
use crate::terms::Terms;
use crate::time::Timestamp;

pub mod bank;
mod settled;
pub mod wallets;

names! {
    #[derive(PartialOrd, Ord)]
    pub enum BreakKind {
        /// The escrow holds funds for an id that no execution has locked on this chain.
        LockWithoutExecution = "lock_without_execution",
        /// An execution relies on a lock that is not on the chain.
        ExecutionWithoutLock = "execution_without_lock",
        /// The chain moved another amount than was agreed.
        AmountMismatch = "amount_mismatch",
        /// A lock, a swap, a fill or a payment under the order's id has other terms than its command.
        TermsMismatch = "terms_mismatch",
        /// The beneficiary was paid, and the funds for it were not released to the service.
        PaidNotSettled = "paid_not_settled",
        /// Funds were released, and the beneficiary was not paid.
        SettledNotPaid = "settled_not_paid",
        /// A completed execution's receipt is not anchored.
        AnchorMissing = "anchor_missing",
        /// The anchor's content or place differs from the receipt's.
        AnchorMismatch = "anchor_mismatch",
        /// Funds are locked for a live execution, and from the timelock on, which is near, anyone may refund them.
        TimelockExpiring = "timelock_expiring",
        /// Funds are locked for an execution that no longer needs them, and may be returned to the wallet.
        RefundDue = "refund_due",
        /// A live execution has not changed for too long.
        Stuck = "stuck",
        /// The chain paid tokens under an id that no execution has on this chain.
        PayoutWithoutExecution = "payout_without_execution",
        /// The stored events show another state than the contracts.
        IndexMismatch = "index_mismatch",
        /// The escrow holds less than it owes.
        EscrowShort = "escrow_short",
        /// The bank's status of a payment contradicts how its execution ended.
        DecisionContradicted = "decision_contradicted",
        /// A payment was returned, and its output was neither paid another way nor the input returned.
        PaymentReturned = "payment_returned",
        /// The desk has converted for an order that did not use it, and operators have not recorded the end of the position.
        ConvertedNotUsed = "converted_not_used",
        /// The bank has not decided on a recall for too long.
        RecallUnanswered = "recall_unanswered",
        /// The bank accepted a recall, and the payment has not come back for too long.
        RecallNotReturned = "recall_not_returned",
        /// The bank's answer contradicts what is known of a recall, or the recall was never requested.
        RecallContradicted = "recall_contradicted",
        /// The bank has booked what the ledger does not have.
        MissingInLedger = "missing_in_ledger",
        /// The ledger has what the bank has not booked.
        MissingAtBank = "missing_at_bank",
        /// Ledger and bank have different amounts for the same thing.
        AmountDiffers = "amount_differs",
        /// The balance of a bank account or a wallet is another than the ledger's, and nothing on its way explains it.
        BalanceDiffers = "balance_differs",
        /// The bank has booked the same twice.
        DuplicateEntry = "duplicate_entry",
        /// An entry at the bank is about nothing that the ledger knows.
        UnknownEntry = "unknown_entry",
        /// A statement does not begin where the one before it ended.
        StatementGap = "statement_gap",
    }
}

impl BreakKind {
    /// Whether two operators may close it: it is about one settlement on the chain, of which the database may have
    /// forgotten everything. Balances, the index and the bank's payments are put right instead.
    pub const fn is_closable(self) -> bool {
        matches!(
            self,
            Self::LockWithoutExecution
                | Self::ExecutionWithoutLock
                | Self::AmountMismatch
                | Self::TermsMismatch
                | Self::PaidNotSettled
                | Self::SettledNotPaid
                | Self::AnchorMissing
                | Self::AnchorMismatch
                | Self::PayoutWithoutExecution
        )
    }
}

impl Break {
    /// The execution, or else the id on the chain.
    pub fn about(&self) -> Option<&str> {
        self.reference.as_deref().or(self.entity.as_deref())
    }
}

names! {
    /// What an operator might do. Nothing does it automatically.
    pub enum SuggestedAction {
        /// Investigate now: money may be lost.
        Page = "page",
        /// `IntentSettler.cancel`: open to anyone, returns the funds.
        Cancel = "cancel",
        /// `Escrow.refund`: open to anyone, returns the funds.
        Refund = "refund",
        /// `IntentSettler.returnFilled`: two operators return committed funds before the timelock.
        Return = "return",
        /// Find out, before the timelock, why the relayer has not settled.
        Settle = "settle",
        /// Find out why the relayer has not anchored.
        Anchor = "anchor",
        /// `dvp execution resolve`, once the outcome of the leg at the rail is known.
        Resolve = "resolve",
        /// Compare the index with another endpoint; read the chain again where it differs.
        Rescan = "rescan",
        /// Ask the bank for the statement, or what became of the payment.
        AskBank = "ask_bank",
        /// Post what happened outside: a deposit, an operation, or the payment's end.
        Post = "post",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Break {
    #[serde(rename = "type")]
    pub kind: BreakKind,
    /// The execution, if the break has one.
    pub reference: Option<String>,
    /// The settlement's id or content hash on the chain, `0x` and 64 hex digits.
    pub entity: Option<String>,
    /// Text for operators.
    pub detail: String,
    pub action: SuggestedAction,
    /// Where balances or amounts of an account outside differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// By how much an account outside differs from the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// `bank:<account>`, `wallet:<address>` or `escrow`.
    pub account: String,
    pub asset: String,
    /// Minor units that the account outside has more than the ledger; negative: less.
    #[serde(with = "decimal")]
    pub minor: i128,
}

/// An amount as a decimal string: JSON has no integers of this size.
mod decimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(amount: &i128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(amount)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i128, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The state of a settlement in the settler, by its contract's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettlerState {
    #[default]
    None,
    Created,
    Filled,
    Settled,
    Cancelled,
}

/// The state of funds in the escrow, by its contract's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EscrowState {
    #[default]
    None,
    Locked,
    Released,
    Refunded,
}

/// The state of one id, by its events or by the contracts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OnChain {
    pub settler: SettlerState,
    pub escrow: EscrowState,
    /// `Payouts` has paid under this id.
    pub paid_out: bool,
}

impl OnChain {
    /// Applies the next event, by its name; unknown events change nothing.
    #[must_use]
    pub fn after(self, event: &str) -> Self {
        match event {
            "Created" => Self { settler: SettlerState::Created, ..self },
            "Filled" => Self { settler: SettlerState::Filled, ..self },
            "Settled" => Self { settler: SettlerState::Settled, ..self },
            "Cancelled" => Self { settler: SettlerState::Cancelled, ..self },
            "Locked" => Self { escrow: EscrowState::Locked, ..self },
            "Released" => Self { escrow: EscrowState::Released, ..self },
            "Refunded" => Self { escrow: EscrowState::Refunded, ..self },
            "Paid" => Self { paid_out: true, ..self },
            _ => self,
        }
    }
}

/// The stored events of one id, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredEvents {
    /// The state after all events.
    pub now: OnChain,
    /// The state after the events up to the final block.
    pub at_block: OnChain,
    /// The amounts in `Created` and `Paid`.
    pub locked: Option<Minor>,
    pub paid: Option<Minor>,
}

/// The contracts' state of one id at the final block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contracts {
    pub state: OnChain,
    /// The lock, when the hash of the terms in its events is the one that the escrow stores.
    pub lock: Option<ProvenLock>,
    /// The hash of the terms in the events differs from the one that the escrow stores.
    pub terms_differ: bool,
}

/// The terms of a lock, proven by the escrow's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenLock {
    pub amount: Minor,
    /// The escrow's token, lowercase hex.
    pub token: String,
    /// Unix seconds.
    pub fill_deadline: u64,
    pub timelock: u64,
}

/// An anchor by one of the service's relayers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchored {
    pub tx_hash: String,
    pub contract: String,
}

/// A receipt as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipted {
    pub content_hash: String,
    /// The hash computed from the stored body for this comparison.
    pub computed_hash: String,
    /// The first anchor of `content_hash`.
    pub anchor: Option<Anchored>,
}

/// The service's side of a settlement.
#[derive(Debug, Clone, PartialEq)]
pub struct Booked {
    pub terms: Terms,
    pub state: State,
    /// Its lock is on another chain than the one compared, which has its payment.
    pub is_locked_elsewhere: bool,
    pub changed_at: Timestamp,
    pub receipt: Option<Receipted>,
    /// The kind of a chain command that can never succeed.
    pub failed_command: Option<String>,
    /// How an event differs from its command.
    pub differing_fact: Option<String>,
    /// The bank's status of the payment, unless operators have closed the contradiction.
    pub bank: Option<BankWord>,
    /// Since when a bank has had the payment without a final answer.
    pub with_bank_since: Option<Timestamp>,
    pub recall: Option<OpenRecall>,
}

/// A recall whose end is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRecall {
    pub status: RecallStatus,
    /// When it was sent; when it was accepted, if it was.
    pub since: Timestamp,
    /// An answer contradicts an earlier one.
    pub is_contradicted: bool,
}

/// The final status of a payment at a bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankWord {
    Paid,
    /// After its debt was recorded as paid: it was, or the beneficiary has it twice.
    PaidAgain,
    /// The bank took the payment's return back.
    TakenBack,
    Refused,
}

/// One id and all that is recorded of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// `0x` and 64 hex digits.
    pub entity: String,
    pub booked: Option<Booked>,
    pub kept: StoredEvents,
    /// `None`: the contracts were not queried for this id.
    pub contracts: Option<Contracts>,
}

/// The time of the comparison, and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub now: Timestamp,
    /// The final block's time, Unix seconds. A chain's clock may be ahead of the service's.
    pub block_secs: u64,
    pub patience: Patience,
}

/// The longest expected durations, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Of a live execution without any change, while no rail works on it.
    pub idle_ms: i64,
    /// Of a conversion without a final answer.
    pub convert_ms: i64,
    /// Of a payout without a final answer, after the rail's own time where that is known.
    pub pay_ms: i64,
    /// From the payout to the release of the funds.
    pub settle_ms: i64,
    /// From the receipt to its anchor.
    pub anchor_ms: i64,
    /// An open lock is reported this long before its timelock.
    pub expiring_ms: i64,
    /// From a recall's request to the bank's decision.
    pub recall_answer_ms: i64,
    /// From the bank's acceptance of a recall to the return of the payment.
    pub recall_return_ms: i64,
}

impl Default for Patience {
    fn default() -> Self {
        let minutes = |minutes: i64| minutes * 60_000;
        Self {
            idle_ms: minutes(15),
            convert_ms: minutes(15),
            pay_ms: minutes(15),
            settle_ms: minutes(10),
            anchor_ms: minutes(10),
            expiring_ms: minutes(20),
            recall_answer_ms: minutes(21 * 24 * 60),
            recall_return_ms: minutes(5 * 24 * 60),
        }
    }
}

impl Moment {
    fn idle_since(&self, at: Timestamp, patience_ms: i64) -> bool {
        self.now.millis().saturating_sub(at.millis()) > patience_ms
    }

    /// The chain's time: the later of the block's and the service's, so that no expiry is missed.
    fn chain_secs(&self) -> u64 {
        self.block_secs.max(self.now.unix_secs())
    }
}

/// All breaks of one settlement.
pub fn judge(subject: &Subject, moment: &Moment) -> Vec<Break> {
    let mut found = Findings { subject, breaks: Vec::new() };
    index(&mut found);
    match &subject.booked {
        None => foreign(&mut found, moment),
        Some(booked) => settled::judge(&mut found, booked, moment),
    }
    found.breaks
}

/// A break: one of the service's relayers has anchored a hash that no receipt has.
pub fn anchor_without_receipt(content_hash: &str) -> Break {
    Break {
        kind: BreakKind::AnchorMismatch,
        reference: None,
        entity: Some(content_hash.to_owned()),
        detail: "a relayer anchored a hash that no receipt has".to_owned(),
        action: SuggestedAction::Page,
        difference: None,
    }
}

/// Compares a contract's own count of events with the stored ones; `None` when they agree.
pub fn judge_count(contract: &str, emitted: u64, last: u64, kept: u64) -> Option<Break> {
    (emitted != last || emitted != kept).then(|| Break {
        kind: BreakKind::IndexMismatch,
        reference: None,
        entity: None,
        detail: format!(
            "{contract} has emitted {emitted} events, {kept} are stored, the last numbered {last}"
        ),
        action: SuggestedAction::Rescan,
        difference: None,
    })
}

/// Compares a stored final block with the node's; `None` when they agree.
pub fn judge_block(number: u64, ours: &str, theirs: Option<&str>) -> Option<Break> {
    (theirs != Some(ours)).then(|| Break {
        kind: BreakKind::IndexMismatch,
        reference: None,
        entity: None,
        detail: format!("final block {number} is {ours} here and {} there", theirs.unwrap_or("nothing")),
        action: SuggestedAction::Page,
        difference: None,
    })
}

/// Compares the escrow's balance of a token with the open locks; `None` when it suffices.
pub fn judge_balance(token: &str, held: u128, open: u128) -> Option<Break> {
    (held < open).then(|| Break {
        kind: BreakKind::EscrowShort,
        reference: None,
        entity: None,
        detail: format!("the escrow holds {held} of {token} and owes {open}"),
        action: SuggestedAction::Page,
        difference: None,
    })
}

struct Findings<'a> {
    subject: &'a Subject,
    breaks: Vec<Break>,
}

impl Findings<'_> {
    fn add(&mut self, kind: BreakKind, action: SuggestedAction, detail: impl Into<String>) {
        let booked = self.subject.booked.as_ref();
        self.breaks.push(Break {
            kind,
            reference: booked.map(|booked| booked.terms.reference.to_string()),
            entity: Some(self.subject.entity.clone()),
            detail: detail.into(),
            action,
            difference: None,
        });
    }
}

fn index(found: &mut Findings<'_>) {
    let Some(contracts) = &found.subject.contracts else { return };
    let kept = found.subject.kept.at_block;
    if contracts.state != kept {
        let detail = format!("the events say {kept:?}, the contracts {:?}", contracts.state);
        found.add(BreakKind::IndexMismatch, SuggestedAction::Rescan, detail);
    } else if contracts.terms_differ {
        let detail = "the lock terms in the events differ from those that the escrow has committed to";
        found.add(BreakKind::IndexMismatch, SuggestedAction::Rescan, detail);
    }
}

fn foreign(found: &mut Findings<'_>, moment: &Moment) {
    let now = found.subject.kept.now;
    if now.settler != SettlerState::None || now.escrow != EscrowState::None {
        let action = give_back(found.subject, moment).unwrap_or(SuggestedAction::Page);
        let detail = format!("the chain has {now:?} under an id that no execution has on this chain");
        found.add(BreakKind::LockWithoutExecution, action, detail);
    }
    if now.paid_out {
        let detail = "tokens were paid out under an id that no execution has on this chain";
        found.add(BreakKind::PayoutWithoutExecution, SuggestedAction::Page, detail);
    }
}

/// How open funds can be returned now, if they can.
fn give_back(subject: &Subject, moment: &Moment) -> Option<SuggestedAction> {
    let open = subject.kept.now.escrow == EscrowState::Locked;
    let held = subject.contracts.as_ref().filter(|_| open)?.lock.as_ref()?;
    let (now, settler) = (moment.chain_secs(), subject.kept.now.settler);
    if now >= held.timelock {
        Some(SuggestedAction::Refund)
    } else if settler == SettlerState::Created && now >= held.fill_deadline {
        Some(SuggestedAction::Cancel)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
