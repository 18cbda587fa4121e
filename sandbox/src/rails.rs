//! A bank and a converter that behave badly on purpose, by the last four characters of the beneficiary's account.
//!
//! They stand for the world outside, so they keep books of their own that survive our crashes, and they do not
//! deduplicate: a payment requested twice is paid twice, and their books show it.
//!
//! | account | behaviour |
//! |---|---|
//! | …0001 | the payout passes through in_progress for about 2 s |
//! | …0002 | the payout fails: `beneficiary_account_closed` |
//! | …0003 | the conversion fails: `conversion_failed` |
//! | …0004 | the payout times out and is found paid after about 3 s |
//! | …0005 | the payout provider is down, then up |
//! | …0006 | the conversion passes through in_progress for about 2 s |
//! | …0007 | the payout never answers |
//! | …0008 | the order rests about 10 s before its lock is sent |
//! | else | straight through |

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_domain::windows::PayoutTime;
use dvp_rails::{LegKind, PayoutOrder, Rail, RailError, RailFuture, RailRequest, RailStatus, Unpayable};
use dvp_store::database::clock;
use sqlx::PgPool;

/// The name on paths and receipts.
pub const PROVIDER: &str = "simulated-bank";
/// A payout that is known to have happened is found within seconds.
pub const PAYOUT_TIME: PayoutTime = PayoutTime::Elapsed(60);
/// How many calls find the provider of …0005 down.
const CALLS_DOWN: i32 = 2;

/// The simulated bank pays everybody.
pub const fn check_payout(_: &PayoutOrder<'_>) -> Result<(), Unpayable> {
    Ok(())
}

/// How long the lock of an order rests, in milliseconds.
pub fn rest_millis(account: &str) -> i64 {
    if account.ends_with("0008") { 10_000 } else { 0 }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    StraightThrough,
    Slow,
    Fails { code: &'static str, message: &'static str },
    TimesOut,
    DownThenUp,
    NeverAnswers,
}

fn behaviour(request: &RailRequest) -> Behaviour {
    let suffix = request.account.get(request.account.len().saturating_sub(4)..).unwrap_or_default();
    match (request.leg, suffix) {
        (LegKind::Payout, "0001") | (LegKind::Offramp, "0006") => Behaviour::Slow,
        (LegKind::Payout, "0002") => Behaviour::Fails {
            code: "beneficiary_account_closed",
            message: "the beneficiary's account is closed",
        },
        (LegKind::Offramp, "0003") => {
            Behaviour::Fails { code: "conversion_failed", message: "the conversion was refused" }
        }
        (LegKind::Payout, "0004") => Behaviour::TimesOut,
        (LegKind::Payout, "0005") => Behaviour::DownThenUp,
        (LegKind::Payout, "0007") => Behaviour::NeverAnswers,
        _ => Behaviour::StraightThrough,
    }
}

/// The books of the simulated providers.
#[derive(Debug, Clone)]
pub struct SimulatedRails {
    books: PgPool,
}

/// A reference's entry in the books.
#[derive(Debug, Clone, sqlx::FromRow)]
struct Entry {
    calls: i32,
    first_call: DateTime<Utc>,
    executed_at: Option<DateTime<Utc>>,
}

impl SimulatedRails {
    pub const fn new(books: PgPool) -> Self {
        Self { books }
    }

    async fn record_call(&self, request: &RailRequest) -> Result<Entry, RailError> {
        sqlx::query_as(
            "insert into simulated_rail as r (leg, reference, account, amount, currency, calls, first_call) \
             values ($1, $2, $3, $4::text::numeric, $5, 1, now()) \
             on conflict on constraint simulated_rail_pkey do update set calls = r.calls + 1 \
             returning calls, first_call, executed_at",
        )
        .bind(request.leg.as_str())
        .bind(&request.reference)
        .bind(&request.account)
        .bind(request.amount.to_string())
        .bind(&request.currency)
        .fetch_one(&self.books)
        .await
        .map_err(|error| RailError::Down(error.to_string()))
    }

    /// Money moves, as often as this is called in time.
    async fn execute(&self, request: &RailRequest) -> Result<DateTime<Utc>, RailError> {
        let row: (DateTime<Utc>,) = sqlx::query_as(
            "update simulated_rail set executed = executed + 1, executed_at = now() \
             where leg = $1 and reference = $2 and clock_timestamp() <= $3 returning executed_at",
        )
        .bind(request.leg.as_str())
        .bind(&request.reference)
        .bind(request.not_after)
        .fetch_one(&self.books)
        .await
        .map_err(|_| RailError::Unconfirmed)?;
        Ok(row.0)
    }

    async fn answer_submit(&self, request: &RailRequest) -> Result<RailAnswer, RailError> {
        let entry = self.record_call(request).await?;
        match behaviour(request) {
            Behaviour::StraightThrough => Ok(done(request, self.execute(request).await?)),
            Behaviour::Slow => {
                self.execute(request).await?;
                Ok(in_progress(request))
            }
            Behaviour::Fails { code, message } => {
                Ok(RailAnswer::Failed { code: code.into(), message: message.into(), retryable: false })
            }
            Behaviour::TimesOut => {
                self.execute(request).await?;
                Err(RailError::Unconfirmed)
            }
            Behaviour::DownThenUp if entry.calls <= CALLS_DOWN => Err(RailError::Down("maintenance".into())),
            Behaviour::DownThenUp => Ok(done(request, self.execute(request).await?)),
            Behaviour::NeverAnswers => Err(RailError::Unconfirmed),
        }
    }

    async fn answer_status(&self, request: &RailRequest) -> Result<RailStatus, RailError> {
        let entry: Option<Entry> = sqlx::query_as(
            "select calls, first_call, executed_at from simulated_rail where leg = $1 and reference = $2",
        )
        .bind(request.leg.as_str())
        .bind(&request.reference)
        .fetch_optional(&self.books)
        .await
        .map_err(|error| RailError::Down(error.to_string()))?;
        let Some(entry) = entry else { return Ok(RailStatus::NeverSeen) };
        let age = clock::now().to_utc().signed_duration_since(entry.first_call);
        let ripe = |after_ms: i64| age >= TimeDelta::milliseconds(after_ms);
        match (behaviour(request), entry.executed_at) {
            (Behaviour::NeverAnswers, _) => Err(RailError::Unconfirmed),
            (Behaviour::TimesOut, Some(_)) if !ripe(3_000) => Err(RailError::Unconfirmed),
            (Behaviour::Slow, Some(_)) if !ripe(2_000) => Ok(RailStatus::Known(in_progress(request))),
            (Behaviour::Fails { code, message }, _) => {
                let (code, message) = (code.into(), message.into());
                Ok(RailStatus::Known(RailAnswer::Failed { code, message, retryable: false }))
            }
            (_, Some(at)) => Ok(RailStatus::Known(done(request, at))),
            (_, None) => Ok(RailStatus::NeverSeen),
        }
    }
}

fn done(request: &RailRequest, at: DateTime<Utc>) -> RailAnswer {
    RailAnswer::Done(LegDone { provider_reference: provider_reference(request), occurred_at: at.into() })
}

fn in_progress(request: &RailRequest) -> RailAnswer {
    RailAnswer::InProgress { provider_reference: provider_reference(request) }
}

fn provider_reference(request: &RailRequest) -> String {
    let kind = match request.leg {
        LegKind::Offramp => "SIMFX",
        LegKind::Payout => "SIMPAY",
    };
    let digest = request.reference.get(..16).unwrap_or(&request.reference);
    format!("{kind}-{}", digest.to_uppercase())
}

impl Rail for SimulatedRails {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(self.answer_submit(request))
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(self.answer_status(request))
    }
}
