//! The comparison of an execution with the chain.

use super::{
    BankWord, Booked, BreakKind, EscrowState, Findings, Moment, OpenRecall, Receipted, SettlerState,
    SuggestedAction, give_back,
};
use crate::recall::{ACCEPTED_AFTER_REJECTED, NEVER_REQUESTED, REJECTED_AFTER_ACCEPTED, RecallStatus};
use crate::settlement::leg::LegKind;
use crate::settlement::{DeskOutcome, Finality, Lock, Position, State};
use crate::terms::Terms;
use crate::time::Timestamp;
use crate::windows::PayoutTime;

/// What an execution's state requires of the contracts.
struct Expectation<'a> {
    lock: Option<&'a Lock>,
    /// The chain is committed to the payout.
    committed: bool,
    paid: bool,
    /// It ended while the escrow holds funds that are due to the maker.
    gave_up: bool,
}

fn expectation(state: &State) -> Expectation<'_> {
    let lock = state.lock();
    let (committed, paid, gave_up) = match state {
        State::Resting
        | State::Accepted
        | State::Locking
        | State::Cancelled
        | State::Expired
        | State::Failed { .. }
        | State::Converting { .. }
        | State::Committing { .. } => (false, false, false),
        State::Paying { .. } | State::Owing { .. } => (true, false, false),
        State::Releasing { .. } | State::Completed { .. } => (true, true, false),
        State::ConversionFailed { .. } | State::PayoutFailed { .. } => (false, false, true),
    };
    Expectation { lock, committed: committed && lock.is_some_and(Lock::holds), paid, gave_up }
}

pub(super) fn judge(found: &mut Findings<'_>, booked: &Booked, moment: &Moment) {
    let expected = expectation(&booked.state);
    if booked.is_locked_elsewhere {
        return paid_here(found, booked);
    }
    locks(found, booked, &expected, moment);
    amounts(found, booked);
    terms(found, booked);
    payment(found, booked, &expected, moment);
    bank(found, booked);
    reversal(found, booked);
    position(found, booked);
    recall(found, booked, moment);
    anchor(found, booked, moment);
    open_funds(found, booked, &expected, moment);
    idle(found, booked, moment);
}

fn locks(found: &mut Findings<'_>, booked: &Booked, expected: &Expectation<'_>, moment: &Moment) {
    let now = found.subject.kept.now;
    // A swap holds no funds.
    let held = booked.terms.swaps() || now.escrow != EscrowState::None;
    let there = now.settler != SettlerState::None && held;
    if expected.lock.is_some() && !there {
        let detail = format!("{}, and the chain has no lock", booked.state.name());
        found.add(BreakKind::ExecutionWithoutLock, SuggestedAction::Page, detail);
    }
    if there && expected.committed && now.settler == SettlerState::Created {
        let detail = format!("{}, and the chain is not committed to the payout", booked.state.name());
        found.add(BreakKind::ExecutionWithoutLock, SuggestedAction::Page, detail);
    }
    // A lock that was requested may be on the chain before its event is processed.
    let expects = expected.lock.is_some() || matches!(booked.state, State::Locking);
    if !expects && (now.settler != SettlerState::None || now.escrow != EscrowState::None) {
        let action = give_back(found.subject, moment).unwrap_or(SuggestedAction::Page);
        let detail = format!("{}, and the chain has {now:?}", booked.state.name());
        found.add(BreakKind::LockWithoutExecution, action, detail);
    }
}

/// An order whose lock is on another chain, which has the rest of it: here is its payment.
fn paid_here(found: &mut Findings<'_>, booked: &Booked) {
    let now = found.subject.kept.now;
    if now.settler != SettlerState::None || now.escrow != EscrowState::None {
        let detail = format!("{}, locked on another chain, and this one has {now:?}", booked.state.name());
        found.add(BreakKind::LockWithoutExecution, SuggestedAction::Page, detail);
    }
    amounts(found, booked);
    terms(found, booked);
    paid_out(found, booked);
}

fn amounts(found: &mut Findings<'_>, booked: &Booked) {
    let kept = &found.subject.kept;
    let reported = |amount: Option<_>, agreed| amount.filter(|amount| *amount != agreed);
    let (input, output) = (booked.terms.input.amount, booked.terms.output.amount);
    let slot = found.subject.contracts.as_ref();
    let slot = slot.and_then(|slot| slot.lock.as_ref()).map(|held| held.amount);
    if let Some(amount) = reported(kept.locked, input).or(reported(slot, input)) {
        let detail = format!("{amount} is locked where {input} was agreed");
        found.add(BreakKind::AmountMismatch, SuggestedAction::Page, detail);
    }
    if let Some(amount) = reported(kept.paid, output) {
        let detail = format!("{amount} was paid out where {output} was agreed");
        found.add(BreakKind::AmountMismatch, SuggestedAction::Page, detail);
    }
}

fn terms(found: &mut Findings<'_>, booked: &Booked) {
    if let Some(detail) = &booked.differing_fact {
        found.add(BreakKind::TermsMismatch, SuggestedAction::Page, detail.clone());
    }
}

fn payment(found: &mut Findings<'_>, booked: &Booked, expected: &Expectation<'_>, moment: &Moment) {
    let now = found.subject.kept.now;
    let released = now.settler == SettlerState::Settled || now.escrow == EscrowState::Released;
    let completed = matches!(booked.state, State::Completed { .. });
    // A missing lock was reported above.
    let locked = expected.lock.is_some() && now.settler != SettlerState::None;
    let late = completed || moment.idle_since(booked.changed_at, moment.patience.settle_ms);
    if expected.paid && locked && now.settler != SettlerState::Settled && late {
        let gone = now.escrow == EscrowState::Refunded;
        let (action, detail) = if gone {
            (SuggestedAction::Page, "paid, and the locked funds were returned to the wallet".to_owned())
        } else {
            (SuggestedAction::Settle, format!("paid, and on the chain it is {:?}", now.settler))
        };
        found.add(BreakKind::PaidNotSettled, action, detail);
    }
    // Tokens are paid out and the funds released in one transaction, before either fact reaches the execution.
    let returned = matches!(booked.state, State::PayoutFailed { debt_returned: Some(_), .. });
    if released && expected.lock.is_some() && !expected.paid && !now.paid_out && !returned {
        let (action, detail) = match &booked.state {
            State::Owing { failure: None, .. } => {
                (SuggestedAction::Resolve, "and the payout has no final answer")
            }
            State::Owing { .. } => {
                (SuggestedAction::Page, "and the payout failed: the input has to be returned")
            }
            _ => (SuggestedAction::Page, "and the beneficiary was not paid"),
        };
        let detail = format!("{}: the funds were released, {detail}", booked.state.name());
        found.add(BreakKind::SettledNotPaid, action, detail);
    }
    // The other chain is compared with the payment.
    if !booked.terms.crosses() {
        paid_out(found, booked);
    }
}

/// A payment in tokens.
fn paid_out(found: &mut Findings<'_>, booked: &Booked) {
    let now = found.subject.kept.now;
    let pays = booked.terms.pays_on_chain();
    if pays && matches!(booked.state, State::Completed { .. } | State::Releasing { .. }) && !now.paid_out {
        let detail = format!("{}, and the chain has no payout", booked.state.name());
        found.add(BreakKind::SettledNotPaid, SuggestedAction::Page, detail);
    }
    let given_up = matches!(
        booked.state,
        State::ConversionFailed { .. }
            | State::PayoutFailed { .. }
            | State::Owing { failure: Some(_), .. }
            | State::Cancelled
            | State::Expired
            | State::Failed { .. }
    );
    if pays && given_up && now.paid_out {
        let detail = format!("tokens were paid out, and the order is {}", booked.state.name());
        found.add(BreakKind::PaidNotSettled, SuggestedAction::Page, detail);
    }
}

/// A payment that the bank and the execution record differently: money is lost, or is owed and missing.
fn bank(found: &mut Findings<'_>, booked: &Booked) {
    let detail = match (booked.bank, booked.state.taken_for_paid()) {
        (Some(BankWord::Paid | BankWord::PaidAgain), Some(false)) => {
            "the bank has paid, and the payout is recorded as failed"
        }
        (Some(BankWord::PaidAgain), Some(true)) => {
            "the bank has paid after the debt was recorded as paid, perhaps another way"
        }
        (Some(BankWord::TakenBack), Some(false)) => {
            "the bank took the payment's return back, and the payout is recorded as failed"
        }
        (Some(BankWord::TakenBack), _) if !stands(&booked.state) => {
            "the bank took the payment's return back: the payment stands"
        }
        (Some(BankWord::Refused), Some(true)) => "the bank has refused, and the payout is recorded as paid",
        (Some(BankWord::Paid | BankWord::PaidAgain | BankWord::TakenBack | BankWord::Refused) | None, _) => {
            return;
        }
    };
    let detail = format!("{}: {detail}", booked.state.name());
    found.add(BreakKind::DecisionContradicted, SuggestedAction::Page, detail);
}

/// Whether operators have recorded that a payment stands whose return the bank took back, or nothing came back.
fn stands(state: &State) -> bool {
    match state {
        State::Completed { reversal: Some(reversal), .. } => reversal.stands(),
        _ => true,
    }
}

/// A returned payment's output is owed until operators have resolved it.
fn reversal(found: &mut Findings<'_>, booked: &Booked) {
    if let State::Completed { reversal: Some(reversal), .. } = &booked.state
        && reversal.resolved.is_none()
    {
        let detail =
            format!("the bank returned the payment ({}), and its output is owed", reversal.failure.code);
        found.add(BreakKind::PaymentReturned, SuggestedAction::Resolve, detail);
    }
}

/// What the desk has bought for an order that did not use it is the house's risk until operators have recorded its end.
fn position(found: &mut Findings<'_>, booked: &Booked) {
    let Some(position) = booked.state.open_position() else { return };
    let Terms { input, output, plan, .. } = &booked.terms;
    let detail = format!(
        "{}: {} {} of {} for {} of {}",
        booked.state.name(),
        if position == Position::Short { "the order has used what was taken over," } else { "not used," },
        plan.priced.gross_output,
        output.asset,
        plan.priced.net_input(),
        input.asset
    );
    found.add(BreakKind::ConvertedNotUsed, SuggestedAction::Resolve, detail);
}

/// A recall moves no money: what the bank has accepted has to come back as a return.
fn recall(found: &mut Findings<'_>, booked: &Booked, moment: &Moment) {
    let Some(OpenRecall { status, since, is_contradicted }) = booked.recall else { return };
    if is_contradicted || status == RecallStatus::Unrequested {
        let detail = match status {
            RecallStatus::Unrequested => NEVER_REQUESTED,
            RecallStatus::Rejected => ACCEPTED_AFTER_REJECTED,
            _ => REJECTED_AFTER_ACCEPTED,
        };
        return found.add(BreakKind::RecallContradicted, SuggestedAction::Page, detail);
    }
    let late = |patience_ms| moment.idle_since(since, patience_ms);
    let name = status.as_str();
    match status {
        RecallStatus::Approved | RecallStatus::Sent | RecallStatus::Pending
            if late(moment.patience.recall_answer_ms) =>
        {
            let detail = format!("the recall of {} is {name}, and the bank has not decided", since.iso8601());
            found.add(BreakKind::RecallUnanswered, SuggestedAction::AskBank, detail);
        }
        RecallStatus::Accepted if !is_back(booked) && late(moment.patience.recall_return_ms) => {
            let detail = format!(
                "the bank accepted the recall at {}, and the payment has not come back",
                since.iso8601()
            );
            found.add(BreakKind::RecallNotReturned, SuggestedAction::AskBank, detail);
        }
        RecallStatus::Approved
        | RecallStatus::Sent
        | RecallStatus::Pending
        | RecallStatus::Accepted
        | RecallStatus::Rejected
        | RecallStatus::Recalled
        | RecallStatus::NotNeeded
        | RecallStatus::Withdrawn
        | RecallStatus::Unrequested => {}
    }
}

/// The order ended unpaid, and the bank does not say otherwise, or its payment was returned.
fn is_back(booked: &Booked) -> bool {
    let is_unpaid = booked.state.taken_for_paid() == Some(false)
        && !matches!(booked.bank, Some(BankWord::Paid | BankWord::PaidAgain | BankWord::TakenBack));
    is_unpaid || matches!(booked.state, State::Completed { reversal: Some(_), .. })
}

fn anchor(found: &mut Findings<'_>, booked: &Booked, moment: &Moment) {
    let State::Completed { finality, .. } = &booked.state else { return };
    let Some(receipt) = &booked.receipt else {
        return found.add(BreakKind::AnchorMissing, SuggestedAction::Page, "completed without a receipt");
    };
    if let Some(detail) = differs(receipt, finality.as_ref()) {
        return found.add(BreakKind::AnchorMismatch, SuggestedAction::Page, detail);
    }
    let late = moment.idle_since(booked.changed_at, moment.patience.anchor_ms);
    if receipt.anchor.is_none() && (finality.is_some() || late) {
        let action = if finality.is_some() { SuggestedAction::Page } else { SuggestedAction::Anchor };
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
    let (reported, place) = (&finality.tx_hash, &finality.contract_address);
    let (seen, where_seen) = (&anchor.tx_hash, &anchor.contract);
    Some(format!("the receipt says {reported} at {place}, the chain {seen} at {where_seen}"))
}

fn open_funds(found: &mut Findings<'_>, booked: &Booked, expected: &Expectation<'_>, moment: &Moment) {
    let subject = found.subject;
    let locked = subject.kept.now.escrow == EscrowState::Locked && expected.lock.is_some();
    let held = subject.contracts.as_ref().filter(|_| locked).and_then(|contracts| contracts.lock.as_ref());
    let Some(held) = held else { return };
    let name = booked.state.name();
    // Nothing is given back: the contradiction was reported above.
    if expected.gave_up && matches!(booked.bank, Some(BankWord::Paid | BankWord::PaidAgain)) {
        return;
    }
    // The relayer has some time to return an uncommitted lock.
    let given = u64::try_from(moment.patience.settle_ms / 1000).unwrap_or(0);
    let late = moment.chain_secs() > booked.changed_at.unix_secs().saturating_add(given);
    if expected.gave_up && late {
        let now = subject.kept.now.settler;
        let action = give_back(subject, moment).unwrap_or(match now {
            SettlerState::Created => SuggestedAction::Cancel,
            SettlerState::None | SettlerState::Filled | SettlerState::Settled | SettlerState::Cancelled => {
                SuggestedAction::Return
            }
        });
        return found.add(BreakKind::RefundDue, action, format!("{name}, and the funds are still locked"));
    }
    match give_back(subject, moment) {
        // A live order that is about to end, or whose commitment is on its way.
        Some(SuggestedAction::Cancel)
            if !expected.gave_up && moment.chain_secs() < held.fill_deadline.saturating_add(given) => {}
        Some(SuggestedAction::Cancel) if !expected.gave_up => {
            let since = moment.chain_secs().saturating_sub(held.fill_deadline);
            let detail = format!("{name}, and any account has been able to cancel the lock for {since} s");
            return found.add(BreakKind::TimelockExpiring, SuggestedAction::Resolve, detail);
        }
        Some(action) => {
            return found.add(
                BreakKind::RefundDue,
                action,
                format!("{name}, and the funds are still locked"),
            );
        }
        None => {}
    }
    let overdue = expected.lock.is_some_and(|lock| moment.now >= lock.deadlines.overdue_at);
    let margin = u64::try_from(moment.patience.expiring_ms / 1000).unwrap_or(0);
    if !expected.gave_up && (overdue || moment.chain_secs().saturating_add(margin) >= held.timelock) {
        let left = held.timelock.saturating_sub(moment.chain_secs());
        let action = match booked.state {
            State::Releasing { .. } | State::Owing { .. } => SuggestedAction::Settle,
            _ => SuggestedAction::Resolve,
        };
        found.add(BreakKind::TimelockExpiring, action, format!("{name}, and the timelock ends in {left} s"));
    }
}

/// The latest time by which a bank that has the payment pays.
fn paid_by(booked: &Booked) -> Option<Timestamp> {
    let beneficiary = booked.terms.request.beneficiary.as_ref();
    let method = beneficiary.and_then(|beneficiary| beneficiary.payout_method);
    let since = booked.with_bank_since?.unix_secs();
    let by = i64::try_from(PayoutTime::BusinessDays.ends_by(method, since)).ok()?;
    Some(Timestamp::from_millis(by.saturating_mul(1_000)))
}

/// No change for too long, and no break found so far explains it.
fn idle(found: &mut Findings<'_>, booked: &Booked, moment: &Moment) {
    let is_over = booked.state.is_terminal() && !booked.state.awaits(LegKind::Offramp);
    if is_over || !found.breaks.is_empty() {
        return;
    }
    let waits_until = match &booked.state {
        State::Resting => booked.terms.request.deadline.max(booked.changed_at),
        State::Accepted => booked.terms.lock_at.min(booked.terms.request.deadline).max(booked.changed_at),
        // A bank's processing time is known.
        State::Paying { lock: Some(lock), .. } => lock.deadlines.overdue_at,
        State::Paying { lock: None, .. } => paid_by(booked).unwrap_or(booked.changed_at),
        State::Locking
        | State::Converting { .. }
        | State::Committing { .. }
        | State::Owing { .. }
        | State::Releasing { .. }
        | State::Completed { .. }
        | State::ConversionFailed { .. }
        | State::PayoutFailed { .. }
        | State::Cancelled
        | State::Expired
        | State::Failed { .. } => booked.changed_at,
    };
    let patience_ms = match &booked.state {
        State::Converting { .. } | State::ConversionFailed { desk: DeskOutcome::Asked(_), .. } => {
            moment.patience.convert_ms
        }
        State::Paying { .. } => moment.patience.pay_ms,
        State::Resting
        | State::Accepted
        | State::Locking
        | State::Committing { .. }
        | State::Owing { .. }
        | State::Releasing { .. }
        | State::Completed { .. }
        | State::ConversionFailed { .. }
        | State::PayoutFailed { .. }
        | State::Cancelled
        | State::Expired
        | State::Failed { .. } => moment.patience.idle_ms,
    };
    // A failed command ends an execution that is not paid yet.
    let failed = booked.failed_command.as_deref().filter(|_| matches!(booked.state, State::Releasing { .. }));
    if failed.is_some() || moment.idle_since(waits_until, patience_ms) {
        let why = failed.map_or_else(
            || format!("nothing since {}", booked.changed_at.iso8601()),
            |kind| format!("the command {kind} can never succeed"),
        );
        let action = match &booked.state {
            State::Converting { .. } | State::Paying { .. } | State::ConversionFailed { .. } => {
                SuggestedAction::Resolve
            }
            _ => SuggestedAction::Page,
        };
        found.add(BreakKind::Stuck, action, format!("{}, and {why}", booked.state.name()));
    }
}
