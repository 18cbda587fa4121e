//! Screens an accepted order before its settlement begins. The list and the hook are consulted outside of any
//! transaction, and the result is stored before it takes effect. After a crash the hook gets the same reference again.

use std::time::Duration;

use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::screening::{Parties, REFUSED, ScreeningResult};
use dvp_domain::settlement::Happened;
use dvp_store::beneficiaries;
use dvp_store::orders::effects::ManualResolution;
use dvp_store::orders::executions::Execution;
use dvp_store::orders::screenings::{self, NewScreening};
use metrics::gauge;
use tokio::sync::watch;
use tracing::warn;

use crate::engine::{Engine, EngineError};
use crate::screening::Screened;

/// The reason that a held order's due work shows.
pub(super) const HELD: &str = "held by screening";
/// How long an order waits while too many others are being asked about.
const CROWDED: Duration = Duration::from_millis(200);
/// How often held orders are counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// What becomes of an order that is due to begin.
pub(super) enum Beginning {
    Now(Happened),
    /// It is looked at again after so long.
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
    let deadline = execution.terms.request.deadline;
    match decided {
        Some(ManualResolution::Cancel) => return Ok(Beginning::Now(Happened::CancelAsked)),
        Some(ManualResolution::Refused { code }) => return Ok(refused(code)),
        _ if now >= deadline => return Ok(Beginning::Now(Happened::DeadlinePassed { at: deadline })),
        Some(ManualResolution::Released) => return Ok(Beginning::Now(Happened::LockDue)),
        _ => {}
    }
    let screening = &engine.context.screening;
    if !screening.is_on() {
        return Ok(Beginning::Now(Happened::LockDue));
    }
    let beneficiary = beneficiary(engine, execution).await?;
    let parties = Parties { terms: &execution.terms, beneficiary: beneficiary.as_ref() };
    let Some(Screened { verdict, source, detail }) = screening.screen(&parties).await else {
        return Ok(Beginning::Later(CROWDED, "waits for screening"));
    };
    let reference = execution.terms.reference.as_str();
    let mut conn = engine.pool.acquire().await?;
    screenings::insert(&mut conn, &NewScreening { reference, verdict, source, detail: &detail }).await?;
    Ok(match verdict {
        ScreeningResult::Pass => Beginning::Now(Happened::LockDue),
        ScreeningResult::Fail => refused(REFUSED),
        ScreeningResult::Hold => {
            warn!(source = source.as_str(), detail, "order held by screening");
            let left = u64::try_from(deadline.millis().saturating_sub(engine.now().millis())).unwrap_or(0);
            Beginning::Later(screening.ask_again.min(Duration::from_millis(left)), HELD)
        }
    })
}

/// The beneficiary, with the details of a registered one.
async fn beneficiary(engine: &Engine, execution: &Execution) -> Result<Option<Beneficiary>, EngineError> {
    let named = execution.terms.request.beneficiary.as_ref();
    let Some((beneficiary, destination)) = named.and_then(Beneficiary::reference) else {
        return Ok(named.cloned());
    };
    let partner = execution.terms.partner_id.as_str();
    let mut conn = engine.pool.acquire().await?;
    let found = beneficiaries::find_destinations(&mut conn, &[(partner, beneficiary, destination)]).await?;
    Ok(found.into_values().next().map(|found| found.details).or_else(|| named.cloned()))
}

/// Counts held orders until `stop` turns true.
pub(super) async fn count(engine: &Engine, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let counted = async {
            let mut conn = engine.pool.acquire().await?;
            Ok::<_, EngineError>(screenings::count_held(&mut conn).await?)
        };
        match counted.await {
            Ok(held) => gauge!("dvp_screening_held").set(u32::try_from(held).unwrap_or(u32::MAX)),
            Err(error) => warn!(%error, "held orders could not be counted, will retry"),
        }
        tokio::select! {
            () = tokio::time::sleep(COUNT_EVERY) => {}
            _ = stop.changed() => {}
        }
    }
}
