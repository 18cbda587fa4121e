//! What commands print: JSON for programs, lines for people. On standard output, and nothing else goes there.

use std::io::Write;

use serde_json::Value;

/// Prints `value`, or the lines a person reads instead.
pub(crate) fn print(json: bool, value: &Value, lines: impl FnOnce() -> Vec<String>) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{value}")?;
    } else {
        for line in lines() {
            writeln!(out, "{line}")?;
        }
    }
    out.flush()?;
    Ok(())
}
