//! What an action answers.

use dvp_core::operators::requests::RequestedChange;
use dvp_store::operators::approvals::Approval;
use serde_json::{Value, json};

/// The answer to an action: a document for programs, and the lines that a person reads instead.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub value: Value,
    pub lines: Vec<String>,
    /// The request that waits for a second operator.
    pub approval: Option<String>,
    /// What is shown this once.
    pub once: Vec<(&'static str, String)>,
}

impl Outcome {
    pub(crate) fn done(value: Value, line: impl Into<String>) -> Self {
        Self::lines(value, vec![line.into()])
    }

    pub(crate) const fn lines(value: Value, lines: Vec<String>) -> Self {
        Self { value, lines, approval: None, once: Vec::new() }
    }

    /// A request that another operator approves.
    pub(crate) fn requested(requested: &RequestedChange) -> Self {
        let approval = &requested.approval;
        let mut value = view(approval);
        value["repeated"] = json!(requested.repeated);
        let waits = format!("another operator approves it: dvp approval approve --id {}", approval.id);
        Self { approval: Some(approval.id.clone()), ..Self::lines(value, vec![line(approval), waits]) }
    }

    /// With a text that is shown this once.
    pub(crate) fn once(mut self, name: &'static str, text: String) -> Self {
        self.lines.insert(self.once.len(), format!("{name:<14}  {text}"));
        self.once.push((name, text));
        self
    }

    /// With what the requester keeps until the approval.
    pub(crate) fn with(mut self, fields: Value, lines: Vec<String>) -> Self {
        if let (Some(own), Value::Object(more)) = (self.value.as_object_mut(), fields) {
            own.extend(more);
        }
        self.lines.splice(0..0, lines);
        self
    }
}

/// A request of an operator.
pub fn view(row: &Approval) -> Value {
    json!({
        "id": row.id, "kind": row.kind, "subject": row.subject, "action": row.action, "details": row.details,
        "version": row.version, "maker": row.maker, "reason": row.reason, "evidence": row.evidence,
        "requestedAt": row.requested_at.to_rfc3339(), "expiresAt": row.expires_at.to_rfc3339(), "state": row.state,
        "checker": row.checker, "note": row.note, "decidedAt": row.decided_at.map(|at| at.to_rfc3339()),
    })
}

/// A request of an operator as a line.
pub fn line(row: &Approval) -> String {
    let decided = row.checker.as_deref().map(|checker| format!(" by {checker}")).unwrap_or_default();
    format!(
        "{}  {}  {} {}  by {} ({}; {})  {}{decided}",
        row.id,
        row.requested_at.to_rfc3339(),
        row.action,
        row.subject,
        row.maker,
        row.reason,
        row.evidence,
        row.state
    )
}
