//! A figure beside the floor it is measured against.

use serde_json::{Value, json};

/// Something a second, and the floor's in the same run.
#[derive(Debug, Clone)]
pub struct Figure {
    pub name: &'static str,
    pub value: u64,
    pub unit: &'static str,
    pub floor: u64,
}

impl Figure {
    /// Value over floor, to three places.
    pub fn ratio(&self) -> String {
        let thousandths = self.value.saturating_mul(1000).checked_div(self.floor).unwrap_or(0);
        format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
    }

    /// One line of JSON.
    pub fn json(&self) -> Value {
        let ratio: Value = serde_json::from_str(&self.ratio()).unwrap_or(Value::Null);
        json!({"name": self.name, "value": self.value, "unit": self.unit, "floor": self.floor, "ratio": ratio})
    }
}

/// How many a second.
pub fn per_second(count: usize, elapsed: std::time::Duration) -> u64 {
    let nanos = elapsed.as_nanos().max(1);
    let count = u128::try_from(count).unwrap_or(u128::MAX);
    u64::try_from(count.saturating_mul(1_000_000_000) / nanos).unwrap_or(u64::MAX)
}
