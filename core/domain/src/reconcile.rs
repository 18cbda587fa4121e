//! Where our books and the chain's differ, and what to do about it.
//!
//! Three tellings of every settlement are held against each other: the service's own execution, the events that the
//! indexer kept, and what the contracts themselves answer at one final block. A difference is a [`Break`].
//!
//! Invariants: nothing here acts, it proposes; a settlement that is merely on its way is no break (the events may be
//! ahead of the execution, and the execution ahead of the final block); `stuck` is said only where nothing else is.

use serde::{Deserialize, Serialize};

use crate::money::Minor;
use crate::settlement::State;
use crate::terms::Terms;
use crate::time::Timestamp;

mod settled;

/// The ways in which books differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakKind {
    /// The escrow took funds for something that no execution of ours has locked.
    LockWithoutExecution,
    /// An execution counts on a lock that the chain does not have.
    ExecutionWithoutLock,
    /// The chain moved another amount than was agreed.
    AmountMismatch,
    /// A lock, a swap, a fill or a payment under the order's id has other terms than its command asked for.
    TermsMismatch,
    /// The beneficiary was paid, and the funds that pay for it were not released to us.
    PaidNotSettled,
    /// Funds were released, and nobody was paid.
    SettledNotPaid,
    /// A completed execution's receipt is not anchored.
    AnchorMissing,
    /// What is anchored is not what was receipted, or not where the receipt says.
    AnchorMismatch,
    /// Funds are locked for a live execution, and soon anybody may refund them.
    TimelockExpiring,
    /// Funds are locked for nothing any more and may go back to the wallet.
    RefundDue,
    /// Nothing has happened to a live execution for too long.
    Stuck,
    /// The chain paid tokens out for no execution of ours.
    PayoutWithoutExecution,
    /// The kept events tell another state than the contracts do.
    IndexMismatch,
    /// The escrow holds less than what it owes.
    EscrowShort,
    /// The bank's word on a payment contradicts how its execution ended.
    DecisionContradicted,
    /// A payment came back, and what is owed for it was neither paid another way nor given back.
    PaymentReturned,
}

impl BreakKind {
    pub const ALL: [Self; 16] = [
        Self::LockWithoutExecution,
        Self::ExecutionWithoutLock,
        Self::AmountMismatch,
        Self::TermsMismatch,
        Self::PaidNotSettled,
        Self::SettledNotPaid,
        Self::AnchorMissing,
        Self::AnchorMismatch,
        Self::TimelockExpiring,
        Self::RefundDue,
        Self::Stuck,
        Self::PayoutWithoutExecution,
        Self::IndexMismatch,
        Self::EscrowShort,
        Self::DecisionContradicted,
        Self::PaymentReturned,
    ];

    /// As it is stored and told.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LockWithoutExecution => "lock_without_execution",
            Self::ExecutionWithoutLock => "execution_without_lock",
            Self::AmountMismatch => "amount_mismatch",
            Self::TermsMismatch => "terms_mismatch",
            Self::PaidNotSettled => "paid_not_settled",
            Self::SettledNotPaid => "settled_not_paid",
            Self::AnchorMissing => "anchor_missing",
            Self::AnchorMismatch => "anchor_mismatch",
            Self::TimelockExpiring => "timelock_expiring",
            Self::RefundDue => "refund_due",
            Self::Stuck => "stuck",
            Self::PayoutWithoutExecution => "payout_without_execution",
            Self::IndexMismatch => "index_mismatch",
            Self::EscrowShort => "escrow_short",
            Self::DecisionContradicted => "decision_contradicted",
            Self::PaymentReturned => "payment_returned",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What a person might do. Nothing does it by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuggestedAction {
    /// Somebody must look: money may be lost.
    Page,
    /// `IntentSettler.cancel`: open to anyone, gives the funds back.
    Cancel,
    /// `Escrow.refund`: open to anyone, gives the funds back.
    Refund,
    /// `IntentSettler.returnFilled`: two operators give committed funds back before the timelock.
    Return,
    /// See why the relayer has not settled, before the timelock.
    Settle,
    /// See why the relayer has not anchored.
    Anchor,
    /// `dvp execution resolve`, once the rail has said what became of the leg.
    Resolve,
    /// Compare the index with another endpoint; read the chain again where it differs.
    Rescan,
}

impl SuggestedAction {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Cancel => "cancel",
            Self::Refund => "refund",
            Self::Return => "return",
            Self::Settle => "settle",
            Self::Anchor => "anchor",
            Self::Resolve => "resolve",
            Self::Rescan => "rescan",
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Break {
    #[serde(rename = "type")]
    pub kind: BreakKind,
    /// The execution, where one is concerned.
    pub reference: Option<String>,
    /// The settlement's id or content hash on the chain, `0x` and 64 hex digits.
    pub entity: Option<String>,
    /// For people.
    pub detail: String,
    pub action: SuggestedAction,
}

/// Where a settlement stands in the settler, by its contract's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettlerState {
    #[default]
    None,
    Created,
    Filled,
    Settled,
    Cancelled,
}

/// Where funds stand in the escrow, by its contract's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EscrowState {
    #[default]
    None,
    Locked,
    Released,
    Refunded,
}

/// What events, or the contracts, tell of one id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OnChain {
    pub settler: SettlerState,
    pub escrow: EscrowState,
    /// `Payouts` has paid under this id.
    pub paid_out: bool,
}

impl OnChain {
    /// Takes in the next event by its name; others change nothing.
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

/// The kept events of one id, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredEvents {
    /// All that are told.
    pub now: OnChain,
    /// Those up to the final block.
    pub at_block: OnChain,
    /// What `Created` and `Paid` say was moved.
    pub locked: Option<Minor>,
    pub paid: Option<Minor>,
}

/// What the contracts answer about one id at the final block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contracts {
    pub state: OnChain,
    /// The lock, when the terms that its events told hash to what the escrow has committed to.
    pub lock: Option<ProvenLock>,
    /// The events told terms, and the escrow has committed to others.
    pub terms_differ: bool,
}

/// The terms of a lock, proven by the escrow's commitment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenLock {
    pub amount: Minor,
    /// The escrow's token, lowercase hex.
    pub token: String,
    /// Unix seconds.
    pub fill_deadline: u64,
    pub timelock: u64,
}

/// An anchor of one of our relayers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchored {
    pub tx_hash: String,
    pub contract: String,
}

/// A receipt as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipted {
    pub content_hash: String,
    /// The hash computed from the stored body just now.
    pub computed_hash: String,
    /// The first anchor of `content_hash`.
    pub anchor: Option<Anchored>,
}

/// The service's side of a settlement.
#[derive(Debug, Clone, PartialEq)]
pub struct Booked {
    pub terms: Terms,
    pub state: State,
    /// When something last happened to it.
    pub changed_at: Timestamp,
    pub receipt: Option<Receipted>,
    /// A chain command that can never succeed, by its kind.
    pub failed_command: Option<String>,
    /// Where an event differs from the command that asked for it.
    pub differing_fact: Option<String>,
    /// The bank's word on the payment, unless operators have closed what it contradicts.
    pub bank: Option<BankWord>,
    /// Since when a bank has had the payment without a final word.
    pub with_bank_since: Option<Timestamp>,
}

/// A bank's word on a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankWord {
    Paid,
    Refused,
}

/// One id and all that is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// `0x` and 64 hex digits.
    pub entity: String,
    pub booked: Option<Booked>,
    pub kept: StoredEvents,
    /// `None`: the contracts were not asked about this one.
    pub contracts: Option<Contracts>,
}

/// When it is, and what counts as too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub now: Timestamp,
    /// The final block's time, Unix seconds. A chain's clock may be ahead of ours.
    pub block_secs: u64,
    pub patience: Patience,
}

/// How long things may take, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A live execution without any change.
    pub idle_ms: i64,
    /// From the payout to the release of the funds.
    pub settle_ms: i64,
    /// From the receipt to its anchor.
    pub anchor_ms: i64,
    /// So long before its timelock an open lock is reported.
    pub expiring_ms: i64,
}

impl Default for Patience {
    fn default() -> Self {
        let minutes = |minutes: i64| minutes * 60_000;
        Self {
            idle_ms: minutes(15),
            settle_ms: minutes(10),
            anchor_ms: minutes(10),
            expiring_ms: minutes(20),
        }
    }
}

impl Moment {
    fn idle_since(&self, at: Timestamp, patience_ms: i64) -> bool {
        self.now.millis().saturating_sub(at.millis()) > patience_ms
    }

    /// The chain's time: the later of the block's and ours, so that nothing expires unseen.
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

/// An anchor by one of our relayers for a hash that no receipt has.
pub fn anchor_without_receipt(content_hash: &str) -> Break {
    Break {
        kind: BreakKind::AnchorMismatch,
        reference: None,
        entity: Some(content_hash.to_owned()),
        detail: "a relayer anchored a hash that no receipt has".to_owned(),
        action: SuggestedAction::Page,
    }
}

/// A contract's own count of events against the kept ones; `None` when they agree.
pub fn judge_count(contract: &str, emitted: u64, last: u64, kept: u64) -> Option<Break> {
    (emitted != last || emitted != kept).then(|| Break {
        kind: BreakKind::IndexMismatch,
        reference: None,
        entity: None,
        detail: format!("{contract} has emitted {emitted} events, {kept} are kept, the last numbered {last}"),
        action: SuggestedAction::Rescan,
    })
}

/// A kept final block against the node's; `None` when they agree.
pub fn judge_block(number: u64, ours: &str, theirs: Option<&str>) -> Option<Break> {
    (theirs != Some(ours)).then(|| Break {
        kind: BreakKind::IndexMismatch,
        reference: None,
        entity: None,
        detail: format!("final block {number} is {ours} here and {} there", theirs.unwrap_or("nothing")),
        action: SuggestedAction::Page,
    })
}

/// The escrow's balance of a token against what is open in it; `None` when it holds enough.
pub fn judge_balance(token: &str, held: u128, open: u128) -> Option<Break> {
    (held < open).then(|| Break {
        kind: BreakKind::EscrowShort,
        reference: None,
        entity: None,
        detail: format!("the escrow holds {held} of {token} and owes {open}"),
        action: SuggestedAction::Page,
    })
}

/// What was found of one subject.
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
        let detail = "the events tell other terms of the lock than the escrow has committed to";
        found.add(BreakKind::IndexMismatch, SuggestedAction::Rescan, detail);
    }
}

fn foreign(found: &mut Findings<'_>, moment: &Moment) {
    let now = found.subject.kept.now;
    if now.settler != SettlerState::None || now.escrow != EscrowState::None {
        let action = give_back(found.subject, moment).unwrap_or(SuggestedAction::Page);
        let detail = format!("the chain has {now:?} under an id that no execution has");
        found.add(BreakKind::LockWithoutExecution, action, detail);
    }
    if now.paid_out {
        let detail = "tokens were paid out under an id that no execution has";
        found.add(BreakKind::PayoutWithoutExecution, SuggestedAction::Page, detail);
    }
}

/// How open funds can go back by now, if they can.
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
