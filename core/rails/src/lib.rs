//! The world outside that converts and pays: one trait, so that a bank and a simulated one look alike.
//!
//! A call may be answered, refused before anything happened, or not answered at all. Only the second is proof that
//! nothing happened; after the third the rail is asked by reference before anything is repeated.

pub mod http_desk;
pub mod inventory;
pub mod iso20022;

use std::pin::Pin;
use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::money::Minor;
use dvp_domain::settlement::RailAnswer;
pub use dvp_domain::settlement::leg::LegKind;
use dvp_domain::terms::AssetAmount;

/// A payout as its rail can judge it before the order is accepted.
#[derive(Debug, Clone, Copy)]
pub struct PayoutOrder<'a> {
    pub beneficiary: Option<&'a Beneficiary>,
    pub amount: Minor,
    pub currency: &'a str,
    pub exponent: u8,
}

/// The payment cannot be ordered on its rail, now or later: the stable code of the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Unpayable {
    pub code: &'static str,
    pub message: &'static str,
}

/// Whether a rail could carry out a payout, from the order alone.
pub type CheckPayout = fn(&PayoutOrder<'_>) -> Result<(), Unpayable>;

/// What a rail is asked to do. The reference is the same at every attempt.
#[derive(Debug, Clone)]
pub struct RailRequest {
    pub leg: LegKind,
    /// `H(execution, leg)`: committed before the call, so that it can be found again after a crash.
    pub reference: String,
    pub account: String,
    /// The recipient as the order has it.
    pub beneficiary: Option<Beneficiary>,
    pub amount: Minor,
    pub currency: String,
    pub exponent: u8,
    /// What a conversion gives for the output: the input without the protocol fee. A payout gives nothing.
    pub sold: Option<AssetAmount>,
    /// What the rail called this leg when it last answered for it.
    pub provider_reference: Option<String>,
    /// The execution, for people.
    pub execution: String,
    /// The rail does not act on the call later than this: what is not known of it then never will be.
    pub not_after: DateTime<Utc>,
}

/// The rail gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RailError {
    /// It was not reached or refused at once: nothing happened, the call may be repeated.
    #[error("the rail is down: {0}")]
    Down(String),
    /// It may or may not have happened: ask before anything is repeated.
    #[error("no answer from the rail")]
    Unconfirmed,
}

/// What a rail knows of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RailStatus {
    Known(RailAnswer),
    /// Proof that the call never arrived, once it is past its [`not_after`](RailRequest::not_after).
    NeverSeen,
}

pub type RailFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RailError>> + Send + 'a>>;

/// A provider of one or both legs.
pub trait Rail: Send + Sync {
    /// Asks for the leg to be carried out.
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer>;
    /// Asks what became of it.
    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus>;
    /// How long a leg in progress is not asked about at most.
    fn poll_max(&self) -> Duration {
        Duration::from_secs(30)
    }
}
