//! The output of commands: JSON for programs, lines for people. Nothing else is written to standard output.

use std::io::Write;

use dvp_store::StoreError;
use serde_json::{Value, json};

/// Prints `value`, or the lines a person reads instead. An empty list has none: standard error then says so, and a
/// program that counts lines counts none.
pub(crate) fn print(json: bool, value: &Value, lines: impl FnOnce() -> Vec<String>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{value}")?;
    } else {
        let lines = lines();
        for line in &lines {
            writeln!(out, "{line}")?;
        }
        if let (true, Some(nothing)) = (lines.is_empty(), nothing(value)) {
            writeln!(std::io::stderr().lock(), "{nothing}")?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Prints the rows of a list under its name.
pub(crate) fn print_list<T>(
    json: bool,
    name: &str,
    rows: &[T],
    view: impl Fn(&T) -> Value,
    line: impl Fn(&T) -> String,
) -> anyhow::Result<()> {
    let all: Vec<Value> = rows.iter().map(view).collect();
    print(json, &json!({ name: all }), || rows.iter().map(line).collect())
}

/// All rows of a list that is read in pages, each from the row after an id on.
pub(crate) async fn all_pages<T>(
    id: impl Fn(&T) -> &str,
    mut read: impl AsyncFnMut(&str) -> Result<Vec<T>, StoreError>,
) -> anyhow::Result<Vec<T>> {
    let mut all: Vec<T> = Vec::new();
    loop {
        let page = read(all.last().map_or("", &id)).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// What the empty list of a document says to a person.
fn nothing(value: &Value) -> Option<String> {
    let fields = value.as_object()?;
    let (name, _) = fields.iter().find(|(_, field)| field.as_array().is_some_and(Vec::is_empty))?;
    Some(format!("no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_is_named() {
        let said = |value| nothing(&value);
        assert_eq!(said(json!({"recalls": []})).as_deref(), Some("no recalls"));
        assert_eq!(said(json!({"sessionId": "x", "commands": []})).as_deref(), Some("no commands"));
        assert_eq!(said(json!({"recalls": [1]})), None);
        assert_eq!(said(json!([])), None);
    }
}
