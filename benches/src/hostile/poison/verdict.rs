//! What became of the poisoned orders: each has ended by itself, rests until the time that it named, or is listed with
//! its alarm. Two operators then close what is listed, so that the books can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};

use super::{Accepted, Surface};
use crate::crash::process::{Process, text};
use crate::drill::until;
use crate::hostile::loops::Samples;
use crate::hostile::promises::Promises;
use crate::hostile::target::Target;

/// An order that is listed may still be about to end.
const LISTED_AFTER: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// For the orders that operators have closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);
/// States in which an order waits for a time that it named itself: a range, and orders of the older surface.
const RESTING: [&str; 4] = ["resting", "pending", "solving", "queued"];

#[derive(Debug, Clone, Default)]
pub(in crate::hostile) struct Endings {
    /// By the state in which they ended.
    pub ended: BTreeMap<String, u64>,
    /// By what they are listed as.
    pub listed: BTreeMap<String, u64>,
    /// They rest until a deadline of their own choice.
    pub resting: u64,
}

pub(in crate::hostile) struct Inspector<'a> {
    pub process: &'a Process,
    pub target: &'a Target,
    pub promises: &'a Promises,
    pub patience: Duration,
}

struct Open {
    reference: String,
    state: String,
    case: String,
    /// It need not end before.
    deadline: DateTime<Utc>,
}

impl Inspector<'_> {
    pub(in crate::hostile) async fn look(&self, accepted: &[Accepted]) -> anyhow::Result<Endings> {
        let mut conn = PgConnection::connect(text(&self.target.ready, "/databaseUrl")?).await?;
        let began = Instant::now();
        loop {
            let (mut endings, open) = self.states(&mut conn, accepted).await?;
            let mut silent = Vec::new();
            let mut unexplained = Vec::new();
            let lists = if open.is_empty() { Lists::default() } else { self.lists()? };
            for one in open {
                if RESTING.contains(&one.state.as_str()) && one.deadline > Utc::now() {
                    endings.resting += 1;
                } else if let Some(listed) = lists.get(&one.reference) {
                    *endings.listed.entry(listed.clone()).or_default() += 1;
                    silent.push(one);
                } else {
                    unexplained.push(one);
                }
            }
            let is_over = began.elapsed() > self.patience;
            if is_over || (unexplained.is_empty() && (silent.is_empty() || began.elapsed() > LISTED_AFTER)) {
                for Open { reference, state, case, .. } in unexplained {
                    let promise = "a poisoned order ends by itself or is listed";
                    self.promises.broken(promise, || format!("{reference} {state}: {case}"));
                }
                self.check_alarms(&endings).await?;
                self.close(&mut conn, accepted, &silent).await?;
                return Ok(endings);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The orders that have ended, counted, and the others.
    async fn states(
        &self,
        conn: &mut PgConnection,
        accepted: &[Accepted],
    ) -> anyhow::Result<(Endings, Vec<Open>)> {
        type Row = (String, String, String, bool, DateTime<Utc>);
        let cases: BTreeMap<&str, &str> =
            accepted.iter().map(|one| (one.id.as_str(), one.case.as_str())).collect();
        let of = |is: &dyn Fn(&Surface) -> bool| -> Vec<String> {
            accepted.iter().filter(|one| is(&one.surface)).map(|one| one.id.clone()).collect()
        };
        let rows: Vec<Row> = sqlx::query_as(
            "select e.intent_id, e.reference, e.state_name, e.terminal_at is not null, \
                    to_timestamp((e.terms #>> '{request,deadline}')::float8 / 1000) \
             from execution e where e.intent_id = any($1) \
             union all \
             select o.cl_ord_id, e.reference, e.state_name, e.terminal_at is not null, \
                    to_timestamp((e.terms #>> '{request,deadline}')::float8 / 1000) \
             from fix_order o join execution e using (reference) where o.cl_ord_id = any($2) and o.session_id = any($3) \
             union all \
             select l.intent_id, l.intent_id, coalesce(e.state_name, l.stage), \
                    coalesce(e.terminal_at is not null, l.stage in ('expired', 'rejected', 'cancelled')), l.expires_at \
             from legacy_intent l left join execution e using (reference) where l.intent_id = any($4)",
        )
        .bind(of(&|surface| *surface == Surface::Rest))
        .bind(of(&|surface| matches!(surface, Surface::Fix(_))))
        .bind(self.target.hostile_sessions.iter().map(|login| login.session_id()).collect::<Vec<_>>())
        .bind(of(&|surface| *surface == Surface::Legacy))
        .fetch_all(conn)
        .await?;
        let (mut endings, mut open, mut known) = (Endings::default(), Vec::new(), BTreeSet::new());
        for (id, reference, state, has_ended, deadline) in rows {
            let case = cases.get(id.as_str()).copied().unwrap_or_default().to_owned();
            known.insert(id);
            if has_ended {
                *endings.ended.entry(state).or_default() += 1;
            } else {
                open.push(Open { reference, state, case, deadline });
            }
        }
        for one in accepted.iter().filter(|one| !known.contains(&one.id)) {
            let promise = "an accepted poisoned order is stored";
            self.promises.broken(promise, || format!("{} {}", one.id, one.case));
        }
        Ok((endings, open))
    }

    fn lists(&self) -> anyhow::Result<Lists> {
        let stuck =
            self.process.findings(&["execution", "list", "--stuck-for-secs", "0", "--limit", "10000"])?;
        let troubled = self
            .process
            .findings(&["chain", "command", "list", "--state", "troubled", "--limit", "10000"])?;
        let mut lists = Lists::default();
        for row in rows(&stuck, "executions")? {
            let said = |name: &str| row[name].as_str().map(str::to_owned);
            let Some(reference) = said("reference") else { continue };
            let is_called = row["attempts"].as_i64().is_some_and(|attempts| attempts > 1);
            let leg =
                said("waitsFor").filter(|what| is_called && ["payout", "offramp"].contains(&what.as_str()));
            if let Some(what) = said("alarm").or(leg.map(|leg| format!("{SILENT}{leg}"))) {
                lists.insert(reference, what);
            }
        }
        for row in rows(&troubled, "commands")? {
            if let Some(reference) = row["reference"].as_str() {
                lists.insert(reference.to_owned(), TROUBLED.to_owned());
            }
        }
        let set_aside = self.process.findings(&["work", "list", "--limit", "10000"])?;
        for row in rows(&set_aside, "setAside")? {
            if let Some(about) = row["about"].as_str() {
                lists.entry(about.to_owned()).or_insert_with(|| SET_ASIDE.to_owned());
            }
        }
        Ok(lists)
    }

    /// What is listed is shown by the metric of its alarm.
    async fn check_alarms(&self, endings: &Endings) -> anyhow::Result<()> {
        if endings.listed.is_empty() {
            return Ok(());
        }
        let samples = Samples::read(&self.target.metrics).await?;
        for listed in endings.listed.keys() {
            let metric = match listed.as_str() {
                TROUBLED => "dvp_chain_commands_troubled",
                SET_ASIDE => "dvp_set_aside_items",
                leg if leg.starts_with(SILENT) => "dvp_rail_calls_total{unanswered}",
                overdue if overdue.contains("timelock") => "dvp_payouts_overdue",
                owed if owed.contains("owed") => "dvp_debts",
                _ => "dvp_bank_alarms",
            };
            let is_set = match metric {
                "dvp_rail_calls_total{unanswered}" => {
                    let of = |result: &str| samples.sum("dvp_rail_calls_total", &[("result", result)]);
                    of("unconfirmed") + of("unavailable") > 0
                }
                metric => samples.sum(metric, &[]) > 0,
            };
            let promise = "what is listed is shown by the metric of its alarm";
            self.promises.check(is_set, promise, || format!("{listed}: {metric} is 0"));
        }
        Ok(())
    }

    /// Two operators fail payouts that the rail never answers.
    async fn close(
        &self,
        conn: &mut PgConnection,
        accepted: &[Accepted],
        listed: &[Open],
    ) -> anyhow::Result<()> {
        let unanswered: Vec<&Open> = listed.iter().filter(|one| one.state == "paying").collect();
        for one in &unanswered {
            for operator in ["jo", "kim"] {
                let reference = one.reference.as_str();
                let mut words =
                    vec!["execution", "resolve", "--reference", reference, "--confirm", reference];
                words.extend(["--action", "fail", "--leg", "payout", "--as", operator]);
                words.extend(["--reason", "never answered", "--evidence", "the bank knows no payment"]);
                self.process.command(&words).with_context(|| one.case.clone())?;
            }
        }
        let mut left = Vec::new();
        let closed = until(CLOSED_WITHIN, "operators close what is listed", async || {
            let (_, open) = self.states(conn, accepted).await?;
            left.clone_from(&unanswered);
            left.retain(|one| open.iter().any(|still| still.reference == one.reference));
            Ok(left.is_empty().then_some(()))
        });
        let Err(error) = closed.await else { return Ok(()) };
        let one = left.first().ok_or(error)?;
        let promise = "two operators close what the rail never answers";
        self.promises.broken(promise, || format!("{}: {}", one.reference, one.case));
        Ok(())
    }
}

/// A leg whose rail has been called more than once.
const SILENT: &str = "unanswered ";
const TROUBLED: &str = "a refused command of the chain";
const SET_ASIDE: &str = "set aside";

/// What the commands of operators list, by reference.
type Lists = BTreeMap<String, String>;

fn rows<'a>(list: &'a Value, name: &str) -> anyhow::Result<&'a Vec<Value>> {
    let rows = list[name].as_array().with_context(|| format!("{name} of {list}"))?;
    ensure!(rows.len() < 10_000, "the list of {name} is cut");
    Ok(rows)
}
