//! The output of commands: JSON for programs, lines for people. Nothing else is written to standard output.

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
