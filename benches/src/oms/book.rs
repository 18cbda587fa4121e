//! What an order management system knows of its orders: the reports, each counted once, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr as _;

use anyhow::{Context as _, ensure};
use dvp_fix::codec::Message;
use rust_decimal::{Decimal, RoundingStrategy};

use crate::wire::readable;

/// OrdStatus of an order that has ended.
const ENDED: [&str; 6] = ["2", "3", "4", "8", "C", "E"];

#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) order_id: String,
    pub(super) status: String,
    /// Of the fills: quantity, and what came in by them.
    pub(super) filled: Decimal,
    pub(super) net: Decimal,
    pub(super) quantity: Decimal,
    pub(super) text: String,
}

impl Line {
    pub(super) fn is_ended(&self) -> bool {
        ENDED.contains(&self.status.as_str())
    }
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) lines: BTreeMap<String, Line>,
    counted: BTreeSet<String>,
    is_42: bool,
}

impl Book {
    pub(super) fn of(version: &str) -> Self {
        Self { is_42: version == "FIX.4.2", ..Self::default() }
    }

    pub(super) fn place(&mut self, id: &str, quantity: Decimal) {
        self.lines.insert(id.to_owned(), Line { quantity, ..Line::default() });
    }

    pub(super) fn open(&self) -> usize {
        self.lines.values().filter(|line| !line.is_ended()).count()
    }

    /// An ExecutionReport, which is counted once however often it comes. An error is a number that does not add up.
    pub(super) fn take(&mut self, report: &Message) -> anyhow::Result<()> {
        let text = |tag| report.text(tag).unwrap_or_default();
        let number = |tag| -> anyhow::Result<Decimal> {
            report.text(tag).map_or(Ok(Decimal::ZERO), |value| {
                Decimal::from_str(value).with_context(|| format!("tag {tag}: {}", readable(report)))
            })
        };
        let is_status = text(20) == "3" || text(150) == "I";
        // A cancellation has the order's ClOrdID as OrigClOrdID.
        let id = [text(41), text(11)].into_iter().find(|id| self.lines.contains_key(*id));
        let Some(line) = id.and_then(|id| self.lines.get_mut(id)) else {
            anyhow::bail!("a report of no order of ours: {}", readable(report));
        };
        if !self.counted.insert(text(17).to_owned()) {
            return Ok(());
        }
        let is_fill = !is_status && (text(150) == "F" || self.is_42 && matches!(text(150), "1" | "2"));
        if is_fill {
            let (quantity, gross) = (number(32)?, number(381)?);
            let product = (quantity * number(31)?).round_dp_with_strategy(2, RoundingStrategy::ToZero);
            let fees = number(12)? + number(137)?;
            let net = number(if self.is_42 { 119 } else { 118 })?;
            // FIX 4.2 may not have the gross amount.
            ensure!(
                gross == product || self.is_42 && gross.is_zero(),
                "381 is not 32 × 31: {}",
                readable(report)
            );
            ensure!(net == product - fees, "the net amount is not gross less fees: {}", readable(report));
            line.filled += quantity;
            line.net += net;
        }
        let is_rejected = text(39) == "8";
        let (done, left) = (number(14)?, number(151)?);
        ensure!(is_status || done == line.filled, "14 is not the sum of the fills: {}", readable(report));
        text(37).clone_into(&mut line.order_id);
        text(39).clone_into(&mut line.status);
        text(58).clone_into(&mut line.text);
        let expected = if line.is_ended() { Decimal::ZERO } else { line.quantity - done };
        ensure!(left == expected || is_rejected, "151 is not what is left: {}", readable(report));
        Ok(())
    }
}
