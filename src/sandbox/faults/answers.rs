//! The faults of single calls and their answers.

use serde_json::{Value, json};

use super::{Dice, failure};

/// In a thousand answers that it could spoil.
const LOST_LOG: u64 = 40;
const LOST_TAIL: u64 = 30;
const EMPTY: u64 = 30;
const DOUBLED: u64 = 40;
const SHUFFLED: u64 = 60;
const REMOVED: u64 = 30;
const LAGGING: u64 = 60;
const NOTHING: u64 = 20;
const RANGES: u64 = 250;
const FORGOTTEN: u64 = 20;
/// The longest range it takes when it refuses ranges.
const RANGE_LIMIT: u64 = 40;

/// `0x1f` as a number.
pub(super) fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The answer that it cannot, to a call that a good node would answer.
pub(super) fn refused(call: &Value, dice: &Dice) -> Option<Value> {
    match call["method"].as_str()? {
        "eth_getLogs" => {
            let filter = &call["params"][0];
            let (from, to) = (filter["fromBlock"].as_str()?, filter["toBlock"].as_str()?);
            let (from, to) = (number(from)?, number(to)?);
            if to.saturating_sub(from) < RANGE_LIMIT || !dice.chance(RANGES) {
                return None;
            }
            let works = from + RANGE_LIMIT - 1;
            let words = [
                (
                    -32005,
                    format!(
                        "query returned more than 10000 results. Try with this block range [{from:#x}, {works:#x}]."
                    ),
                ),
                (-32614, format!("eth_getLogs is limited to a {RANGE_LIMIT} range")),
                (-32600, "block range is too wide".to_owned()),
                (-32000, format!("exceed maximum block range: {RANGE_LIMIT}")),
            ];
            let (code, message) = &words[dice.index(words.len())];
            Some(failure(call, *code, message))
        }
        "eth_call" if dice.chance(FORGOTTEN) => Some(failure(call, -32000, "header not found")),
        _ => None,
    }
}

/// By how many blocks a question about the head is answered too low, if it is.
pub(super) fn earlier(call: &Value, dice: &Dice) -> Option<u64> {
    let about_head = call["method"] == "eth_getBlockByNumber"
        && matches!(call["params"][0].as_str(), Some("latest" | "finalized" | "safe"));
    (about_head && dice.chance(LAGGING)).then(|| 1 + dice.below(4))
}

/// Injects faults into an answer; returns whether it did.
pub(super) fn spoil(method: &str, result: &mut Value, dice: &Dice) -> bool {
    match method {
        "eth_getLogs" => result.as_array_mut().is_some_and(|logs| spoil_logs(logs, dice)),
        "eth_getBlockByNumber"
        | "eth_getBlockByHash"
        | "eth_getTransactionReceipt"
        | "eth_getBlockReceipts" => {
            let spoiled = dice.chance(NOTHING);
            if spoiled {
                *result = Value::Null;
            }
            spoiled
        }
        _ => false,
    }
}

fn spoil_logs(logs: &mut Vec<Value>, dice: &Dice) -> bool {
    let before = logs.clone();
    if dice.chance(EMPTY) {
        logs.clear();
    }
    if !logs.is_empty() && dice.chance(LOST_LOG) {
        logs.remove(dice.index(logs.len()));
    }
    if dice.chance(LOST_TAIL) {
        logs.truncate(logs.len() / 2);
    }
    if dice.chance(DOUBLED) {
        logs.extend(logs.last().cloned());
    }
    if dice.chance(REMOVED)
        && let Some(mut log) = logs.first().cloned()
    {
        log["removed"] = json!(true);
        log["blockHash"] = json!(format!("0x{}", "dd".repeat(32)));
        logs.push(log);
    }
    if dice.chance(SHUFFLED) {
        logs.reverse();
    }
    *logs != before
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn every_fault_of_logs_occurs() {
        let dice = Dice(Mutex::new(1));
        let (mut fewer, mut more, mut removed, mut reversed, mut untouched) = (0, 0, 0, 0, 0);
        for _ in 0..500 {
            let mut logs: Vec<Value> = (0..4).map(|at| json!({"logIndex": at})).collect();
            let spoiled = spoil_logs(&mut logs, &dice);
            fewer += u32::from(logs.len() < 4);
            more += u32::from(logs.len() > 4);
            removed += u32::from(logs.iter().any(|log| log["removed"] == true));
            reversed += u32::from(logs.first().is_some_and(|log| log["logIndex"] == 3));
            untouched += u32::from(!spoiled);
        }
        let all = [fewer, more, removed, reversed, untouched];
        assert!(all.iter().all(|count| *count > 0), "{all:?}");
    }

    #[test]
    fn only_long_ranges_are_refused() {
        let dice = Dice(Mutex::new(1));
        let call = |to: &str| json!({"id": 1, "method": "eth_getLogs", "params": [{"fromBlock": "0x1", "toBlock": to}]});
        assert!((0..100).any(|_| refused(&call("0xff"), &dice).is_some()));
        assert!((0..100).all(|_| refused(&call("0x2"), &dice).is_none()));
    }
}
