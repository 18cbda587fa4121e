//! Whether an order that ends before its beginning, or is held there, has begun out there: a restored database has
//! forgotten that. A chain tells it by its events, a desk or a bank by the reference of its call. Then the order goes on.
//!
//! Kept by `core/tests/it/restored.rs::an_order_that_its_bank_or_desk_knows_does_not_end_before_its_beginning`.

use std::time::Duration;

use dvp_domain::settlement::leg::RailResponse;
use dvp_domain::settlement::{Happened, State};
use dvp_rails::LegKind;
use dvp_store::orders::effects::Claimed;
use dvp_store::orders::executions::Execution;
use dvp_store::orders::rail_calls::RailCall;
use tracing::warn;

use super::Rails;
use super::call::{Call, Made, rail_request};
use crate::engine::knowledge::{
    HELD, KNOWN, NOT_READ, RESTS, has_begun_there, is_older, is_paid_there, knows_chain,
};
use crate::engine::{Engine, EngineError};
use crate::workflow::failed::Failed;
use crate::workflow::screened::Beginning;

/// The result that due work shows which waits for the word of a rail.
const NOT_ASKED: &str = "waits for the word of its rail";
const AGAIN: Duration = Duration::from_secs(1);

enum Begun {
    Yes,
    No,
    NotKnown(&'static str),
}

/// The beginning of an order as it is once chain and rails were asked, and what they were asked.
pub(super) async fn checked(
    engine: &Engine,
    rails: &Rails,
    execution: &Execution,
    claim: &Claimed,
    beginning: Beginning,
) -> Result<(Beginning, Vec<RailCall>), Failed> {
    let is_open = matches!(execution.state, State::Accepted | State::Resting);
    let is_in_question = match &beginning {
        Beginning::Now(happened) => *happened != Happened::LockDue,
        Beginning::Later(_, why) => *why == HELD || *why == RESTS && !execution.terms.locks(),
    };
    if !is_open || !is_in_question {
        return Ok((beginning, Vec::new()));
    }
    let mut made = Made::default();
    let begun = if execution.terms.locks() {
        locked_there(engine, execution).await?
    } else {
        called(engine, rails, execution, claim, &mut made).await?
    };
    let beginning = match begun {
        Begun::No => beginning,
        Begun::NotKnown(why) => Beginning::Later(AGAIN, why),
        // It is filled again first: by what its chain has, or by operators, since a rail does not say for which amounts.
        Begun::Yes if execution.state == State::Resting && execution.terms.locks() => {
            Beginning::Later(AGAIN, NOT_READ)
        }
        Begun::Yes if execution.state == State::Resting => return Err(Failed::Unwritable(KNOWN.to_owned())),
        Begun::Yes => {
            warn!("order has begun before the database was restored: it goes on");
            Beginning::Now(Happened::LockDue)
        }
    };
    Ok((beginning, made.calls))
}

async fn locked_there(engine: &Engine, execution: &Execution) -> Result<Begun, EngineError> {
    Ok(if has_begun_there(engine, execution).await? {
        Begun::Yes
    } else if is_older(engine, execution) && !knows_chain(engine, execution).await? {
        Begun::NotKnown(NOT_READ)
    } else {
        Begun::No
    })
}

/// What locks nothing has begun with a call of a rail, or with the payment of its tokens.
async fn called(
    engine: &Engine,
    rails: &Rails,
    execution: &Execution,
    claim: &Claimed,
    made: &mut Made,
) -> Result<Begun, Failed> {
    if !is_older(engine, execution) {
        return Ok(Begun::No);
    }
    let terms = &execution.terms;
    if terms.pays_on_chain() {
        if is_paid_there(engine, execution).await? {
            return Ok(Begun::Yes);
        }
        if !knows_chain(engine, execution).await? {
            return Ok(Begun::NotKnown(NOT_READ));
        }
    }
    let legs = [
        (LegKind::Offramp, &rails.offramp, terms.converts()),
        (LegKind::Payout, &rails.payout, !terms.pays_on_chain()),
    ];
    for (leg, used, _) in legs.into_iter().filter(|(_, _, is_called)| *is_called) {
        let rail = used.rail.as_ref();
        let call = Call { engine, rail, poll_max: used.poll_max, leg, claim, is_paused: false };
        match call.ask(&rail_request(execution, leg, claim.called_at)?, made).await {
            RailResponse::Answer(_) => return Ok(Begun::Yes),
            RailResponse::NeverSeen => {}
            RailResponse::Down | RailResponse::Silence => return Ok(Begun::NotKnown(NOT_ASKED)),
        }
    }
    Ok(Begun::No)
}
