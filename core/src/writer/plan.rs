//! A settlement's step as rows: its events with their snapshots, its effects, its postings.

use dvp_domain::asset::{Asset, AssetKind};
use dvp_domain::canonical::{canonical_sha256, hex32};
use dvp_domain::chain::{ChainCommand, CreateCommand, OutputArgs, PermitArgs, SwapCommand, TransferCommand};
use dvp_domain::event::EventType;
use dvp_domain::ids::EventId;
use dvp_domain::intent::Permit;
use dvp_domain::money::Minor;
use dvp_domain::receipt::{self, Receipt};
use dvp_domain::settlement::leg::LegKind;
use dvp_domain::settlement::{Effect, Emitted, State, Step};
use dvp_domain::snapshot::snapshot;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use dvp_domain::windows::LockTimes;
use dvp_store::StoreError;
use dvp_store::database::ids;
use dvp_store::orders::effects::EffectKind;
use dvp_store::orders::events::NewEvent;
use dvp_store::orders::executions::Execution;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::published_permits::PublishedPermit;
use dvp_store::orders::receipts::NewReceipt;
use serde_json::json;

use super::rows::Rows;
use crate::context::{ChainConfig, Context};

/// The record of a settlement: the version after the step, and the sequence of its last event before it.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub version: i64,
    pub last_sequence: i64,
    pub last_occurred_at: Timestamp,
    pub now: Timestamp,
}

/// Gathers the rows of a step. Returns the sequence of its last event.
pub(super) fn gather(
    context: &Context,
    rows: &mut Rows,
    terms: &Terms,
    step: &Step,
    at: At,
) -> Result<i64, StoreError> {
    let At { version, last_sequence, last_occurred_at, now } = at;
    let mut sequence = last_sequence;
    let occurred = step.occurred(last_occurred_at, now);
    // This process's clock may be behind that of the process that recorded the last event.
    let recorded_at = occurred.last().copied().unwrap_or(now).max(now);
    let last_at = occurred.last().copied().unwrap_or(last_occurred_at);
    for (reported, occurred_at) in step.events.iter().zip(occurred) {
        sequence = sequence.checked_add(1).ok_or_else(sequence_overflow)?;
        let times = Times { occurred_at, observed_at: recorded_at };
        rows.events.push(new_event(context, terms, reported, sequence, times)?);
    }
    let after = || Execution {
        terms: terms.clone(),
        state: step.next.clone(),
        version,
        last_sequence: sequence,
        last_occurred_at: last_at,
    };
    for effect in &step.effects {
        gather_effect(context, rows, (terms, &after), &step.next, effect, (version, recorded_at))?;
    }
    Ok(sequence)
}

/// The version or the event sequence of an execution would exceed `bigint`.
pub(super) fn sequence_overflow() -> StoreError {
    StoreError::corrupt("execution", "a version or sequence beyond bigint")
}

/// An event is recorded no earlier than it occurred (contract section 2.6).
struct Times {
    occurred_at: Timestamp,
    observed_at: Timestamp,
}

fn new_event(
    context: &Context,
    terms: &Terms,
    reported: &Emitted,
    sequence: i64,
    Times { occurred_at, observed_at }: Times,
) -> Result<NewEvent<String>, StoreError> {
    let object =
        snapshot(terms, &reported.state, reported.kind, |account| context.vault.account_hash(account));
    let kind: EventType = reported.kind;
    Ok(NewEvent {
        event_id: EventId::from_unique(ids::draw(context.cell)).into(),
        tenant: Tenant { partner_id: terms.partner_id.to_string(), livemode: terms.livemode },
        reference: terms.reference.to_string(),
        intent_id: terms.request.intent_id.clone(),
        client_reference: terms.request.client_reference.clone(),
        sequence,
        kind,
        occurred_at: occurred_at.to_utc(),
        observed_at: observed_at.to_utc(),
        object: serde_json::to_string(&object).map_err(|error| StoreError::corrupt("event", error))?,
    })
}

fn gather_effect(
    context: &Context,
    rows: &mut Rows,
    (terms, after): (&Terms, &impl Fn() -> Execution),
    next: &State,
    effect: &Effect,
    (version, now): (i64, Timestamp),
) -> Result<(), StoreError> {
    let reference = terms.reference.to_string();
    let (chain, payout_chain) = (context.chain_of(terms)?, context.payout_chain_of(terms)?);
    let chain_id = chain.chain_id;
    let due = |rows: &mut Rows, kind, at: Timestamp| rows.due(kind, &reference, [at, now], after);
    let on = |rows: &mut Rows, chain, command| rows.command(terms, chain, terms.entity.clone(), command);
    let order = |rows: &mut Rows, command| on(rows, chain, command);
    match effect {
        Effect::StartAt(at) => due(rows, EffectKind::Lock, *at),
        Effect::CallOfframp => due(rows, EffectKind::Offramp, now),
        Effect::CallPayout => due(rows, EffectKind::Payout, now),
        Effect::CreateOnChain => {
            order(rows, create_command(context, terms, now)?);
        }
        Effect::SwapOnChain => order(rows, swap_command(context, terms, now)?),
        Effect::Fill => {
            let payout_ref = hex32(&LegKind::Payout.reference(&terms.reference));
            let fill = ChainCommand::Fill { entity: terms.entity.clone(), payout_ref };
            order(rows, fill);
        }
        Effect::WithdrawLock => rows.locks_withdrawn.push(reference),
        Effect::WithdrawFill => rows.fills_withdrawn.push(reference),
        Effect::Settle => {
            let settle = ChainCommand::Settle { entity: terms.entity.clone(), preimage: None };
            order(rows, settle);
        }
        Effect::GiveBack => {
            let cancel = ChainCommand::Cancel { entity: terms.entity.clone() };
            order(rows, cancel);
        }
        Effect::IssueReceipt => issue_receipt(rows, (terms, chain), next, now),
        Effect::PublishPermit => rows.permits_published.extend(PublishedPermit::of(terms, chain_id)),
        Effect::DropTimers => rows.drop_timers(terms, chain_id, next),
        Effect::Rest => rows.rest(terms, chain)?,
        Effect::EndRest => rows.unrested.push(reference),
        Effect::BringForward(at) => rows.brought_forward.push((reference, at.to_utc())),
        Effect::TransferOnChain => {
            on(rows, payout_chain, transfer_command(context, terms, next, now)?);
        }
        Effect::SettleBy(at) => due(rows, EffectKind::Timelock, *at),
        Effect::Post(posting) => rows.post(&reference, version, posting)?,
    }
    Ok(())
}

fn create_command(context: &Context, terms: &Terms, now: Timestamp) -> Result<ChainCommand, StoreError> {
    let (token, permit) = input(context, terms)?;
    let LockTimes { lock_by, fill_deadline, timelock } = context.windows.of(terms, now);
    Ok(ChainCommand::Create(Box::new(CreateCommand {
        entity: terms.entity.clone(),
        maker: terms.request.user.clone(),
        solver: terms.plan.solver_wallet.clone(),
        token,
        amount: terms.input.amount.to_string(),
        lock_by,
        fill_deadline,
        timelock,
        hashlock: terms.hashlock.clone(),
        terms: agreed(terms, [terms.input.amount, terms.output.amount]),
        permit,
    })))
}

fn swap_command(context: &Context, terms: &Terms, now: Timestamp) -> Result<ChainCommand, StoreError> {
    let (token, permit) = input(context, terms)?;
    Ok(ChainCommand::Swap(Box::new(SwapCommand {
        entity: terms.entity.clone(),
        maker: terms.request.user.clone(),
        solver: terms.plan.solver_wallet.clone(),
        token,
        amount: terms.input.amount.to_string(),
        lock_by: context.windows.of(terms, now).lock_by,
        terms: agreed(terms, [terms.input.amount, terms.output.amount]),
        output: output_token(context, terms)?,
        permit,
    })))
}

/// The token of the input, and the permit that it is pulled with. Without one it is a chain's coin, which the user
/// deposits.
fn input(context: &Context, terms: &Terms) -> Result<(String, Option<PermitArgs>), StoreError> {
    if let Some(permit) = &terms.request.permit {
        return Ok((permit.token.clone(), Some(permit_args(permit))));
    }
    match context.registry.find(&terms.input.asset).map(|asset| &asset.kind) {
        Some(AssetKind::Native { wrapped, .. }) => Ok((wrapped.clone(), None)),
        Some(AssetKind::Erc20 { .. } | AssetKind::Fiat { .. }) | None => {
            Err(StoreError::corrupt("execution", "an on-chain input without a permit"))
        }
    }
}

fn permit_args(permit: &Permit) -> PermitArgs {
    PermitArgs {
        amount: permit.amount_minor.to_string(),
        nonce: permit.nonce.to_string(),
        deadline: permit.deadline,
        signature: permit.signature.clone(),
    }
}

/// The hash of the terms with these amounts, which the chain stores with the order.
pub(crate) fn agreed(terms: &Terms, [input, output]: [Minor; 2]) -> String {
    hex32(&canonical_sha256(&json!({
        "reference": terms.reference.as_str(),
        "input": {"asset": terms.input.asset, "amountMinor": input},
        "output": {"asset": terms.output.asset, "amountMinor": output},
    })))
}

pub(crate) fn output_token(context: &Context, terms: &Terms) -> Result<OutputArgs, StoreError> {
    let Some(token) = context.registry.find(&terms.output.asset).and_then(Asset::paid_as) else {
        return Err(StoreError::corrupt("execution", "an on-chain output that is no token"));
    };
    let no_wallet = || StoreError::corrupt("execution", "an on-chain output to no wallet");
    Ok(OutputArgs {
        token: token.to_owned(),
        receiver: terms.request.delivery_wallet().ok_or_else(no_wallet)?.to_owned(),
        amount: terms.output.amount.to_string(),
    })
}

fn transfer_command(
    context: &Context,
    terms: &Terms,
    next: &State,
    now: Timestamp,
) -> Result<ChainCommand, StoreError> {
    let OutputArgs { token, receiver, amount } = output_token(context, terms)?;
    Ok(ChainCommand::Transfer(Box::new(TransferCommand {
        entity: terms.entity.clone(),
        payer: terms.plan.solver_wallet.clone(),
        receiver,
        token,
        amount,
        not_after: context.windows.pay_by(next.lock(), now),
    })))
}

/// The receipt's hash is anchored on the order's chain.
fn issue_receipt(rows: &mut Rows, (terms, chain): (&Terms, &ChainConfig), next: &State, now: Timestamp) {
    let State::Completed { offramp, payout, .. } = next else { return };
    let (receipt, issued_at) =
        unlike(&rows.receipts, now, |at| receipt::issue(terms, offramp.as_ref(), payout, at));
    let content_hash = receipt.content_hash.clone();
    rows.command(terms, chain, content_hash.clone(), ChainCommand::Anchor { content_hash });
    rows.receipts.push((terms.reference.to_string(), receipt, issued_at));
}

/// A receipt that differs from the others of its batch: equal orders that one transaction has settled are issued a
/// millisecond apart.
fn unlike(
    others: &[NewReceipt],
    now: Timestamp,
    issue: impl Fn(Timestamp) -> Receipt,
) -> (Receipt, Timestamp) {
    let mut at = now;
    loop {
        let receipt = issue(at);
        if others.iter().all(|(_, other, _)| other.content_hash != receipt.content_hash) {
            return (receipt, at);
        }
        at = at.plus_millis(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_receipts_of_a_batch_are_issued_a_millisecond_apart() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let of = |order: &str, at: Timestamp| Receipt {
            body: json!({}),
            content_hash: format!("{order} at {}", at.millis()),
        };
        let mut issued: Vec<NewReceipt> = Vec::new();
        for (order, after) in [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1)] {
            let (receipt, at) = unlike(&issued, now, |at| of(order, at));
            assert_eq!((&receipt, at), (&of(order, at), now.plus_millis(after)));
            issued.push((order.to_owned(), receipt, at));
        }
    }
}
