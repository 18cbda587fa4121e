//! A report's rows as RFC 4180 text: one line a row, lists joined by semicolons. No field is a
//! formula to a spreadsheet.

use std::borrow::Cow;

use dvp_core::ledger::statements::csv::field;

use super::row::{Money, Row};

const HEADER: &str = "clientReference,reference,intentId,status,inputAmountMinor,inputCurrency,inputExponent,\
    outputAmountMinor,outputCurrency,outputExponent,fees,lockTxHash,settleTxHash,receiptHash,anchorTxHash,acceptedAt,\
    terminalAt,chainState,breaks";

pub(super) fn table(rows: &[Row]) -> String {
    let mut out = format!("{HEADER}\r\n");
    for row in rows {
        let fields = fields(row);
        let quoted: Vec<String> = fields.iter().map(|text| field(text)).collect();
        out.push_str(&quoted.join(","));
        out.push_str("\r\n");
    }
    out
}

fn fields(row: &Row) -> Vec<Cow<'_, str>> {
    fn or_empty(text: Option<&String>) -> Cow<'_, str> {
        text.map_or(Cow::Borrowed(""), |text| Cow::Borrowed(text))
    }
    let money = |money: &Money| {
        let Money { amount_minor, currency, exponent } = money;
        [amount_minor.to_string(), currency.clone(), exponent.to_string()].map(Cow::Owned)
    };
    let fees: Vec<String> = row
        .fees
        .iter()
        .map(|fee| {
            let kind = serde_json::to_value(fee.kind).unwrap_or_default();
            let collection = serde_json::to_value(fee.collection).unwrap_or_default();
            let name = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            format!("{}:{}:{}:{}", name(&kind), name(&collection), fee.amount_minor, fee.currency)
        })
        .collect();
    let mut all = vec![
        or_empty(row.client_reference.as_ref()),
        row.reference.as_str().into(),
        row.intent_id.as_str().into(),
        row.status.into(),
    ];
    all.extend(money(&row.input));
    all.extend(money(&row.output));
    all.extend([
        fees.join(";").into(),
        or_empty(row.lock_tx_hash.as_ref()),
        or_empty(row.settle_tx_hash.as_ref()),
        or_empty(row.receipt_hash.as_ref()),
        or_empty(row.anchor_tx_hash.as_ref()),
        row.accepted_at.as_str().into(),
        or_empty(row.terminal_at.as_ref()),
        or_empty(row.chain_state.as_ref()),
        row.breaks.join(";").into(),
    ]);
    all
}
