//! The bodies of requests. The enumerations are those the parsers use.

use serde_json::{Value, json};

use super::{Group, nullable, object, one_of, reference, with_nullable};
use crate::wire::{ACTOR_TYPES, ASSET_TYPES, PAYOUT_METHODS, SETTLEMENT_TYPES, SIDES};

fn names<T>(choices: &[(&str, T)]) -> Value {
    one_of(&choices.iter().map(|choice| choice.0).collect::<Vec<_>>())
}

/// One printable line: no control characters.
const PRINTABLE: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

fn id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": PRINTABLE})
}

fn line() -> Value {
    json!({"type": "string", "maxLength": 1024, "pattern": PRINTABLE})
}

/// Minor units above zero, at most 2^128 - 1.
fn amount() -> Value {
    json!({"type": "string", "pattern": "^0*[1-9][0-9]{0,37}$"})
}

fn bps() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": 10_000})
}

fn open() -> Value {
    json!({"type": "object", "additionalProperties": true})
}

pub(super) fn requests() -> Group {
    let quote = with_nullable(
        object(&[
            ("requestId", id()),
            ("actorId", id()),
            ("source", id()),
            ("target", id()),
            ("amount", json!({"type": "string", "pattern": "^[0-9]{1,20}([.][0-9]{1,18})?$"})),
            ("side", names(SIDES)),
        ]),
        &[
            ("actorType", names(ACTOR_TYPES)),
            ("quoteType", one_of(&["A_retail", "B_institution"])),
            ("settlementPref", one_of(&["onchain", "offchain", "hybrid"])),
            ("maxSlippageBps", bps()),
        ],
    );
    let firm = with_nullable(
        object(&[
            ("requestId", id()),
            ("actorId", id()),
            ("inputAsset", reference("AssetDescriptor")),
            ("outputAsset", reference("AssetDescriptor")),
            ("amountMinor", amount()),
            ("amountType", one_of(&["source", "target"])),
        ]),
        &[("actorType", names(ACTOR_TYPES)), ("side", names(SIDES))],
    );
    let asset = with_nullable(
        object(&[("type", names(ASSET_TYPES)), ("symbol", id())]),
        &[
            ("address", json!({"type": "string", "pattern": "^0x[0-9a-fA-F]{40}$"})),
            ("chain", id()),
            ("currency", json!({"type": "string", "pattern": "^[A-Za-z]{3}$"})),
        ],
    );
    vec![
        ("QuoteRequest", quote),
        ("FirmQuoteRequest", firm),
        ("AssetDescriptor", asset),
        ("Permit", permit()),
        ("BeneficiaryAddress", with_nullable(object(&[]), &address())),
        ("Beneficiary", beneficiary()),
        (
            "InputBounds",
            with_nullable(object(&[("limitAmountMinor", amount())]), &[("targetAmountMinor", amount())]),
        ),
        (
            "OutputBounds",
            with_nullable(object(&[("limitAmountMinor", amount())]), &[("targetAmountMinor", amount())]),
        ),
        ("CurrentIntentRequest", intent()),
        ("LegacyIntentRequest", older()),
        (
            "IntentRequest",
            json!({"anyOf": [reference("CurrentIntentRequest"), reference("LegacyIntentRequest")]}),
        ),
    ]
}

fn permit() -> Value {
    object(&[
        ("token", id()),
        ("amountMinor", amount()),
        ("spender", id()),
        ("nonce", json!({"type": "string", "pattern": "^[0-9]{1,38}$"})),
        ("deadline", json!({"type": "integer", "minimum": 0, "maximum": 253_402_300_799_u64})),
        ("signature", line()),
    ])
}

fn address() -> [(&'static str, Value); 4] {
    ["line1", "city", "state", "postalCode"].map(|name| (name, line()))
}

fn beneficiary() -> Value {
    with_nullable(
        object(&[]),
        &[
            ("account", json!({"type": "string", "maxLength": 128, "pattern": PRINTABLE})),
            ("name", line()),
            ("country", json!({"type": "string", "pattern": "^([A-Za-z]{2})?$"})),
            ("payoutMethod", names(PAYOUT_METHODS)),
            ("swiftCode", line()),
            ("bank", line()),
            ("address", reference("BeneficiaryAddress")),
            ("travelRuleData", open()),
        ],
    )
}

/// Flat amounts or bounds; the parser defines the valid combinations.
fn intent() -> Value {
    let texts = [
        "senderKycHash",
        "depositReference",
        "currency",
        "targetStablecoin",
        "beneficiaryAccount",
        "beneficiaryName",
    ];
    let mut metadata = with_nullable(object(&[]), &texts.map(|name| (name, line())));
    metadata["properties"]["travelRuleData"] = nullable(open());
    metadata["additionalProperties"] = json!(true);
    let mut intent = with_nullable(
        object(&[
            ("intentId", id()),
            ("user", id()),
            ("inputAsset", reference("AssetDescriptor")),
            ("outputAsset", reference("AssetDescriptor")),
            ("deadline", json!({"type": "integer", "minimum": 0, "maximum": 253_402_300_799_999_u64})),
            ("settlementType", names(SETTLEMENT_TYPES)),
        ]),
        &[
            ("clientReference", id()),
            ("inputAmountMinor", amount()),
            ("minOutputAmountMinor", amount()),
            ("input", reference("InputBounds")),
            ("output", reference("OutputBounds")),
            ("quoteId", id()),
            ("outputRecipient", id()),
            ("beneficiary", reference("Beneficiary")),
            ("permit", reference("Permit")),
            ("actorType", names(ACTOR_TYPES)),
            ("side", names(SIDES)),
            ("metadata", metadata),
        ],
    );
    let given = |names: [&str; 2], kind: &str| object(&names.map(|name| (name, json!({ "type": kind }))));
    intent["anyOf"] = json!([
        given(["inputAmountMinor", "minOutputAmountMinor"], "string"),
        given(["input", "output"], "object"),
    ]);
    intent
}

fn older() -> Value {
    let constraints = with_nullable(
        object(&[]),
        &[
            ("maxSlippageBps", bps()),
            ("maxFeeBps", bps()),
            ("settlementPref", one_of(&["onchain", "offchain", "auto"])),
            ("ttlMs", json!({"type": "integer", "minimum": 1000, "maximum": 604_800_000})),
        ],
    );
    with_nullable(
        object(&[
            ("pair", object(&[("source", id()), ("target", id())])),
            ("side", one_of(&["sell"])),
            ("amount", json!({"type": "string", "pattern": "^[0-9]{1,20}([.][0-9]{1,18})?$"})),
            ("strategy", one_of(&["instant", "optimized", "scheduled"])),
        ]),
        &[("constraints", constraints), ("clientRef", id())],
    )
}
