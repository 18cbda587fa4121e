//! The units that can be written, and their outcomes.

use std::sync::Arc;

use dvp_domain::abandonment::{Abandoned, CoolDown};
use dvp_domain::decision::Reason;
use dvp_domain::intent::IntentRequest;
use dvp_domain::money::Minor;
use dvp_domain::permit::PermitDefect;
use dvp_domain::plan::{InputFunding, Plan};
use dvp_domain::settlement::{State, Step};
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use dvp_domain::trace::TraceContext;
use dvp_rails::Unpayable;
use dvp_store::fix::rows::{ClOrdId, FixNumbers, FixOutbound, FixRows};
use dvp_store::orders::abandonments::NewAbandonment;
use dvp_store::orders::effects::{EffectEnd, EndedEffect};
use dvp_store::orders::executions::Execution;
use dvp_store::orders::idempotency::{RecordId, StoredResponse};
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy::{HeldTurn, NewLegacyIntent};
use dvp_store::orders::quotes::{NewFirmQuote, QuoteContext};

use super::fair_queue::{Flow, UnitSource};
use super::fix::FixChain;
use crate::chain::{WalletFacts, WalletKey};

/// Turns the outcome into the rows that report it. Called inside the transaction, and again when the transaction is
/// retried.
pub type RenderFix = Arc<dyn Fn(&Outcome) -> FixRows + Send + Sync>;

/// The rows a session writes with a unit: its numbers, and the reports of the outcome. The inbound MsgSeqNum, the order's
/// effect and the outbound report are one transaction.
#[derive(Clone)]
pub struct FixPart {
    pub numbers: FixNumbers,
    /// The ClOrdID that the unit uses. An order whose ClOrdID was used before, by any request of the session, becomes
    /// [`Refusal::DuplicateIntent`] within the commit, without a race.
    pub cl_ord_id: Option<ClOrdId>,
    pub render: RenderFix,
    /// The commits that this one continues.
    pub chain: FixChain,
}

impl FixPart {
    /// The same part, of a unit that uses a ClOrdID.
    #[must_use]
    pub fn using(self, cl_ord_id: &ClOrdId) -> Self {
        Self { cl_ord_id: Some(cl_ord_id.clone()), ..self }
    }
}

impl std::fmt::Debug for FixPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FixPart").field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

/// One unit of work, written completely or not at all.
pub struct Unit {
    pub flow: Flow,
    pub work: Work,
    pub idempotency: Option<IdempotencyPart>,
    pub fix: Option<FixPart>,
}

impl Unit {
    /// A request over REST, with its idempotency key.
    pub fn of_request(work: Work, key: IdempotencyPart) -> Self {
        let tenant = Tenant { partner_id: key.id.partner_id.clone(), livemode: key.id.livemode };
        Self { flow: Flow { tenant, source: UnitSource::Rest }, work, idempotency: Some(key), fix: None }
    }

    /// A unit of a FIX session, in the session's order.
    pub fn of_session(tenant: Tenant, work: Work, fix: FixPart) -> Self {
        let source = UnitSource::Session(fix.numbers.session_id.clone());
        Self { flow: Flow { tenant, source }, work, idempotency: None, fix: Some(fix) }
    }

    /// The attempt to fill a resting order. Those of a pair are decided in the order in which they were queued, whoever
    /// placed them.
    pub fn of_fill(fill: FillAttempt) -> Self {
        let Terms { input, output, livemode, .. } = &fill.execution.terms;
        let pair = format!("{}/{}", input.asset, output.asset);
        let tenant = Tenant { partner_id: pair, livemode: *livemode };
        Self {
            flow: Flow { tenant, source: UnitSource::Settlement },
            work: Work::Fill(Box::new(fill)),
            idempotency: None,
            fix: None,
        }
    }

    /// A step of the service itself. `is_suspect`: it could not be written before, so it is tried alone.
    pub fn of_settlement(change: Change, is_suspect: bool) -> Self {
        let source = if is_suspect { UnitSource::Suspect } else { UnitSource::Settlement };
        let partner_id = change.terms.partner_id.to_string();
        let tenant = Tenant { partner_id, livemode: change.terms.livemode };
        Self {
            flow: Flow { tenant, source },
            work: Work::Step(Box::new(change)),
            idempotency: None,
            fix: None,
        }
    }
}

pub enum Work {
    /// Decide an intent, and accept or reject it.
    Submit(Box<Submission>),
    Quote(Box<QuoteContext>),
    LegacyIntent(Box<NewLegacyIntent>),
    FirmQuote(Box<NewFirmQuote>),
    /// A settlement's step, and the fact or effect it consumes.
    Step(Box<Change>),
    /// Fill a resting order, if the market meets it.
    Fill(Box<FillAttempt>),
    /// The intent is refused without a decision; the refusal is stored with its key.
    Refuse(Refusal),
    /// Only the answer is stored with its key.
    AnswerOnly,
    /// Only the FIX part.
    SessionOnly,
}

impl Work {
    /// The label in metrics and log lines.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Submit(_) => "submission",
            Self::Quote(_) => "quote",
            Self::LegacyIntent(_) => "legacy order",
            Self::FirmQuote(_) => "firm quote",
            Self::Step(_) => "step",
            Self::Fill(_) => "fill",
            Self::Refuse(_) => "refusal",
            Self::AnswerOnly => "answer",
            Self::SessionOnly => "session",
        }
    }

    /// The unit's subject in log lines: an intentId, a reference or a requestId.
    pub(super) fn subject(&self) -> &str {
        match self {
            Self::Submit(submission) => &submission.request.intent_id,
            Self::Quote(context) => &context.request_id,
            Self::LegacyIntent(new) => &new.intent_id,
            Self::FirmQuote(quote) => quote.terms.quote_id.as_str(),
            Self::Step(change) => change.terms.reference.as_str(),
            Self::Fill(fill) => fill.execution.terms.reference.as_str(),
            Self::Refuse(_) | Self::AnswerOnly | Self::SessionOnly => "",
        }
    }
}

#[derive(Clone)]
pub struct Submission {
    pub tenant: Tenant,
    pub request: IntentRequest,
    /// The cached data of the paying wallet, if there is one.
    pub wallet: Option<KnownWallet>,
    /// The legacy order that the unit executes: it is decided only while the order's claim is valid.
    pub turn: Option<HeldTurn>,
    /// The resting order that the unit fills, which may have used its quote.
    pub fills: Option<String>,
    /// The request's trace, for the work that follows.
    pub trace: Option<TraceContext>,
}

impl Submission {
    /// A range order as it is if it is accepted now, when its output begins to fall.
    pub(super) fn beginning(&self, now: Timestamp) -> Option<Self> {
        let bounds = self.request.bounds.beginning(now);
        (bounds != self.request.bounds)
            .then(|| Self { request: IntentRequest { bounds, ..self.request.clone() }, ..self.clone() })
    }
}

/// A resting order as it was read, to be filled if it still rests.
pub struct FillAttempt {
    pub execution: Execution,
    /// Its request, and what is known of its wallet.
    pub submission: Submission,
    /// Of an order that a deposit pays: what is deposited.
    pub deposited: Option<Minor>,
    /// It was filled before, as its chain shows, and a restored database has forgotten it.
    pub filled_as: Option<FilledAs>,
}

/// The amounts and the provider of a fill that cannot be changed any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilledAs {
    pub input: Minor,
    pub output: Minor,
    pub provider_id: String,
    /// Receives the released funds.
    pub wallet: String,
}

/// A wallet that pays for an intent, and its on-chain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWallet {
    pub key: WalletKey,
    pub facts: WalletFacts,
}

/// A step of a settlement from a known version. Without a step only the consumed rows are ended.
pub struct Change {
    pub terms: Terms,
    pub version: i64,
    pub last_sequence: i64,
    pub last_occurred_at: Timestamp,
    pub step: Option<Step>,
    pub consumed: Consumed,
    /// The state before the step was open: its output was reserved.
    pub was_open: bool,
    /// Its taker cancels it while screening holds it.
    pub was_held: bool,
}

impl Change {
    /// The order had ended, and its settlement goes on.
    pub(super) fn reopens(&self) -> bool {
        let goes_on = |step: &Step| matches!(step.next, State::Releasing { .. } | State::Owing { .. });
        !self.was_open && self.step.as_ref().is_some_and(goes_on)
    }

    /// The order that its step lets go, though its output was reserved.
    pub(super) fn abandoned(&self) -> Option<NewAbandonment> {
        let step = self.step.as_ref().filter(|_| self.was_open && self.terms.counts_as_open)?;
        let deposits = self.terms.plan.funding == InputFunding::Deposit;
        let how = Abandoned::of_step(&step.next, self.was_held, deposits)?;
        let request = &self.terms.request;
        Some(NewAbandonment {
            reference: self.terms.reference.to_string(),
            partner_id: self.terms.partner_id.to_string(),
            wallet: self.terms.locks().then(|| request.user.to_ascii_lowercase()),
            how,
        })
    }

    /// The amounts that its step returns to resting orders, when the settlement ends unpaid.
    pub(super) fn given_back(&self) -> impl Iterator<Item = (i64, Minor)> {
        let ends_unpaid = self.was_open && self.step.as_ref().is_some_and(|step| step.next.gives_back());
        let slices = self.terms.plan.slices.iter().filter(move |_| ends_unpaid);
        slices.filter_map(|slice| Some((slice.level_id?, slice.output)))
    }
}

/// The cause of a step, consumed with it.
#[derive(Debug, Clone, Default)]
pub struct Consumed {
    pub fact: Option<i64>,
    pub effect: Option<EndedEffect>,
    /// The step is written only while the effect's claim holds: a decision of operators takes it away.
    pub is_guarded: bool,
}

impl Consumed {
    /// The consumed work is the timer of an accepted order, which is the only work under a guard.
    pub(super) fn ends_timer(&self) -> bool {
        self.guarded_claim().is_some()
            && self.effect.as_ref().is_some_and(|ended| matches!(ended.end, EffectEnd::Done))
    }

    pub(super) fn guarded_claim(&self) -> Option<(i64, i64)> {
        self.effect.as_ref().filter(|_| self.is_guarded).map(|ended| (ended.id, ended.fence))
    }
}

/// Renders the answer to be stored and replayed.
pub type RenderResponse = Arc<dyn Fn(&Outcome) -> StoredResponse + Send + Sync>;

/// The idempotency record of a REST request.
#[derive(Clone)]
pub struct IdempotencyPart {
    pub id: RecordId,
    pub fingerprint: [u8; 32],
    pub render: RenderResponse,
}

/// The outcome of a unit, durable when it is returned.
#[derive(Debug, Clone)]
pub enum Outcome {
    Accepted(Box<Accepted>),
    Rejected {
        intent_id: String,
        reason: Reason,
    },
    /// Refused without a decision.
    Refused(Refusal),
    /// A resting order goes on resting.
    Unfilled(Unfilled),
    /// Quotes, steps and session changes.
    Written,
    /// The unit's idempotency key is in use; nothing was decided.
    KeyUsed(UsedKey),
}

/// Why an intent or a quote was refused without a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The intentId was used before.
    DuplicateIntent,
    /// An accepted intent has this clientReference.
    DuplicateClientReference,
    /// The permit cannot authorize the intent.
    InvalidPermit(PermitDefect),
    /// The payout's rail could not pay the beneficiary.
    Unpayable(Unpayable),
    /// The output of a firm quote cannot be held for it.
    NotHeld,
    /// The taker has let too many orders or quotes go: refused for now.
    CoolingDown(CoolDown),
    PartnerDisabled,
    /// The tenant has as many waiting legacy orders as it may have.
    TooManyWaiting,
    /// The standing instruction names another account than when the legacy order was accepted.
    Redirected,
}

impl Refusal {
    /// For metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DuplicateIntent => "duplicate_intent",
            Self::DuplicateClientReference => "duplicate_client_reference",
            Self::InvalidPermit(_) => "invalid_permit",
            Self::Unpayable(_) => "unpayable",
            Self::NotHeld => "not_held",
            Self::CoolingDown(_) => "cooling_down",
            Self::PartnerDisabled => "partner_disabled",
            Self::TooManyWaiting => "too_many_waiting",
            Self::Redirected => "redirected",
        }
    }
}

/// Why an idempotency key decides a unit's outcome.
#[derive(Debug, Clone)]
pub enum UsedKey {
    /// The same request was answered before: this is that answer.
    Replayed(StoredResponse),
    /// The key belongs to a different request.
    Conflict,
    /// A request with the same key is in progress.
    Processing,
}

/// Why a resting order was not filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfilled {
    /// The market does not meet it by the writer's clock and balances.
    NotMet,
    PartnerDisabled,
    Rejected(Reason),
    Permit(PermitDefect),
    /// Less is deposited than it takes.
    Deposit,
    Unpayable,
}

impl Unfilled {
    /// For log lines and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotMet => "not_met",
            Self::PartnerDisabled => "partner_disabled",
            Self::Rejected(reason) => reason.as_str(),
            Self::Permit(_) => "permit",
            Self::Deposit => "deposit",
            Self::Unpayable => "unpayable",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Accepted {
    pub intent_id: String,
    pub reference: String,
    pub plan: Plan,
    /// The intent fixed its output, so the answer states the computed input.
    pub exact_output: bool,
    /// What the order waits for, when its input is a chain's coin.
    pub deposit: Option<DepositDue>,
}

/// A deposit that the user has to make before the order settles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepositDue {
    pub chain: String,
    pub chain_id: i64,
    /// The contract whose `deposit(id)` takes it.
    pub contract: String,
    /// The order's id on the chain, `0x` and hex.
    pub id: String,
    /// Of an order that rests, the most that it may take.
    pub amount: Minor,
    /// The last second at which the order may still be locked.
    pub by: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Done {
    pub outcome: Outcome,
    /// The answer that was stored, for a unit with an idempotency part.
    pub response: Option<StoredResponse>,
    /// The FIX messages that were written, for a unit with a FIX part.
    pub outbound: Vec<FixOutbound>,
}
