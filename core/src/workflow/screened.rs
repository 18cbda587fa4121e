//! Screens an accepted order before its settlement begins. The list and the hook are consulted outside of any
//! transaction, and the result is stored before it takes effect. After a crash the hook gets the same reference again.
//!
//! An operator's decision is a verdict on the due work itself, so that it and a worker's step exclude each other.
//!
//! Kept by `core/tests/it/screening.rs::a_killed_worker_screens_again_and_the_order_begins_once` and
//! `core/domain/src/settlement/model/beginning.rs::an_order_begins_only_when_it_was_passed_or_released_and_never_when_it_was_refused`.

use std::time::Duration;

use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::screening::{Beginning as Rule, LAPSED, Parties, REFUSED, StartDecision};
use dvp_domain::settlement::{Happened, State};
use dvp_store::orders::effects::ManualResolution;
use dvp_store::orders::executions::Execution;
use dvp_store::orders::screenings::{self, NewScreening};
use dvp_store::partners::beneficiaries;
use tracing::warn;

use crate::engine::knowledge::{HELD, RESTS};
use crate::engine::{Engine, EngineError};
use crate::screening::Screened;

/// How long an order waits while too many requests are in progress.
const CROWDED: Duration = Duration::from_millis(200);

/// The result for an order that is due to begin.
pub(super) enum Beginning {
    Now(Happened),
    /// It is screened again after this time.
    Later(Duration, &'static str),
}

/// Screens an order, unless an operator has decided about it or its deadline has passed.
pub(super) async fn screened(
    engine: &Engine,
    execution: &Execution,
    decided: Option<&ManualResolution>,
) -> Result<Beginning, EngineError> {
    let now = engine.now();
    let refused = |code: &str| {
        let message = "the order was refused before its settlement began".to_owned();
        Beginning::Now(Happened::Refused { code: code.to_owned(), message, at: now })
    };
    // A resting order may wait for less: for as long as its firm quote is valid.
    let resting = execution.state == State::Resting;
    let request = &execution.terms.request;
    let deadline = if resting { execution.terms.lock_at.min(request.deadline) } else { request.deadline };
    let (decision, code) = match decided {
        Some(ManualResolution::Cancel) => (Some(StartDecision::Cancel), REFUSED),
        Some(ManualResolution::Refused { code }) => (Some(StartDecision::Refuse), code.as_str()),
        Some(ManualResolution::Released) => (Some(StartDecision::Release), REFUSED),
        _ => (None, REFUSED),
    };
    let screening = &engine.context.screening;
    let rule = Rule::first(decision, now, deadline, screening.is_on());
    if resting && matches!(rule, Rule::Begin | Rule::Screen | Rule::Hold) {
        // Its timer ends it at its deadline; nothing else begins before it is filled.
        let left = u64::try_from(deadline.millis().saturating_sub(now.millis())).unwrap_or(0);
        return Ok(Beginning::Later(Duration::from_millis(left), RESTS));
    }
    match rule {
        // Released by an operator, or not screened at all.
        Rule::Begin if decision.is_some() => return Ok(Beginning::Now(begun(engine, execution))),
        Rule::Begin => return Ok(Beginning::Now(Happened::LockDue)),
        Rule::Cancel => return Ok(Beginning::Now(Happened::CancelRequested)),
        Rule::Refuse => return Ok(refused(code)),
        Rule::Expire => {
            return Ok(Beginning::Now(Happened::DeadlinePassed { at: request.deadline }));
        }
        Rule::Screen | Rule::Hold => {}
    }
    let beneficiary = beneficiary(engine, execution).await?;
    let parties = Parties { terms: &execution.terms, beneficiary: beneficiary.as_ref() };
    let Some(Screened { verdict, source, detail }) = screening.screen(&parties).await else {
        return Ok(Beginning::Later(CROWDED, "waits for screening"));
    };
    let reference = execution.terms.reference.as_str();
    let mut conn = engine.pool.acquire().await?;
    screenings::insert(&mut conn, &NewScreening { reference, verdict, source, detail: &detail }).await?;
    Ok(match Rule::after(verdict) {
        Rule::Begin => Beginning::Now(begun(engine, execution)),
        Rule::Hold => {
            warn!(source = source.as_str(), detail, "order held by screening");
            let left = u64::try_from(deadline.millis().saturating_sub(engine.now().millis())).unwrap_or(0);
            Beginning::Later(screening.ask_again.min(Duration::from_millis(left)), HELD)
        }
        Rule::Refuse | Rule::Cancel | Rule::Expire | Rule::Screen => refused(REFUSED),
    })
}

/// The beginning of an order that screening or an operator lets pass: its price stands as long as its path, and no lock is
/// possible later.
fn begun(engine: &Engine, execution: &Execution) -> Happened {
    let now = engine.now();
    if now < execution.terms.plan.path.expires_at {
        return Happened::LockDue;
    }
    Happened::Refused {
        code: LAPSED.to_owned(),
        message: "the order was released after its price had lapsed (path.expiresAt)".to_owned(),
        at: now,
    }
}

async fn beneficiary(engine: &Engine, execution: &Execution) -> Result<Option<Beneficiary>, EngineError> {
    let named = execution.terms.request.beneficiary.as_ref();
    let Some((beneficiary, destination)) = named.and_then(Beneficiary::reference) else {
        return Ok(named.cloned());
    };
    let partner = execution.terms.partner_id.as_str();
    let mut conn = engine.pool.acquire().await?;
    let found = beneficiaries::find_destinations(&mut conn, &[(partner, beneficiary, destination)]).await?;
    Ok(found.into_values().next().flatten().map(|found| found.details).or_else(|| named.cloned()))
}
