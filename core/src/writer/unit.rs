//! What can be written, and what came of it.

use std::sync::Arc;

use dvp_domain::decision::{Plan, Reason};
use dvp_domain::intent::IntentRequest;
use dvp_domain::settlement::{Step, Terms};

use crate::fix::FixPart;
use crate::store::effects::EndedEffect;
use crate::store::idempotency::{RecordId, StoredResponse};
use crate::store::intents::Tenant;
use crate::store::legacy::NewLegacyIntent;
use crate::store::quotes::{NewFirmQuote, QuoteContext};

/// One piece of work, written whole or not at all.
pub struct Unit {
    pub work: Work,
    pub idempotency: Option<IdempotencyPart>,
    pub fix: Option<FixPart>,
}

impl Unit {
    pub const fn of(work: Work) -> Self {
        Self { work, idempotency: None, fix: None }
    }
}

pub enum Work {
    /// Decide an intent, and accept or reject it.
    Submit(Box<Submission>),
    /// Keep an indicative quote's context.
    Quote(Box<QuoteContext>),
    /// Keep an order of the older surface.
    LegacyIntent(Box<NewLegacyIntent>),
    /// Lock a firm quote.
    FirmQuote(Box<NewFirmQuote>),
    /// A settlement's step, and the fact or effect it consumes.
    Step(Box<Change>),
    /// Decided already, by something only one of the doors' callers can be told: the outcome is kept with its key.
    Refuse(Outcome),
    /// Nothing but the FIX part.
    SessionOnly,
}

/// An intent to decide.
pub struct Submission {
    pub tenant: Tenant,
    pub request: IntentRequest,
}

/// A step of a settlement from a known version. Without a step only the consumed things are ended.
pub struct Change {
    pub terms: Terms,
    pub version: i64,
    pub last_sequence: i64,
    pub step: Option<Step>,
    pub consumed: Consumed,
}

/// What led to a step and is used up with it.
#[derive(Debug, Clone, Default)]
pub struct Consumed {
    pub fact: Option<i64>,
    pub effect: Option<EndedEffect>,
}

/// Renders the answer to be stored and given again.
pub type RenderResponse = Arc<dyn Fn(&Outcome) -> StoredResponse + Send + Sync>;

/// The idempotency record of a REST request.
#[derive(Clone)]
pub struct IdempotencyPart {
    pub id: RecordId,
    pub fingerprint: [u8; 32],
    pub render: RenderResponse,
}

/// What came of a unit, durable when it is returned.
#[derive(Debug, Clone)]
pub enum Outcome {
    Accepted(Box<Accepted>),
    Rejected {
        intent_id: String,
        reason: Reason,
    },
    /// The intentId was used before.
    DuplicateIntent,
    /// An accepted intent has this clientReference.
    DuplicateClientReference,
    /// The permit is malformed in a way only the service can see.
    InvalidPermit(&'static str),
    /// Quotes, steps and session changes.
    Written,
    /// The same request was answered before: this is that answer.
    Replayed(StoredResponse),
    /// The idempotency key stands for a different request.
    KeyConflict,
    /// The same key is being worked on right now.
    KeyProcessing,
}

#[derive(Debug, Clone)]
pub struct Accepted {
    pub intent_id: String,
    pub reference: String,
    pub plan: Plan,
    /// The intent fixed its output, so the answer states the computed input.
    pub exact_output: bool,
}

/// A committed unit.
#[derive(Debug, Clone)]
pub struct Done {
    pub outcome: Outcome,
    /// The answer that was stored, for a unit with an idempotency part.
    pub response: Option<StoredResponse>,
}
