//! The decisions of operators about an execution that does not end by itself.
//!
//! A decision is a row that the workflow carries out like other due work, and a second row with its operator, reason
//! and evidence: both in one transaction, and neither is ever changed. No settlement is changed here; an operator's
//! finding about a leg replaces the rail's answer.
//!
//! A decision that moves money, or states where money is, takes two operators: the first one's decision is a request
//! ([`crate::operators::requests`]), which another one's approval, or the same decision of one who may approve, carries out.
//! Returning committed funds takes two operators' signatures, which the contract checks.
//!
//! A decision that contradicts known facts is refused, or not carried out if they become known before then. A
//! contradiction that becomes known later is a break until two operators have recorded the payment that the bank has
//! made, or closed it. While it is open the service returns no input.
//!
//! Kept by `core/tests/it/operations.rs::an_operators_finding_replaces_the_rails_answer` and
//! `core/tests/it/approvals.rs::the_database_refuses_changes_of_a_request_and_approval_by_its_maker`.

mod action;
pub mod bank_alarms;

use chrono::DateTime;
use dvp_domain::chain::ChainCommand;
use dvp_domain::ids::RecallId;
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_domain::payment::PaymentStanding;
use dvp_domain::plan::InputFunding;
use dvp_domain::range::Range;
use dvp_domain::recall::INFORMATION_MAX;
use dvp_domain::screening::ScreeningResult;
use dvp_domain::settlement::leg::{IN_FLIGHT_SECS, LegKind};
use dvp_domain::settlement::{Remedy, State};
use dvp_store::chain::commands::{self, NewChainCommand};
use dvp_store::ledger::balances;
use dvp_store::operators::approvals::{self as approval_store, Approval, Decision};
use dvp_store::orders::effects::{self, EffectKind, ManualResolution};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::operations::{self as store, NewAction, Nudge};
use dvp_store::orders::recalls::{self, NewRecall};
use dvp_store::orders::{bank, screenings};
use dvp_store::{PgConnection, StoreError, database::ids};
use serde_json::{Value, json};

pub use self::action::Action;
use crate::engine::knowledge::KNOWN;
use crate::operators::requests::{self, Maker, Wanted, begin, end};

/// The failure of a payment in tokens whose chain never comes back: a transaction that was sent is lost with it.
pub const CHAIN_LOST: &str = "chain_lost";

/// The kind of requests about executions.
pub const EXECUTION: &str = "execution";

/// A decision with its operator and reason.
#[derive(Debug, Clone)]
pub struct Resolution<'a> {
    pub reference: &'a str,
    pub action: Action,
    pub operator: &'a str,
    pub reason: &'a str,
    /// Its evidence: a bank statement's line, a ticket.
    pub evidence: &'a str,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorDecision {
    /// The settlement's state at the decision.
    pub state: &'static str,
    /// It is a request: nothing happens until another operator approves it.
    pub is_proposal: bool,
    /// The request that was made or approved.
    pub approval: Option<String>,
}

/// Why a decision was not made.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("there is no execution {0}")]
    Unknown(String),
    #[error("the settlement is {state} and does not wait for {what}")]
    NotWaiting { state: &'static str, what: &'static str },
    #[error("a call may still be in flight: retry in a minute")]
    InFlight,
    #[error("the funds are being returned: see `dvp chain command list`")]
    Returning,
    #[error("both signatures are one operator's: two operators sign")]
    OneSigner,
    #[error("a signature is 65 bytes: 0x and 130 hex digits")]
    Signature,
    #[error("operator, reason and evidence are needed")]
    NoReason,
    /// Known facts contradict it.
    #[error("{0}")]
    Contradicted(&'static str),
    #[error("another decision waits for approval: approve or deny {0} first")]
    OtherRequested(String),
    #[error("the payment is being recalled: {0}")]
    Recalled(String),
    #[error("what a bank is told has {INFORMATION_MAX} characters at most, and no control characters")]
    Information,
    #[error("the order takes {} at most and delivers {} to {}, in minor units", .0.max_input, .0.min_output, .0.target_output)]
    OutOfRange(Range),
    #[error("the settlement changed since the request: request it again")]
    Moved,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Records a decision for the workflow, or requests it. The same decision of another operator is the approval of its
/// request.
pub async fn resolve(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
) -> Result<OperatorDecision, ResolveError> {
    resolve_as(conn, resolution, true).await
}

/// As [`resolve`], by an operator who may not approve: another one's request of the same decision stays pending.
pub async fn resolve_as_maker(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
) -> Result<OperatorDecision, ResolveError> {
    resolve_as(conn, resolution, false).await
}

async fn resolve_as(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
    may_approve: bool,
) -> Result<OperatorDecision, ResolveError> {
    let Resolution { action, operator, reason, evidence, .. } = resolution;
    if operator.trim().is_empty() || reason.trim().is_empty() {
        return Err(ResolveError::NoReason);
    }
    if evidence.trim().is_empty() && action.needs_evidence() {
        return Err(ResolveError::NoReason);
    }
    let mut tx = begin(conn).await?;
    let decided = decide(&mut tx, resolution, may_approve).await;
    end(tx, decided).await
}

async fn decide(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
    may_approve: bool,
) -> Result<OperatorDecision, ResolveError> {
    let Resolution { reference, action, operator, .. } = resolution;
    let (execution, kind) = load(conn, reference, action).await?;
    let state = execution.state.name();
    if !action.takes_two() {
        carry_out(conn, &execution, action, kind).await?;
        record(conn, resolution, &execution, action.as_str(), Value::Null).await?;
        return Ok(OperatorDecision { state, is_proposal: false, approval: None });
    }
    let standing = requests::find_standing(conn, EXECUTION, reference, execution.version).await?;
    let Some(standing) = standing.filter(|found| found.state == "pending") else {
        let id = propose(conn, resolution, &execution).await?;
        return Ok(OperatorDecision { state, is_proposal: true, approval: Some(id) });
    };
    if !requests::read::<Action>(&standing)?.agrees_with(action) {
        return Err(ResolveError::OtherRequested(standing.id));
    }
    let is_proposal = !may_approve || requests::is_same_operator(&standing.maker, operator);
    if !is_proposal {
        carry_out_requested(conn, &standing, operator).await?;
        let note = resolution.reason;
        approval_store::decide(conn, &standing.id, Decision::Approved { checker: operator, note }).await?;
    }
    Ok(OperatorDecision { state, is_proposal, approval: Some(standing.id) })
}

/// The execution, and the kind of work that the decision is about, unless known facts contradict it.
async fn load(
    conn: &mut PgConnection,
    reference: &str,
    action: &Action,
) -> Result<(Execution, Option<&'static str>), ResolveError> {
    let execution = executions::find_by_reference(conn, reference).await?;
    let execution = execution.ok_or_else(|| ResolveError::Unknown(reference.to_owned()))?;
    let kind = action.waited_for(&execution)?;
    let standing = bank::find_standing(conn, reference).await?;
    if let Some(why) = action.contradicted(&execution, standing) {
        return Err(ResolveError::Contradicted(why));
    }
    let says_unpaid = matches!(action, Action::Fail { leg: LegKind::Payout, .. } | Action::ReturnDebt { .. });
    if execution.terms.pays_on_chain() && says_unpaid {
        if commands::find_transfer_state(conn, reference).await?.as_deref() == Some("done") {
            return Err(ResolveError::Contradicted(
                "the chain has the payment: it becomes final, or is removed",
            ));
        }
        if !says_lost(action, &execution) && commands::may_transfer_be_included(conn, reference).await? {
            return Err(ResolveError::Contradicted(
                "a signed transaction with the payment may still be included: its nonce is not used up in a final \
                 block; only a chain that never comes back fails it (code chain_lost)",
            ));
        }
    }
    check_recall(conn, &execution, action).await?;
    check_input(conn, &execution, action).await?;
    check_reference(conn, &execution, action, standing).await?;
    let is_about_hold = matches!(action, Action::Release | Action::Refuse { .. });
    if is_about_hold && screenings::find_latest(conn, reference).await? != Some(ScreeningResult::Hold) {
        return Err(ResolveError::NotWaiting { state: execution.state.name(), what: action::HELD });
    }
    if let Action::Fill { input, output } = action {
        check_fill(conn, &execution, [*input, *output]).await?;
    }
    if *action == Action::ReleasePayee && !bank::is_held(conn, reference).await? {
        return Err(ResolveError::NotWaiting { state: execution.state.name(), what: action::PAYEE });
    }
    if *action == Action::CloseContradiction && !bank::is_contradicted(conn, reference).await? {
        let state = execution.state.name();
        return Err(ResolveError::NotWaiting { state, what: "a contradiction to be closed" });
    }
    Ok((execution, kind))
}

/// Whether operators say, or have said, that the chain of a payment never comes back.
fn says_lost(action: &Action, execution: &Execution) -> bool {
    match action {
        Action::Fail { code, .. } => code == CHAIN_LOST,
        _ => {
            matches!(&execution.state, State::Owing { failure: Some(failure), .. } if failure.code == CHAIN_LOST)
        }
    }
}

/// What was filled before a restore is known to its rail, and was within the order's bounds.
async fn check_fill(
    conn: &mut PgConnection,
    execution: &Execution,
    [input, output]: [Minor; 2],
) -> Result<(), ResolveError> {
    let reference = execution.terms.reference.as_str();
    if !effects::waits_since(conn, reference, KNOWN, DateTime::UNIX_EPOCH).await? {
        return Err(ResolveError::NotWaiting { state: execution.state.name(), what: action::FILLED });
    }
    if bank::find_ordered(conn, reference).await?.is_some_and(|ordered| ordered != output) {
        return Err(ResolveError::Contradicted(
            "the bank was given another amount: `dvp execution show` has it",
        ));
    }
    let Some(range) = Range::of(&execution.terms.request) else { return Ok(()) };
    let is_within = input <= range.max_input && (range.min_output..=range.target_output).contains(&output);
    if is_within { Ok(()) } else { Err(ResolveError::OutOfRange(range)) }
}

/// A payment that was made after all takes the input that its partner got back.
async fn check_input(
    conn: &mut PgConnection,
    execution: &Execution,
    action: &Action,
) -> Result<(), ResolveError> {
    let is_found = matches!(action, Action::MarkPaid { .. }) && action::is_failed_payment(execution);
    let terms = &execution.terms;
    let InputFunding::PartnerBalance { asset, amount } = &terms.plan.funding else { return Ok(()) };
    if is_found {
        let owner = Owner::Partner { id: terms.partner_id.to_string(), livemode: terms.livemode };
        if balances::find(conn, &owner, asset).await?.available < *amount {
            return Err(ResolveError::Contradicted(
                "the partner's available balance is less than the input that it got back: recall the payment, or have \
                 the balance made up by a deposit or an adjustment first",
            ));
        }
    }
    Ok(())
}

/// A payment that the bank has booked is recorded by its own reference: another payment would be a second one. A debt whose own
/// payment came back is paid by another one, which the bank has an entry of its own for. Without the bank's word a return that
/// it took back cannot be recorded.
async fn check_reference(
    conn: &mut PgConnection,
    execution: &Execution,
    action: &Action,
    standing: Option<PaymentStanding>,
) -> Result<(), ResolveError> {
    let Action::MarkPaid { leg: LegKind::Payout, provider_reference, .. } = action else { return Ok(()) };
    if action::is_open_reversal(execution) && standing.is_none() {
        let state = execution.state.name();
        return Err(ResolveError::NotWaiting { state, what: LegKind::Payout.as_str() });
    }
    let came_back = standing.is_some_and(PaymentStanding::has_come_back);
    let is_booked = standing.and_then(PaymentStanding::against_unpaid).is_some();
    let reference = execution.terms.reference.as_str();
    let is_own = bank::is_reference(conn, reference, provider_reference).await?;
    let against = match is_own {
        true => (action::is_unpaid_debt(execution) && came_back).then_some(
            "the payment has come back: name the bank's entry of the other payment that has paid the debt",
        ),
        false => is_booked.then_some(
            "the bank has booked the payment itself, and another one would be the second: name the payment's own reference",
        ),
    };
    against.map_or(Ok(()), |why| Err(ResolveError::Contradicted(why)))
}

/// A payment has one recall at a time, and one that is closed is open.
async fn check_recall(
    conn: &mut PgConnection,
    execution: &Execution,
    action: &Action,
) -> Result<(), ResolveError> {
    let information = match action {
        Action::Recall { information, .. } => information.as_deref().unwrap_or_default(),
        Action::CloseRecall => "",
        _ => return Ok(()),
    };
    if information.chars().count() > INFORMATION_MAX || information.chars().any(char::is_control) {
        return Err(ResolveError::Information);
    }
    let open = recalls::find_open(conn, execution.terms.reference.as_str()).await?;
    match open {
        Some(open) if *action != Action::CloseRecall => Err(ResolveError::Recalled(open.id.into())),
        None if *action == Action::CloseRecall => {
            Err(ResolveError::NotWaiting { state: execution.state.name(), what: "the end of a recall" })
        }
        Some(_) | None => Ok(()),
    }
}

async fn propose(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
    execution: &Execution,
) -> Result<String, ResolveError> {
    let Resolution { reference, action, operator, reason, evidence } = resolution;
    let details = requests::written(action)?;
    let wanted = Wanted {
        kind: EXECUTION,
        subject: reference,
        action: action.as_str(),
        details: &details,
        touches: &[],
        version: execution.version,
    };
    let id = requests::request(conn, &wanted, Maker { operator, reason, evidence }).await?;
    let word = format!("propose_{}", action.as_str());
    record(conn, resolution, execution, &word, json!({ "approval": id })).await?;
    Ok(id)
}

/// Carries out a decision that `checker` approves, if the execution has not changed since the request.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
    checker: &str,
) -> Result<(), ResolveError> {
    let action: Action = requests::read(request)?;
    let (execution, kind) = load(conn, &request.subject, &action).await?;
    if execution.version != request.version {
        return Err(ResolveError::Moved);
    }
    carry_out(conn, &execution, &action, kind).await?;
    let word = action.as_str();
    let resolution = Resolution {
        reference: &request.subject,
        action: action.clone(),
        operator: checker,
        reason: &request.reason,
        evidence: &request.evidence,
    };
    let more = json!({"approval": request.id, "proposedBy": request.maker});
    record(conn, &resolution, &execution, word, more).await
}

/// Records the decision and its operator, for ever.
async fn record(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
    execution: &Execution,
    word: &str,
    more: Value,
) -> Result<(), ResolveError> {
    let Resolution { reference, action, operator, reason, evidence } = resolution;
    let mut kept =
        serde_json::to_value(action).map_err(|error| StoreError::corrupt("operator_action", error))?;
    if let Some(fields) = kept.as_object_mut() {
        fields.insert("evidence".into(), json!(evidence));
        fields.insert("state".into(), json!(execution.state.name()));
        fields.extend(more.as_object().cloned().into_iter().flatten());
    }
    let version = execution.version;
    let new = NewAction { reference, action: word, operator, reason, evidence: &kept, version };
    Ok(store::insert_action(conn, &new).await?)
}

/// Inserts an operator's verdict as due work where none is due.
async fn due(
    conn: &mut PgConnection,
    reference: &str,
    kind: EffectKind,
    verdict: &Value,
) -> Result<(), ResolveError> {
    if effects::insert_verdict(conn, reference, kind, verdict).await? {
        Ok(())
    } else {
        Err(ResolveError::InFlight)
    }
}

/// Whether the execution's state allows the decision. Facts of the bank may contradict it all the same.
pub fn is_possible(execution: &Execution, action: &Action) -> bool {
    action.waited_for(execution).is_ok()
}

/// Whether two operators may return the execution's committed funds now.
pub fn may_return(execution: &Execution) -> bool {
    matches!(execution.state, State::PayoutFailed { debt_returned: None, .. })
        && execution.state.lock().is_some_and(|lock| lock.filled && lock.holds())
}

fn is_signature(text: &str) -> bool {
    let digits = text.strip_prefix("0x");
    digits.is_some_and(|digits| digits.len() == 130 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

async fn carry_out(
    conn: &mut PgConnection,
    execution: &Execution,
    action: &Action,
    kind: Option<&str>,
) -> Result<(), ResolveError> {
    let reference = execution.terms.reference.as_str();
    let verdict = action.verdict().map(|verdict| serde_json::to_value(verdict).unwrap_or_default());
    let nudge = match (action, &verdict) {
        (Action::Return { signatures: [first, second], .. }, _) if first.eq_ignore_ascii_case(second) => {
            return Err(ResolveError::OneSigner);
        }
        (Action::Return { signatures, .. }, _) if !signatures.iter().all(|one| is_signature(one)) => {
            return Err(ResolveError::Signature);
        }
        (Action::Return { deadline, signatures }, _) => {
            let entity = execution.terms.entity.clone();
            let (chain_id, escrow) = commands::find_lock_place(conn, reference).await?;
            let returns = NewChainCommand {
                chain_id,
                reference: reference.to_owned(),
                intent_id: execution.terms.request.intent_id.clone(),
                entity: entity.clone(),
                escrow,
                command: ChainCommand::ReturnFilled {
                    entity,
                    deadline: *deadline,
                    signatures: signatures.clone(),
                },
                trace: execution.terms.trace,
            };
            let is_new = commands::insert_again(conn, &returns).await?;
            return if is_new { Ok(()) } else { Err(ResolveError::Returning) };
        }
        (Action::Recall { reason, information }, _) => {
            let id = RecallId::from_unique(ids::draw_here(conn).await?.simple());
            let (reason, information) = (*reason, information.as_deref());
            let new = NewRecall { id: &id, execution: reference, reason, information };
            let is_new = recalls::insert(conn, &new).await?;
            return if is_new { Ok(()) } else { Err(ResolveError::Moved) };
        }
        (Action::CloseRecall, _) => {
            recalls::close(conn, reference).await?;
            return Ok(());
        }
        (Action::ReleasePayee, _) => {
            bank::release(conn, reference).await?;
            return Ok(());
        }
        (Action::CloseContradiction, _) => {
            bank::close_contradiction(conn, reference).await?;
            return Ok(());
        }
        // No rail is asked about a payment in tokens: no work is due that would apply it. What was not sent is not sent.
        (
            Action::MarkPaid { leg: LegKind::Payout, .. } | Action::Fail { leg: LegKind::Payout, .. },
            Some(verdict),
        ) if execution.terms.pays_on_chain() => {
            commands::withdraw_transfer(conn, reference).await?;
            return due(conn, reference, EffectKind::Payout, verdict).await;
        }
        // The payout has failed: no due work would apply it.
        (Action::MarkPaid { leg: LegKind::Payout, .. }, Some(verdict))
            if action::is_unpaid_debt(execution) =>
        {
            let standing = bank::find_standing(conn, reference).await?;
            let another = standing.and_then(PaymentStanding::against_unpaid).is_none();
            bank::mark_debt_paid(conn, reference, another).await?;
            return due(conn, reference, EffectKind::Payout, verdict).await;
        }
        // The order has ended.
        (Action::MarkPaid { leg: LegKind::Payout, .. }, Some(verdict))
            if action::is_failed_payment(execution) =>
        {
            return due(conn, reference, EffectKind::Payout, verdict).await;
        }
        // The bank took the return back.
        (Action::MarkPaid { leg: LegKind::Payout, provider_reference, at }, _)
            if action::is_open_reversal(execution) =>
        {
            let stands = ManualResolution::ReversalResolved {
                remedy: Remedy::Stands,
                provider_reference: provider_reference.clone(),
                occurred_at: *at,
            };
            let stands = serde_json::to_value(stands).unwrap_or_default();
            return due(conn, reference, EffectKind::Reversal, &stands).await;
        }
        // No due work would apply it any more. What was not sent is not sent.
        (Action::ReturnDebt { .. }, Some(verdict)) => {
            commands::withdraw_transfer(conn, reference).await?;
            return due(conn, reference, EffectKind::Payout, verdict).await;
        }
        (
            Action::MarkReturned { .. } | Action::ResolveReturn { .. } | Action::CloseConversion { .. },
            Some(verdict),
        ) => {
            return due(conn, reference, EffectKind::Reversal, verdict).await;
        }
        (Action::Retry { .. }, _) => Nudge::Uncalled,
        (_, Some(verdict)) => Nudge::ScreeningResult(verdict),
        (_, None) => Nudge::Now,
    };
    if store::nudge(conn, reference, kind, &nudge, IN_FLIGHT_SECS).await? {
        Ok(())
    } else {
        Err(ResolveError::InFlight)
    }
}
