//! The service of a drill: a sandbox, and beside its well-behaved partner another one that is hostile.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::wire::Login;
use crate::crash::process::Process;
use crate::crash::rest::text;

const START_WITHIN: Duration = Duration::from_secs(300);
const HOSTILE: &str = "mallory";
/// BeginString and CompID of the hostile partner's sessions: one for each version walks its dictionary.
const HOSTILE_SESSIONS: [(&str, &str); 6] = [
    ("FIX.4.4", "MAL44"),
    ("FIX.4.2", "MAL42"),
    ("FIXT.1.1", "MAL50"),
    ("FIX.4.4", "MALFLOOD"),
    ("FIX.4.4", "MALVOLLEY"),
    ("FIX.4.4", "MALNOISE"),
];

/// The keys with which a partner signs its requests.
#[derive(Debug, Clone)]
pub(super) struct PartnerKeys {
    pub api_key: String,
    pub signing_secret: String,
}

/// The service's addresses and credentials.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// The ready file.
    pub ready: Value,
    pub http: SocketAddr,
    pub fix: SocketAddr,
    pub pid: u32,
    pub good: PartnerKeys,
    /// The well-behaved partner's sessions, one for each version.
    pub good_sessions: Vec<Login>,
    pub hostile: PartnerKeys,
    pub hostile_sessions: Vec<Login>,
    /// The published dictionaries of FIX 4.4, 4.2 and 5.0 SP2, as the first hostile sessions are.
    pub dictionaries: Vec<String>,
}

fn login(session: &Value) -> anyhow::Result<Login> {
    let field = |name: &str| session.get(name).and_then(Value::as_str).map(str::to_owned);
    let found = |name: &str| field(name).with_context(|| format!("{name} of a session"));
    Ok(Login {
        begin_string: found("beginString")?,
        comp_id: found("senderCompId")?,
        username: found("username")?,
        password: found("password")?,
    })
}

impl Target {
    /// Starts a sandbox in `dir` and sets the hostile partner up.
    pub(super) async fn start(binary: &Path, dir: &Path) -> anyhow::Result<(Process, Self)> {
        let mut process = Process::start(binary, dir)?;
        let ready = process.ready_within(START_WITHIN).await?;
        let dvp = Cli { binary, data: &dir.join("data") };
        let hostile = add_hostile_partner(&dvp).await?;
        let hostile_sessions = add_hostile_sessions(&dvp).await?;
        let mut dictionaries = Vec::new();
        for version in ["FIX.4.4", "FIX.4.2", "FIX.5.0SP2"] {
            dictionaries.push(run(binary, &["fix-session", "dictionary", "--version", version]).await?);
        }
        let port = ready.pointer("/fix/port").and_then(Value::as_u64).context("the FIX port")?;
        let sessions = ready.pointer("/fix/sessions").and_then(Value::as_array).context("sessions")?;
        let target = Self {
            http: text(&ready, "/http")?.trim_start_matches("http://").parse()?,
            fix: SocketAddr::from(([127, 0, 0, 1], u16::try_from(port)?)),
            pid: process.pid(),
            good: PartnerKeys {
                api_key: text(&ready, "/partner/apiKey")?.to_owned(),
                signing_secret: text(&ready, "/partner/signingSecret")?.to_owned(),
            },
            good_sessions: sessions.iter().map(login).collect::<anyhow::Result<_>>()?,
            hostile,
            hostile_sessions,
            dictionaries,
            ready,
        };
        Ok((process, target))
    }
}

/// The program's own commands for the drill's data directory.
struct Cli<'a> {
    binary: &'a Path,
    data: &'a Path,
}

impl Cli<'_> {
    async fn run(&self, args: &[&str]) -> anyhow::Result<Value> {
        let dir = self.data.to_str().context("a directory with a name in UTF-8")?;
        let said = run(self.binary, &[args, &["--dir", dir, "--json"]].concat()).await?;
        serde_json::from_str(&said).with_context(|| format!("dvp {}: {said}", args.join(" ")))
    }
}

async fn run(binary: &Path, args: &[&str]) -> anyhow::Result<String> {
    let command = tokio::process::Command::new(binary).args(args).stdin(Stdio::null()).output().await?;
    let errors = String::from_utf8_lossy(&command.stderr);
    ensure!(command.status.success(), "dvp {}: {errors}", args.join(" "));
    Ok(String::from_utf8(command.stdout)?)
}

async fn add_hostile_partner(dvp: &Cli<'_>) -> anyhow::Result<PartnerKeys> {
    dvp.run(&["partner", "create", "--name", HOSTILE, "--tier", "enterprise", "--limit", "600000"]).await?;
    for asset in ["USD", "EUR"] {
        let id = format!("hostile-{asset}");
        let deposit = ["partner", "deposit", "--name", HOSTILE, "--env", "test", "--asset", asset];
        dvp.run(&[&deposit[..], &["--amount-minor", "10000000000", "--id", &id]].concat()).await?;
    }
    let issued = dvp.run(&["key", "issue", "--partner", HOSTILE, "--env", "test"]).await?;
    Ok(PartnerKeys {
        api_key: text(&issued, "/apiKey")?.to_owned(),
        signing_secret: text(&issued, "/signingSecret")?.to_owned(),
    })
}

async fn add_hostile_sessions(dvp: &Cli<'_>) -> anyhow::Result<Vec<Login>> {
    let mut sessions = Vec::new();
    for (begin_string, comp_id) in HOSTILE_SESSIONS {
        let password = format!("password-of-{comp_id}");
        let mut args =
            vec!["fix-session", "add", "--begin-string", begin_string, "--sender-comp-id", comp_id];
        args.extend(["--partner", HOSTILE, "--password", &password]);
        if begin_string == "FIXT.1.1" {
            args.extend(["--default-appl-ver-id", "9"]);
        }
        dvp.run(&args).await?;
        sessions.push(Login {
            begin_string: begin_string.to_owned(),
            comp_id: comp_id.to_owned(),
            username: HOSTILE.to_owned(),
            password,
        });
    }
    Ok(sessions)
}
