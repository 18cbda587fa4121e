//! A figure beside the floor it is measured against.

use std::time::Duration;

use serde_json::{Value, json};

/// Something a second, and the floor's in the same run.
#[derive(Debug, Clone)]
pub struct Figure {
    pub name: String,
    pub value: u64,
    pub unit: &'static str,
    pub floor: u64,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: u64, unit: &'static str, floor: u64) -> Self {
        Self { name: name.into(), value, unit, floor }
    }

    /// One line of JSON, with value over floor to three places.
    pub fn json(&self) -> Value {
        let ratio = decimal(self.value.saturating_mul(1000).checked_div(self.floor).unwrap_or(0));
        json!({"name": self.name, "value": self.value, "unit": self.unit, "floor": self.floor, "ratio": ratio})
    }
}

pub(crate) fn decimal(thousandths: u64) -> Value {
    serde_json::from_str(&format!("{}.{:03}", thousandths / 1000, thousandths % 1000)).unwrap_or(Value::Null)
}

/// The lines of a run, and which goals were missed.
#[derive(Debug, Default)]
pub struct Figures {
    pub lines: Vec<Value>,
    pub missed: String,
}

impl From<Vec<Figure>> for Figures {
    fn from(figures: Vec<Figure>) -> Self {
        Self { lines: figures.iter().map(Figure::json).collect(), missed: String::new() }
    }
}

impl From<Figure> for Figures {
    fn from(figure: Figure) -> Self {
        vec![figure].into()
    }
}

/// The time that this share of a hundred took at most, of sorted times.
pub(crate) fn within(times: &[Duration], share: usize) -> Duration {
    times.get(times.len().saturating_sub(1) * share / 100).copied().unwrap_or_default()
}

pub fn per_second(count: usize, elapsed: Duration) -> u64 {
    let nanos = elapsed.as_nanos().max(1);
    let count = u128::try_from(count).unwrap_or(u128::MAX);
    u64::try_from(count.saturating_mul(1_000_000_000) / nanos).unwrap_or(u64::MAX)
}
