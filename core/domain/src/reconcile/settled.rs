//! An execution of ours against what the chain says of it.

use super::{Action, Booked, BreakKind, EscrowState, Found, Moment, Receipted, SettlerState, give_back};
use crate::settlement::{Finality, Lock, State};

/// What an execution claims.
struct Claim<'a> {
    /// The lock it counts on.
    lock: Option<&'a Lock>,
    /// The beneficiary was paid.
    paid: bool,
    /// It ended with funds in the escrow that are nobody's price any more.
    gave_up: bool,
}

fn claim(state: &State) -> Claim<'_> {
    let (lock, paid, gave_up) = match state {
        State::Accepted | State::Locking | State::Cancelled | State::Expired | State::Failed { .. } => {
            (None, false, false)
        }
        State::Converting { lock, .. } | State::Paying { lock, .. } => (lock.as_ref(), false, false),
        State::Releasing { lock, .. } => (Some(lock), true, false),
        State::Completed { lock, .. } => (lock.as_ref(), true, false),
        State::ConversionFailed { lock, .. } | State::PayoutFailed { lock, .. } => {
            (lock.as_ref(), false, true)
        }
    };
    Claim { lock, paid, gave_up }
}

pub(super) fn judge(found: &mut Found<'_>, booked: &Booked, moment: &Moment) {
    let claim = claim(&booked.state);
    locks(found, booked, &claim, moment);
    amounts(found, booked);
    payment(found, booked, &claim, moment);
    anchor(found, booked, moment);
    open_funds(found, booked, &claim, moment);
    idle(found, booked, moment);
}

fn locks(found: &mut Found<'_>, booked: &Booked, claim: &Claim<'_>, moment: &Moment) {
    let now = found.subject.kept.now;
    let there = now.settler != SettlerState::None && now.escrow != EscrowState::None;
    if claim.lock.is_some() && !there {
        let detail = format!("{}, and the chain has no lock", booked.state.name());
        found.add(BreakKind::ExecutionWithoutLock, Action::Page, detail);
    }
    // A lock that is being made may be there before we know.
    let expects = claim.lock.is_some() || matches!(booked.state, State::Locking);
    if !expects && (now.settler != SettlerState::None || now.escrow != EscrowState::None) {
        let action = give_back(found.subject, moment).unwrap_or(Action::Page);
        let detail = format!("{}, and the chain has {now:?}", booked.state.name());
        found.add(BreakKind::LockWithoutExecution, action, detail);
    }
}

fn amounts(found: &mut Found<'_>, booked: &Booked) {
    let kept = &found.subject.kept;
    let told = |amount: Option<_>, agreed| amount.filter(|amount| *amount != agreed);
    let (input, output) = (booked.terms.input.amount, booked.terms.output.amount);
    let slot = found.subject.contracts.as_ref();
    let slot = slot.filter(|slot| slot.state.escrow != EscrowState::None).map(|slot| slot.amount);
    if let Some(amount) = told(kept.locked, input).or(told(slot, input)) {
        let detail = format!("{amount} is locked where {input} was agreed");
        found.add(BreakKind::AmountMismatch, Action::Page, detail);
    }
    if let Some(amount) = told(kept.paid, output) {
        let detail = format!("{amount} was paid out where {output} was agreed");
        found.add(BreakKind::AmountMismatch, Action::Page, detail);
    }
}

fn payment(found: &mut Found<'_>, booked: &Booked, claim: &Claim<'_>, moment: &Moment) {
    let now = found.subject.kept.now;
    let released = now.settler == SettlerState::Settled || now.escrow == EscrowState::Released;
    let completed = matches!(booked.state, State::Completed { .. });
    // An absent lock has been said already.
    let locked = claim.lock.is_some() && now.settler != SettlerState::None;
    let late = completed || moment.idle_since(booked.changed_at, moment.patience.settle_ms);
    if claim.paid && locked && now.settler != SettlerState::Settled && late {
        let gone = now.escrow == EscrowState::Refunded;
        let (action, detail) = if gone {
            (Action::Page, "paid, and the locked funds went back to the wallet".to_owned())
        } else {
            (Action::Settle, format!("paid, and on the chain it is {:?}", now.settler))
        };
        found.add(BreakKind::PaidNotSettled, action, detail);
    }
    if released && claim.lock.is_some() && !claim.paid {
        let detail = format!("the funds were released, and the order is {}", booked.state.name());
        found.add(BreakKind::SettledNotPaid, Action::Page, detail);
    }
    let pays = booked.terms.pays_on_chain();
    if pays && completed && !now.paid_out {
        let detail = "completed, and the chain has no payout";
        found.add(BreakKind::SettledNotPaid, Action::Page, detail);
    }
    let given_up = matches!(
        booked.state,
        State::ConversionFailed { .. }
            | State::PayoutFailed { .. }
            | State::Cancelled
            | State::Expired
            | State::Failed { .. }
    );
    if pays && given_up && now.paid_out {
        let detail = format!("tokens were paid out, and the order is {}", booked.state.name());
        found.add(BreakKind::PaidNotSettled, Action::Page, detail);
    }
}

fn anchor(found: &mut Found<'_>, booked: &Booked, moment: &Moment) {
    let State::Completed { finality, .. } = &booked.state else { return };
    let Some(receipt) = &booked.receipt else {
        return found.add(BreakKind::AnchorMissing, Action::Page, "completed without a receipt");
    };
    if let Some(detail) = differs(receipt, finality.as_ref()) {
        return found.add(BreakKind::AnchorMismatch, Action::Page, detail);
    }
    let late = moment.idle_since(booked.changed_at, moment.patience.anchor_ms);
    if receipt.anchor.is_none() && (finality.is_some() || late) {
        let action = if finality.is_some() { Action::Page } else { Action::Anchor };
        let detail = format!("the chain has no anchor of {}", receipt.content_hash);
        found.add(BreakKind::AnchorMissing, action, detail);
    }
}

fn differs(receipt: &Receipted, finality: Option<&Finality>) -> Option<String> {
    let Receipted { content_hash, computed_hash, anchor } = receipt;
    if computed_hash != content_hash {
        return Some(format!("the receipt hashes to {computed_hash}, {content_hash} was anchored"));
    }
    let (finality, anchor) = (finality?, anchor.as_ref()?);
    let same_contract = finality.contract_address.eq_ignore_ascii_case(&anchor.contract);
    if finality.tx_hash == anchor.tx_hash && same_contract {
        return None;
    }
    let (told, place) = (&finality.tx_hash, &finality.contract_address);
    let (seen, where_seen) = (&anchor.tx_hash, &anchor.contract);
    Some(format!("the receipt says {told} at {place}, the chain {seen} at {where_seen}"))
}

fn open_funds(found: &mut Found<'_>, booked: &Booked, claim: &Claim<'_>, moment: &Moment) {
    let subject = found.subject;
    let locked = subject.kept.now.escrow == EscrowState::Locked && claim.lock.is_some();
    let Some(contracts) = subject.contracts.as_ref().filter(|_| locked) else { return };
    match give_back(subject, moment) {
        Some(Action::Cancel) if !claim.gave_up => {}
        Some(action) => {
            let detail = format!("{}, and the funds are still locked", booked.state.name());
            return found.add(BreakKind::RefundDue, action, detail);
        }
        None => {}
    }
    let margin = u64::try_from(moment.patience.expiring_ms / 1000).unwrap_or(0);
    if !claim.gave_up && moment.chain_secs().saturating_add(margin) >= contracts.timelock {
        let left = contracts.timelock.saturating_sub(moment.chain_secs());
        let action = if claim.paid { Action::Settle } else { Action::Resolve };
        let detail = format!("{}, and the timelock ends in {left} s", booked.state.name());
        found.add(BreakKind::TimelockExpiring, action, detail);
    }
}

/// Nothing happens any more, and nothing said so far is the reason.
fn idle(found: &mut Found<'_>, booked: &Booked, moment: &Moment) {
    if booked.state.is_terminal() || !found.breaks.is_empty() {
        return;
    }
    let waits_until = match &booked.state {
        State::Accepted => booked.terms.lock_at.min(booked.terms.request.deadline).max(booked.changed_at),
        State::Locking
        | State::Converting { .. }
        | State::Paying { .. }
        | State::Releasing { .. }
        | State::Completed { .. }
        | State::ConversionFailed { .. }
        | State::PayoutFailed { .. }
        | State::Cancelled
        | State::Expired
        | State::Failed { .. } => booked.changed_at,
    };
    // A failed command is told to an execution that is not paid yet, which then ends.
    let failed = booked.failed_command.as_deref().filter(|_| matches!(booked.state, State::Releasing { .. }));
    if failed.is_some() || moment.idle_since(waits_until, moment.patience.idle_ms) {
        let why = failed.map_or_else(
            || format!("nothing since {}", booked.changed_at.iso8601()),
            |kind| format!("the command {kind} can never succeed"),
        );
        let action = match &booked.state {
            State::Converting { .. } | State::Paying { .. } => Action::Resolve,
            _ => Action::Page,
        };
        found.add(BreakKind::Stuck, action, format!("{}, and {why}", booked.state.name()));
    }
}
