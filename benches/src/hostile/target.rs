//! The service of a drill: a sandbox, and beside its well-behaved partner another one that is hostile.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::HostileDrill;
use super::promises::Promises;
use crate::crash::process::{Process, text};
use crate::crash::recipients::Recipients;
use crate::drill::PATIENCE;
use crate::harness::ACCOUNT;
use crate::http::Keys;
use crate::wire::Login;

const HOSTILE: &str = "mallory";
/// How many endpoints the hostile partner has, each with a key of its own.
pub(super) const HOSTILE_ENDPOINTS: usize = 5;
/// BeginString and CompID of the hostile partner's sessions: one for each version walks its dictionary.
const HOSTILE_SESSIONS: [(&str, &str); 7] = [
    ("FIX.4.4", "MAL44"),
    ("FIX.4.2", "MAL42"),
    ("FIXT.1.1", "MAL50"),
    ("FIX.4.4", "MALFLOOD"),
    ("FIX.4.4", "MALVOLLEY"),
    ("FIX.4.4", "MALNOISE"),
    ("FIX.4.4", "MALPOISON"),
];

#[derive(Clone)]
pub(super) struct Peer {
    pub target: Target,
    pub login: Login,
    pub promises: Promises,
    pub seed: u64,
    /// Between two requests or batches.
    pub pause: Duration,
    pub stop: CancellationToken,
}

#[derive(Debug, Clone)]
pub(super) struct Target {
    pub ready: Value,
    pub http: SocketAddr,
    pub fix: SocketAddr,
    pub metrics: String,
    pub pid: u32,
    pub good: Keys,
    /// Whether a bank is paid by files and not the simulated one.
    pub has_bank: bool,
    /// Beneficiaries whose payouts succeed at once, in dollars and in euros.
    pub accounts: [String; 2],
    /// The well-behaved partner's sessions, one for each version.
    pub good_sessions: Vec<Login>,
    pub hostile: Keys,
    /// Further keys of the hostile partner, for a webhook endpoint each.
    pub hostile_endpoints: Vec<Keys>,
    pub hostile_sessions: Vec<Login>,
}

impl Target {
    /// Starts a sandbox in `dir`, whose webhooks trust the authority of this file, and sets the hostile partner up.
    pub(super) async fn start(
        plan: &HostileDrill,
        dir: &Path,
        authority: &Path,
    ) -> anyhow::Result<(Process, Self)> {
        let (binary, has_bank) = (plan.program.path()?, plan.bank_files);
        let authority = authority.to_str().context("a file with a name in UTF-8")?;
        let mut args = vec!["--webhook-allow-private", "--webhook-ca", authority];
        args.extend(has_bank.then_some("--bank-files"));
        let args = args.into_iter().map(str::to_owned).collect();
        let mut process = Process::start_with(&binary, dir, args)?;
        let ready = process.ready_within(PATIENCE).await?;
        let accounts = if has_bank {
            Recipients::register_straight(&|words| process.command(words))?
        } else {
            [ACCOUNT, ACCOUNT].map(str::to_owned)
        };
        let hostile = add_hostile_partner(&process)?;
        let mut hostile_endpoints = Vec::new();
        for _ in 0..HOSTILE_ENDPOINTS {
            hostile_endpoints.push(issue_key(&process)?);
        }
        let hostile_sessions = add_hostile_sessions(&process)?;
        let port = ready.pointer("/fix/port").and_then(Value::as_u64).context("the FIX port")?;
        let sessions = ready.pointer("/fix/sessions").and_then(Value::as_array).context("sessions")?;
        let target = Self {
            http: text(&ready, "/http")?.trim_start_matches("http://").parse()?,
            fix: SocketAddr::from(([127, 0, 0, 1], u16::try_from(port)?)),
            pid: process.pid(),
            good: Keys::of(&ready["partner"])?,
            good_sessions: sessions.iter().map(Login::of).collect::<anyhow::Result<_>>()?,
            metrics: text(&ready, "/metrics")?.to_owned(),
            has_bank,
            accounts,
            hostile,
            hostile_endpoints,
            hostile_sessions,
            ready,
        };
        Ok((process, target))
    }
}

fn add_hostile_partner(dvp: &Process) -> anyhow::Result<Keys> {
    dvp.command(&["partner", "create", "--name", HOSTILE, "--tier", "enterprise", "--limit", "600000"])?;
    for asset in ["USD", "EUR"] {
        let id = format!("hostile-{asset}");
        let deposit = ["partner", "deposit", "--name", HOSTILE, "--env", "test", "--asset", asset];
        dvp.command(&[&deposit[..], &["--amount-minor", "10000000000", "--id", &id]].concat())?;
    }
    issue_key(dvp)
}

fn issue_key(dvp: &Process) -> anyhow::Result<Keys> {
    Keys::of(&dvp.command(&["key", "issue", "--partner", HOSTILE, "--env", "test"])?)
}

fn add_hostile_sessions(dvp: &Process) -> anyhow::Result<Vec<Login>> {
    let mut sessions = Vec::new();
    for (begin_string, comp_id) in HOSTILE_SESSIONS {
        let password = format!("password-of-{comp_id}");
        let mut args =
            vec!["fix-session", "add", "--begin-string", begin_string, "--sender-comp-id", comp_id];
        args.extend(["--partner", HOSTILE, "--password", &password]);
        if begin_string == "FIXT.1.1" {
            args.extend(["--default-appl-ver-id", "9"]);
        }
        dvp.command(&args)?;
        sessions.push(Login {
            begin_string: begin_string.to_owned(),
            comp_id: comp_id.to_owned(),
            username: HOSTILE.to_owned(),
            password,
            target: "DVP".to_owned(),
        });
    }
    Ok(sessions)
}
