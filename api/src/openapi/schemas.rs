//! The shapes of requests and answers.

mod events;
mod requests;
mod resting_orders;
mod webhooks;

use dvp_domain::reconcile::BreakKind;
use serde_json::{Map, Value, json};

use self::events::events;
use self::requests::requests;
use self::resting_orders::resting_orders;
use self::webhooks::webhooks;
use crate::wire::LEGACY_STATUSES;

/// An object whose named fields are required, with any other fields.
fn object(fields: &[(&str, Value)]) -> Value {
    let required: Vec<&str> = fields.iter().map(|field| field.0).collect();
    let properties: Map<String, Value> =
        fields.iter().cloned().map(|(name, schema)| (name.into(), schema)).collect();
    json!({"type": "object", "required": required, "properties": properties})
}

/// The same with fields that may be absent.
fn with_optional(mut schema: Value, fields: &[(&str, Value)]) -> Value {
    for (name, field) in fields {
        schema["properties"][name] = field.clone();
    }
    schema
}

/// A request's object with fields that may be absent or, which means the same, null.
fn with_nullable(schema: Value, fields: &[(&str, Value)]) -> Value {
    let fields: Vec<(&str, Value)> =
        fields.iter().map(|(name, field)| (*name, nullable(field.clone()))).collect();
    with_optional(schema, &fields)
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn nullable(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn one_of(names: &[&str]) -> Value {
    json!({"type": "string", "enum": names})
}

fn minor() -> Value {
    json!({"type": "string", "pattern": "^[0-9]{1,39}$"})
}

fn sum() -> Value {
    json!({"type": "string", "pattern": "^[0-9]+$"})
}

fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn whole() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn hash() -> Value {
    json!({"type": "string", "pattern": "^0x[0-9a-f]{64}$"})
}

/// Every component.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    let groups = [
        requests(),
        quotes(),
        intents(),
        executions(),
        reports(),
        events(),
        webhooks(),
        resting_orders(),
        older(),
        service(),
    ];
    for group in groups {
        for (name, schema) in group {
            all.insert(name.to_owned(), schema);
        }
    }
    Value::Object(all)
}

type Group = Vec<(&'static str, Value)>;

fn quotes() -> Group {
    let metadata = object(&[
        ("latencyMs", whole()),
        ("basePrice", json!({"type": "number"})),
        ("feesBps", json!({"type": "number"})),
        ("liquidityAvailable", json!({"type": "number"})),
        ("score", json!({"type": "number"})),
        ("constraintViolations", list(text())),
    ]);
    let mut open_metadata = metadata;
    open_metadata["additionalProperties"] = json!(true);
    let leg = object(&[
        ("from", text()),
        ("to", text()),
        ("venue", nullable(text())),
        ("price", nullable(text())),
        ("feeBps", nullable(json!({"type": "number"}))),
        ("capacity", nullable(text())),
    ]);
    let candidate = object(&[
        ("routeId", text()),
        ("ttlSec", whole()),
        ("totalCost", text()),
        ("slippageBps", nullable(json!({"type": "number"}))),
        ("provider", nullable(text())),
        ("hops", list(json!({}))),
        ("legs", list(reference("Leg"))),
        ("metadata", open_metadata),
    ]);
    let firm = object(&[
        ("requestId", text()),
        ("quoteId", text()),
        ("pair", text()),
        ("allInRate", text()),
        ("input", reference("Money")),
        ("output", reference("Money")),
        ("fees", list(reference("FeeItem"))),
        ("validUntil", time()),
    ]);
    vec![
        ("Money", object(&[("amountMinor", minor()), ("currency", text()), ("exponent", whole())])),
        (
            "FeeItem",
            object(&[
                ("type", one_of(&["protocol_fee", "payout_fee", "network_fee"])),
                ("amountMinor", minor()),
                ("currency", text()),
                ("exponent", whole()),
                ("collection", one_of(&["deducted", "absorbed"])),
            ]),
        ),
        ("Leg", leg),
        ("Candidate", candidate),
        (
            "Quote",
            object(&[
                ("requestId", text()),
                ("timestamp", whole()),
                ("candidates", list(reference("Candidate"))),
            ]),
        ),
        ("FirmQuote", firm),
    ]
}

fn intents() -> Group {
    let step = with_optional(
        object(&[
            ("type", one_of(&["reserve", "dex_swap", "cex_otc", "bridge", "cow_match", "fiat_gateway"])),
            ("asset", text()),
            ("amountMinor", minor()),
        ]),
        &[
            ("chain", text()),
            ("provider", text()),
            ("currency", text()),
            ("beneficiaryAccount", text()),
            ("source", text()),
        ],
    );
    let path = object(&[
        ("intentId", text()),
        ("solverId", text()),
        ("outputAmountMinor", minor()),
        ("surplusAmountMinor", minor()),
        ("estimatedFillTime", whole()),
        ("steps", list(reference("PathStep"))),
        ("score", json!({"type": "number"})),
        ("expiresAt", whole()),
    ]);
    let accepted = with_optional(
        object(&[
            ("intentId", text()),
            ("status", json!({"const": "accepted"})),
            ("planId", text()),
            ("solverId", text()),
            ("path", reference("SolvedPath")),
            ("reference", text()),
        ]),
        &[
            ("inputAmountMinor", minor()),
            ("fees", list(reference("FeeItem"))),
            ("deposit", reference("DepositDue")),
        ],
    );
    let deposit = object(&[
        ("chain", text()),
        ("chainId", whole()),
        ("contract", text()),
        ("id", hash()),
        ("amountMinor", minor()),
        ("depositBy", whole()),
    ]);
    let rejected =
        object(&[("intentId", text()), ("status", json!({"const": "rejected"})), ("reason", text())]);
    let status = object(&[
        ("intentId", text()),
        ("clientReference", nullable(text())),
        ("planId", text()),
        ("status", one_of(&["in_progress", "completed", "failed"])),
        ("phase", one_of(&["intent", "offramp", "payout"])),
        ("failure", nullable(reference("Failure"))),
        ("updatedAt", time()),
    ]);
    vec![
        ("PathStep", step),
        ("SolvedPath", path),
        ("AcceptedIntent", accepted),
        ("DepositDue", deposit),
        ("RejectedIntent", rejected),
        ("IntentStatus", status),
        ("CancelledIntent", json!({"oneOf": [reference("IntentStatus"), reference("LegacyIntentAnswer")]})),
    ]
}

fn executions() -> Group {
    let entry = object(&[
        ("phase", one_of(&["intent", "offramp", "payout"])),
        ("state", one_of(&["initiated", "in_progress", "completed", "failed", "reversed"])),
        ("occurredAt", time()),
        ("observedAt", time()),
        ("isTerminal", json!({"type": "boolean"})),
        ("isReversible", json!({"type": "boolean"})),
    ]);
    let failure = object(&[
        ("stage", one_of(&["intent", "offramp", "payout"])),
        ("code", text()),
        ("message", text()),
        ("retryable", json!({"type": "boolean"})),
    ]);
    let finality = object(&[("txHash", hash()), ("contractAddress", text()), ("chainId", whole())]);
    let execution = object(&[
        ("clientReference", nullable(text())),
        ("reference", text()),
        ("providerReference", nullable(text())),
        ("status", one_of(&["in_progress", "completed", "failed"])),
        ("phase", one_of(&["intent", "offramp", "payout"])),
        ("events", list(reference("EventEntry"))),
        ("failure", nullable(reference("Failure"))),
        ("finality", nullable(reference("Finality"))),
    ]);
    let batch = object(&[("data", list(reference("Execution"))), ("notFound", list(text()))]);
    vec![
        ("EventEntry", entry),
        ("Failure", failure),
        ("Finality", finality),
        ("Execution", execution),
        ("ExecutionBatch", batch),
        ("Receipt", receipt()),
    ]
}

fn receipt() -> Value {
    let offramp = object(&[
        ("fromAsset", text()),
        ("toAsset", text()),
        ("fromAmountMinor", minor()),
        ("toAmountMinor", minor()),
        ("fxRate", text()),
        ("roundingRule", json!({"const": "floor"})),
        ("occurredAt", time()),
    ]);
    let payout = object(&[
        ("amountMinor", minor()),
        ("currency", text()),
        ("exponent", whole()),
        ("bankRef", nullable(text())),
        ("occurredAt", time()),
    ]);
    with_optional(
        object(&[
            ("_schemaVersion", json!({"const": "svc-receipt-1"})),
            ("clientReference", nullable(text())),
            ("provider", text()),
            ("offramp", nullable(offramp)),
            ("payout", payout),
            ("fees", list(reference("FeeItem"))),
            ("issuedAt", time()),
        ]),
        &[
            ("txHash", hash()),
            ("finality", reference("Finality")),
            ("erased", object(&[("fields", list(text())), ("contentHash", hash())])),
        ],
    )
}

fn reports() -> Group {
    let row = object(&[
        ("clientReference", nullable(text())),
        ("reference", text()),
        ("intentId", text()),
        ("status", one_of(&["in_progress", "completed", "failed"])),
        ("input", reference("Money")),
        ("output", reference("Money")),
        ("fees", list(reference("FeeItem"))),
        ("lockTxHash", nullable(hash())),
        ("settleTxHash", nullable(hash())),
        ("receiptHash", nullable(hash())),
        ("anchorTxHash", nullable(hash())),
        ("acceptedAt", time()),
        ("terminalAt", nullable(time())),
        ("chainState", nullable(one_of(&["Created", "Filled", "Settled", "Cancelled", "Refunded"]))),
        ("breaks", list(one_of(&BreakKind::ALL.map(BreakKind::as_str)))),
    ]);
    let count = object(&[("count", whole()), ("amountMinor", sum())]);
    let total = object(&[
        ("currency", text()),
        ("exponent", whole()),
        ("status", one_of(&["in_progress", "completed", "failed"])),
        ("inputs", count.clone()),
        ("outputs", count),
        ("feesDeductedMinor", sum()),
        ("feesAbsorbedMinor", sum()),
    ]);
    let page = [
        ("rows", list(reference("ReconciliationRow"))),
        ("totals", list(reference("ReconciliationTotal"))),
        ("hasMore", json!({"type": "boolean"})),
        ("nextCursor", nullable(text())),
        ("reconciledAt", nullable(time())),
    ];
    let day = [
        ("date", json!({"type": "string", "format": "date"})),
        ("cutoff", time()),
        ("final", json!({"type": "boolean"})),
    ];
    vec![
        ("ReconciliationRow", row),
        ("ReconciliationTotal", total),
        ("Reconciliation", object(&page)),
        ("DailyReconciliation", object(&[&day[..], &page[..]].concat())),
    ]
}

/// The legacy API.
fn older() -> Group {
    let wrapped = |data: Value| object(&[("success", json!({"const": true})), ("data", data)]);
    let pair = object(&[("source", text()), ("target", text())]);
    let constraints = object(&[
        ("maxSlippageBps", whole()),
        ("maxFeeBps", whole()),
        ("settlementPref", one_of(&["onchain", "offchain", "auto"])),
        ("ttlMs", whole()),
    ]);
    let intent = object(&[
        ("intentId", text()),
        ("pair", pair),
        ("side", one_of(&["sell"])),
        ("amount", text()),
        ("filledAmount", text()),
        ("strategy", one_of(&["instant", "optimized", "scheduled"])),
        ("constraints", constraints),
        ("status", one_of(&LEGACY_STATUSES)),
        ("clientRef", nullable(text())),
        ("reference", nullable(text())),
        ("rejection", nullable(one_of(&["CONSTRAINTS_NOT_MET", "INSUFFICIENT_LIQUIDITY"]))),
        ("createdAt", time()),
        ("updatedAt", time()),
    ]);
    let page = object(&[
        ("success", json!({"const": true})),
        ("data", list(reference("LegacyIntent"))),
        ("page", whole()),
        ("limit", whole()),
        ("total", whole()),
    ]);
    let rate = object(&[
        ("base", text()),
        ("target", text()),
        ("rate", text()),
        ("appliedRate", text()),
        ("spreadBps", json!({"type": "integer"})),
        ("timestamp", time()),
        ("ttlMs", whole()),
    ]);
    let listed = object(&[
        ("pair", text()),
        ("base", text()),
        ("target", text()),
        ("baseExponent", whole()),
        ("targetExponent", whole()),
        ("strategies", list(one_of(&["instant", "optimized", "scheduled"]))),
    ]);
    vec![
        ("LegacyIntent", intent),
        ("LegacyIntentAnswer", wrapped(reference("LegacyIntent"))),
        ("LegacyIntentPage", page),
        ("RateAnswer", wrapped(rate)),
        ("PairsAnswer", wrapped(list(listed))),
    ]
}

fn service() -> Group {
    vec![
        ("Health", object(&[("status", json!({"const": "ok"}))])),
        ("AnyObject", json!({"type": "object", "additionalProperties": true})),
    ]
}
