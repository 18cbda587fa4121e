//! An execution of ours against what the chain says of it.

use super::{
    BankWord, Booked, BreakKind, EscrowState, Findings, Moment, Receipted, SettlerState, SuggestedAction,
    give_back,
};
use crate::settlement::{Finality, Lock, State};
use crate::time::Timestamp;
use crate::windows::PayoutTime;

/// What an execution's state expects of the contracts.
struct Expectation<'a> {
    /// The lock it counts on.
    lock: Option<&'a Lock>,
    /// The chain is committed to the payout.
    committed: bool,
    /// The beneficiary was paid.
    paid: bool,
    /// It ended with funds in the escrow that are nobody's price any more.
    gave_up: bool,
}

fn expectation(state: &State) -> Expectation<'_> {
    let lock = state.lock();
    let (committed, paid, gave_up) = match state {
        State::Accepted
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
    locks(found, booked, &expected, moment);
    amounts(found, booked);
    terms(found, booked);
    payment(found, booked, &expected, moment);
    bank(found, booked);
    reversal(found, booked);
    anchor(found, booked, moment);
    open_funds(found, booked, &expected, moment);
    idle(found, booked, moment);
}

fn locks(found: &mut Findings<'_>, booked: &Booked, expected: &Expectation<'_>, moment: &Moment) {
    let now = found.subject.kept.now;
    // A swap holds nothing.
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
    // A lock that is being made may be there before we know.
    let expects = expected.lock.is_some() || matches!(booked.state, State::Locking);
    if !expects && (now.settler != SettlerState::None || now.escrow != EscrowState::None) {
        let action = give_back(found.subject, moment).unwrap_or(SuggestedAction::Page);
        let detail = format!("{}, and the chain has {now:?}", booked.state.name());
        found.add(BreakKind::LockWithoutExecution, action, detail);
    }
}

fn amounts(found: &mut Findings<'_>, booked: &Booked) {
    let kept = &found.subject.kept;
    let told = |amount: Option<_>, agreed| amount.filter(|amount| *amount != agreed);
    let (input, output) = (booked.terms.input.amount, booked.terms.output.amount);
    let slot = found.subject.contracts.as_ref();
    let slot = slot.and_then(|slot| slot.lock.as_ref()).map(|held| held.amount);
    if let Some(amount) = told(kept.locked, input).or(told(slot, input)) {
        let detail = format!("{amount} is locked where {input} was agreed");
        found.add(BreakKind::AmountMismatch, SuggestedAction::Page, detail);
    }
    if let Some(amount) = told(kept.paid, output) {
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
    // An absent lock has been said already.
    let locked = expected.lock.is_some() && now.settler != SettlerState::None;
    let late = completed || moment.idle_since(booked.changed_at, moment.patience.settle_ms);
    if expected.paid && locked && now.settler != SettlerState::Settled && late {
        let gone = now.escrow == EscrowState::Refunded;
        let (action, detail) = if gone {
            (SuggestedAction::Page, "paid, and the locked funds went back to the wallet".to_owned())
        } else {
            (SuggestedAction::Settle, format!("paid, and on the chain it is {:?}", now.settler))
        };
        found.add(BreakKind::PaidNotSettled, action, detail);
    }
    // Tokens are paid out and the funds released in one transaction, before the execution is told of either.
    let returned = matches!(booked.state, State::PayoutFailed { debt_returned: Some(_), .. });
    if released && expected.lock.is_some() && !expected.paid && !now.paid_out && !returned {
        let (action, detail) = match &booked.state {
            State::Owing { failure: None, .. } => {
                (SuggestedAction::Resolve, "and the payout has no final word")
            }
            State::Owing { .. } => {
                (SuggestedAction::Page, "and the payout failed: the input is to be given back")
            }
            _ => (SuggestedAction::Page, "and nobody was paid"),
        };
        let detail = format!("{}: the funds were released, {detail}", booked.state.name());
        found.add(BreakKind::SettledNotPaid, action, detail);
    }
    let pays = booked.terms.pays_on_chain();
    if pays && completed && !now.paid_out {
        let detail = "completed, and the chain has no payout";
        found.add(BreakKind::SettledNotPaid, SuggestedAction::Page, detail);
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
        found.add(BreakKind::PaidNotSettled, SuggestedAction::Page, detail);
    }
}

/// A payment cannot be paid and not paid: money is gone twice, or was promised and is not there.
fn bank(found: &mut Findings<'_>, booked: &Booked) {
    let detail = match (booked.bank, booked.state.taken_for_paid()) {
        (Some(BankWord::Paid), Some(false)) => "the bank has paid, and the payout was given up",
        (Some(BankWord::Refused), Some(true)) => "the bank has refused, and the payout was taken for paid",
        (Some(BankWord::Paid | BankWord::Refused) | None, _) => return,
    };
    let detail = format!("{}: {detail}", booked.state.name());
    found.add(BreakKind::DecisionContradicted, SuggestedAction::Page, detail);
}

/// What came back is owed until operators have resolved it.
fn reversal(found: &mut Findings<'_>, booked: &Booked) {
    if let State::Completed { reversal: Some(reversal), .. } = &booked.state
        && reversal.resolved.is_none()
    {
        let detail = format!("the payment came back ({}), and its output is owed", reversal.failure.code);
        found.add(BreakKind::PaymentReturned, SuggestedAction::Resolve, detail);
    }
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
    let (told, place) = (&finality.tx_hash, &finality.contract_address);
    let (seen, where_seen) = (&anchor.tx_hash, &anchor.contract);
    Some(format!("the receipt says {told} at {place}, the chain {seen} at {where_seen}"))
}

fn open_funds(found: &mut Findings<'_>, booked: &Booked, expected: &Expectation<'_>, moment: &Moment) {
    let subject = found.subject;
    let locked = subject.kept.now.escrow == EscrowState::Locked && expected.lock.is_some();
    let held = subject.contracts.as_ref().filter(|_| locked).and_then(|contracts| contracts.lock.as_ref());
    let Some(held) = held else { return };
    let name = booked.state.name();
    // The relayer is given a while to give back what is not committed.
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
        Some(SuggestedAction::Cancel) if !expected.gave_up => {}
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

/// When a bank that has the payment has paid at the latest.
fn paid_by(booked: &Booked) -> Option<Timestamp> {
    let beneficiary = booked.terms.request.beneficiary.as_ref();
    let method = beneficiary.and_then(|beneficiary| beneficiary.payout_method);
    let since = booked.with_bank_since?.unix_secs();
    let by = i64::try_from(PayoutTime::BusinessDays.ends_by(method, since)).ok()?;
    Some(Timestamp::from_millis(by.saturating_mul(1_000)))
}

/// Nothing happens any more, and nothing said so far is the reason.
fn idle(found: &mut Findings<'_>, booked: &Booked, moment: &Moment) {
    if booked.state.is_terminal() || !found.breaks.is_empty() {
        return;
    }
    let waits_until = match &booked.state {
        State::Accepted => booked.terms.lock_at.min(booked.terms.request.deadline).max(booked.changed_at),
        // A bank takes its time, which is known.
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
    // A failed command is told to an execution that is not paid yet, which then ends.
    let failed = booked.failed_command.as_deref().filter(|_| matches!(booked.state, State::Releasing { .. }));
    if failed.is_some() || moment.idle_since(waits_until, moment.patience.idle_ms) {
        let why = failed.map_or_else(
            || format!("nothing since {}", booked.changed_at.iso8601()),
            |kind| format!("the command {kind} can never succeed"),
        );
        let action = match &booked.state {
            State::Converting { .. } | State::Paying { .. } => SuggestedAction::Resolve,
            _ => SuggestedAction::Page,
        };
        found.add(BreakKind::Stuck, action, format!("{}, and {why}", booked.state.name()));
    }
}
