//! Lines of lists that several pages have.

use dvp_store::operators::approvals::Approval;
use dvp_store::orders::listing::OrderRow;
use dvp_store::reconcile::KeptBreak;

use crate::state::Console;
use crate::view::{self, Moment};

/// An order of a list.
pub(crate) struct OrderLine {
    pub reference: String,
    pub partner: String,
    pub client_reference: String,
    pub intent_id: String,
    pub state: String,
    pub tone: &'static str,
    pub accepted: Moment,
    pub age: String,
    pub input: String,
    pub input_asset: String,
    pub output: String,
    pub output_asset: String,
    pub waits_for: String,
    pub alarm: String,
}

impl From<&OrderRow> for OrderLine {
    fn from(row: &OrderRow) -> Self {
        let amount = |minor: &str, exponent: i32| view::amount(minor, u8::try_from(exponent).unwrap_or(0));
        let result = row.last_result.as_deref().map(|result| format!(": {result}")).unwrap_or_default();
        let waits_for = row.waits_for.as_deref().map(|what| format!("{}{result}", view::words(what)));
        Self {
            reference: row.reference.clone(),
            partner: row.partner.clone(),
            client_reference: row.client_reference.clone().unwrap_or_default(),
            intent_id: row.intent_id.clone(),
            state: view::words(&row.state),
            tone: view::tone(&row.state),
            accepted: row.accepted_at.into(),
            age: row.terminal_at.map_or_else(|| view::age(row.accepted_at), |_| String::new()),
            input: amount(&row.input_amount, row.input_exponent),
            input_asset: row.input_asset.clone(),
            output: amount(&row.output_amount, row.output_exponent),
            output_asset: row.output_asset.clone(),
            waits_for: waits_for.filter(|_| row.terminal_at.is_none()).unwrap_or_default(),
            alarm: row.alarm.clone().unwrap_or_default(),
        }
    }
}

/// A request of an operator.
pub(crate) struct ApprovalLine {
    pub id: String,
    pub kind: String,
    pub action: String,
    pub subject: String,
    /// The page of the subject.
    pub link: String,
    pub maker: String,
    pub reason: String,
    pub requested: Moment,
    pub state: String,
    pub tone: &'static str,
    pub checker: String,
}

impl From<&Approval> for ApprovalLine {
    fn from(row: &Approval) -> Self {
        let is_expired = row.state == "pending" && row.is_expired;
        let state = if is_expired { "expired" } else { row.state.as_str() };
        let link = if row.kind == dvp_core::operators::operations::EXECUTION {
            view::order(&row.subject)
        } else {
            String::new()
        };
        Self {
            id: row.id.clone(),
            kind: row.kind.clone(),
            action: view::words(&row.action),
            subject: row.subject.clone(),
            link,
            maker: row.maker.clone(),
            reason: row.reason.clone(),
            requested: row.requested_at.into(),
            state: state.to_owned(),
            tone: view::tone(state),
            checker: row.checker.clone().unwrap_or_default(),
        }
    }
}

/// A difference that reconciliation found.
pub(crate) struct BreakLine {
    /// Its page.
    pub link: String,
    pub kind: String,
    pub reference: String,
    pub account: String,
    pub difference: String,
    pub detail: String,
    pub action: String,
    pub since: Moment,
    pub age: String,
}

impl BreakLine {
    pub(crate) fn of(row: &KeptBreak, console: &Console) -> Self {
        let asset = row.asset.as_deref().unwrap_or_default();
        let difference = row.difference.as_deref();
        Self {
            link: format!("/reconciliation/{}/{}", row.run_id, row.ordinal),
            kind: view::words(&row.kind),
            reference: row.reference.clone().unwrap_or_default(),
            account: row.account.clone().unwrap_or_default(),
            difference: difference
                .map(|minor| format!("{} {asset}", view::amount(minor, console.decimals(asset))))
                .unwrap_or_default(),
            detail: row.detail.clone(),
            action: view::words(&row.action),
            since: row.first_seen_at.into(),
            age: view::age(row.first_seen_at),
        }
    }
}
