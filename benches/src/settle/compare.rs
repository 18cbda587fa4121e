//! Settlement with the relayer's key in the process, in a token and in a remote signer, in turn: each signer's rate
//! beside the local key's of the same round.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{CALLERS, MeasuredSandbox, SignerKind, Size, to_fiat};
use crate::drill::{name_of, with_log};
use crate::figure::{Figures, decimal, per_second};
use crate::progress;

/// What every signer reaches of the local key's rate, in thousandths: the median of the rounds.
const GOAL: u64 = 800;
/// Orders before those that are measured: connections are open and statements are planned.
const WARM_UP: usize = 50;
const SIGNERS: [SignerKind; 3] = [SignerKind::Local, SignerKind::Pkcs11, SignerKind::Remote];

/// One signer of one round.
#[derive(Debug, Clone, Copy)]
struct Rate {
    round: usize,
    signer: SignerKind,
    /// Orders completed, and anchored, a second, in thousandths.
    completed: u64,
    anchored: u64,
}

impl Rate {
    fn json(&self) -> Value {
        let Self { round, signer, completed, anchored } = self;
        let [completed, anchored] = [*completed, *anchored].map(decimal);
        json!({
            "round": round, "signer": name_of(signer), "completed": completed, "anchored": anchored, "unit": "orders/s",
        })
    }
}

/// A signer's rates over the local key's, round by round, in thousandths.
#[derive(Debug, PartialEq, Eq)]
struct Ratio {
    signer: SignerKind,
    of: &'static str,
    min: u64,
    median: u64,
    max: u64,
}

impl Ratio {
    const fn reached(&self) -> bool {
        self.median >= GOAL
    }

    fn json(&self) -> Value {
        let Self { signer, of, min, median, max } = self;
        let [min, median, max, goal] = [*min, *median, *max, GOAL].map(decimal);
        json!({
            "name": format!("{} of the local key's rate, {of}", name_of(signer)),
            "min": min, "median": median, "max": max, "goal": goal, "reached": self.reached(),
        })
    }
}

/// Measures each signer in a sandbox of its own, `rounds` times, each round beginning with another one.
pub async fn compare(binary: &Path, orders: usize, rounds: usize) -> anyhow::Result<Figures> {
    ensure!(rounds > 0 && orders > 0, "nothing to measure");
    progress::expect(u64::try_from(rounds * SIGNERS.len() * 3)?);
    let mut rates = Vec::new();
    for round in 1..=rounds {
        for turn in 0..SIGNERS.len() {
            let signer = SIGNERS[(round + turn) % SIGNERS.len()];
            let rate = measure(binary, orders, round, signer).await;
            let rate = rate.with_context(|| format!("round {round}, {}", name_of(&signer)))?;
            progress::done(rate.json());
            rates.push(rate);
        }
    }
    let ratios = ratios(&rates)?;
    let lines = rates.iter().map(Rate::json).chain(ratios.iter().map(Ratio::json)).collect();
    let missed = if ratios.iter().all(Ratio::reached) { "" } else { "a signer is too slow" };
    Ok(Figures { lines, missed: missed.to_owned() })
}

async fn measure(binary: &Path, orders: usize, round: usize, signer: SignerKind) -> anyhow::Result<Rate> {
    let (mut place, _files) = MeasuredSandbox::start(binary, signer).await?;
    let outcome = async {
        let size =
            Size { orders: orders + WARM_UP, again: 0, of_one: 0, token_to_token: 0, fiat: 0, anchors: 0 };
        let wallets = place.wallets(size).await?;
        let (warm, measured) = wallets.split_at(WARM_UP);
        place.lot(to_fiat(warm, 0..1)?, CALLERS).await?;
        place.lot(to_fiat(&measured[..orders], 0..1)?, CALLERS).await
    };
    let outcome = with_log(outcome.await, || place.process.log_tail());
    place.process.stop().await?;
    let lot = outcome?;
    let [completed, anchored] =
        [lot.completed, lot.anchored].map(|time| per_second(lot.orders.saturating_mul(1000), time));
    Ok(Rate { round, signer, completed, anchored })
}

fn ratios(rates: &[Rate]) -> anyhow::Result<Vec<Ratio>> {
    let of_round = |round: usize, signer: SignerKind| {
        rates.iter().find(|rate| rate.round == round && rate.signer == signer)
    };
    let mut ratios = Vec::new();
    for signer in SIGNERS.into_iter().filter(|signer| *signer != SignerKind::Local) {
        for (of, rate) in
            [("completed", (|rate| rate.completed) as fn(&Rate) -> u64), ("anchored", |rate| rate.anchored)]
        {
            let mut all = Vec::new();
            for own in rates.iter().filter(|rate| rate.signer == signer) {
                let local = of_round(own.round, SignerKind::Local).context("no rate of the local key")?;
                let ratio = rate(own).saturating_mul(1000).checked_div(rate(local));
                all.push(ratio.context("the local key completed nothing")?);
            }
            all.sort_unstable();
            let (Some(&min), Some(&max)) = (all.first(), all.last()) else { continue };
            ratios.push(Ratio { signer, of, min, median: all[all.len() / 2], max });
        }
    }
    Ok(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signer_is_compared_with_the_local_key_of_its_round_and_judged_by_the_median() {
        let rate = |round, signer, completed| Rate { round, signer, completed, anchored: completed };
        let rates = [
            rate(1, SignerKind::Local, 100_000),
            rate(1, SignerKind::Pkcs11, 79_000),
            rate(2, SignerKind::Pkcs11, 50_000),
            rate(2, SignerKind::Local, 50_000),
            rate(3, SignerKind::Pkcs11, 79_900),
            rate(3, SignerKind::Local, 100_000),
        ];
        let found = ratios(&rates).unwrap();
        let expected = |of| Ratio { signer: SignerKind::Pkcs11, of, min: 790, median: 799, max: 1000 };
        assert_eq!(found, [expected("completed"), expected("anchored")]);
        assert!(!found[0].reached());
        assert_eq!(found[0].json()["median"].to_string(), "0.799");
    }
}
