//! `dvp fix-session certify|certificate`: a counterparty's test session, followed in the message archive, and the signed
//! report of it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use clap::{ArgGroup, Args};
use dvp_core::secrets::Signed;
use dvp_domain::canonical::canonical_json;
use dvp_fix_gateway::certification::{Seen, Step};
use dvp_store::PgConnection;
use dvp_store::durable::{self, Readers};
use dvp_store::fix::admin::{self as fix_admin, ListedSession};
use dvp_store::fix::archive::{self, Stretch, Wanted};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::{Access, ServiceLocation};
use crate::cli::{PlaceArgs, time};
use crate::output::{all_pages, print};

#[derive(Debug, Args)]
pub(crate) struct Certify {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    /// Where the report is written: as JSON, and beside it as plain text with the ending `.txt`.
    #[arg(long, value_name = "FILE")]
    pub report: PathBuf,
    /// Steps that were done after this time count. RFC 3339, or a date for its beginning (UTC); now, if left out.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<DateTime<Utc>>,
    /// How long each step is waited for.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait: u32,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("key").required(true).args(["public_key", "dir", "config"])))]
pub(crate) struct Certificate {
    /// The report as JSON, `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// The service's public key that you trust, in hex.
    #[arg(long, value_name = "KEY")]
    pub public_key: Option<String>,
    /// The directory of a sandbox, whose keys are trusted.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The service's configuration, whose keys are trusted.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// How often the archive is read.
const POLL: Duration = Duration::from_millis(500);
/// How often a step that is waited for is named again.
const REMIND: Duration = Duration::from_secs(15);
const PAGE: i64 = 500;
/// A test session has no more messages.
const MESSAGES_MAX: usize = 20_000;
const REPORT_BYTES_MAX: u64 = 8 << 20;
/// The form of a report.
const VERSION: &str = "fix-certificate-1";

pub(super) async fn certify(args: Certify) -> anyhow::Result<ExitCode> {
    let mut access = Access::open(&args.place).await?;
    let conn = &mut access.conn;
    let session = fix_admin::find(conn, &args.session_id).await?;
    let session = session.with_context(|| format!("there is no session {}", args.session_id))?;
    if let ServiceLocation::Configured(config) = &access.place {
        let is_off = config.fix.as_ref().is_some_and(|fix| fix.archive == Some(false));
        ensure!(!is_off, "fix.archive is false: without the message archive no step can be seen");
    }
    let copy = copy_session(conn, &session).await?;
    let since = args.since.unwrap_or_else(Utc::now);
    let mut follow =
        Follow { conn, session: &session, copy: copy.as_ref(), since, is_quiet: args.place.json };
    let mut steps = Vec::new();
    for step in Step::script(session.drop_copy, copy.is_some()) {
        steps.push(follow.step(step, Duration::from_secs(args.wait.into())).await?);
    }
    let passed = steps.iter().all(|step| step["passed"] == true);
    let report = json!({
        "version": VERSION, "sessionId": session.session_id, "partner": session.partner,
        "env": if session.livemode { "live" } else { "test" },
        "dropCopySessionId": copy.map(|copy| copy.session_id), "since": since, "until": Utc::now(), "passed": passed,
        "steps": steps,
    });
    let Signed { public_key, signature } = access.vault.sign(canonical_json(&report).as_bytes())?;
    let signed = json!({
        "report": report,
        "signature": {
            "algorithm": "Ed25519", "publicKey": hex::encode(public_key), "value": hex::encode(signature),
        },
    });
    let text = serde_json::to_string_pretty(&signed)? + "\n";
    durable::write(&args.report, text.as_bytes(), Readers::Group)?;
    let lines = as_text(&signed);
    let plain = args.report.with_extension("txt");
    durable::write(&plain, (lines.join("\n") + "\n").as_bytes(), Readers::Group)?;
    print(args.place.json, &signed, || {
        let verdict = if passed { "passed" } else { "NOT passed" };
        vec![format!("{verdict}: {} and {}", args.report.display(), plain.display())]
    })?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The session of the same partner that the session's reports are copied to.
async fn copy_session(
    conn: &mut PgConnection,
    session: &ListedSession,
) -> anyhow::Result<Option<ListedSession>> {
    if session.drop_copy {
        return Ok(None);
    }
    let page = async |after: &str| fix_admin::list(conn, after, PAGE).await;
    let all = all_pages(|row: &ListedSession| &row.session_id, page).await?;
    Ok(all.into_iter().find(|other| {
        other.drop_copy
            && other.enabled
            && (&other.partner, other.livemode) == (&session.partner, session.livemode)
    }))
}

/// A test session that is followed.
struct Follow<'a> {
    conn: &'a mut PgConnection,
    session: &'a ListedSession,
    copy: Option<&'a ListedSession>,
    since: DateTime<Utc>,
    is_quiet: bool,
}

impl Follow<'_> {
    /// Waits for a step, and returns its part of the report.
    async fn step(&mut self, step: Step, wait: Duration) -> anyhow::Result<Value> {
        self.say(&format!("{}: {}", step.name(), step.expected()));
        let deadline = Instant::now() + wait;
        let (mut told, mut told_at) = (String::new(), Instant::now());
        loop {
            let messages = archived(self.conn, &self.session.session_id, self.since).await?;
            let copies = match self.copy {
                Some(copy) if step == Step::DropCopy => {
                    Some(archived(self.conn, &copy.session_id, self.since).await?)
                }
                _ => None,
            };
            let missing = match step.find(&messages, copies.as_deref()) {
                Ok(found) => {
                    self.say(&format!("  passed, by {} messages", found.len()));
                    return Ok(self.view(step, Ok(&found)));
                }
                Err(missing) => missing,
            };
            if Instant::now() >= deadline {
                self.say(&format!("  NOT passed: {missing}"));
                return Ok(self.view(step, Err(&missing)));
            }
            if missing != told || told_at.elapsed() >= REMIND {
                let left = deadline.saturating_duration_since(Instant::now()).as_secs();
                self.say(&format!("  waiting for {left} s: {missing}"));
                (told, told_at) = (missing, Instant::now());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn view(&self, step: Step, found: Result<&[&Seen], &str>) -> Value {
        let message = |(n, seen): (usize, &&Seen)| {
            // The copy is the last message of its step.
            let copy = self.copy.filter(|_| step == Step::DropCopy && n > 0);
            json!({
                "sessionId": copy.unwrap_or(self.session).session_id,
                "direction": if seen.is_outbound { "out" } else { "in" },
                "msgSeqNum": seen.seq, "msgType": seen.msg_type, "at": seen.at,
            })
        };
        let messages: Vec<Value> = found.unwrap_or_default().iter().enumerate().map(message).collect();
        json!({
            "step": step.name(), "expected": step.expected(), "passed": found.is_ok(), "missing": found.err(),
            "messages": messages,
        })
    }

    fn say(&self, line: &str) {
        if !self.is_quiet {
            let _written = print(false, &Value::Null, || vec![line.to_owned()]);
        }
    }
}

/// A session's messages since a time, the oldest first.
async fn archived(
    conn: &mut PgConnection,
    session_id: &str,
    since: DateTime<Utc>,
) -> anyhow::Result<Vec<Seen>> {
    // Clocks of several processes write the archive.
    let until = Utc::now() + TimeDelta::minutes(1);
    let mut stretch = Stretch { from: since, until, before: None };
    let mut all = Vec::new();
    loop {
        let page = archive::list_messages(conn, session_id, Wanted::All, &stretch, PAGE).await?;
        let Some(last) = page.last() else { break };
        stretch.before = Some((last.at, last.id));
        all.extend(page.iter().map(Seen::from));
        ensure!(
            all.len() <= MESSAGES_MAX,
            "{session_id} has more than {MESSAGES_MAX} messages since {since}: give a later --since"
        );
    }
    all.reverse();
    Ok(all)
}

/// A report for people.
fn as_text(signed: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let report = &signed["report"];
    let verdict = |value: &Value| if value["passed"] == true { "passed" } else { "NOT passed" };
    let mut lines = vec![
        format!(
            "Test session of {} ({}, {})",
            text(&report["sessionId"]),
            text(&report["partner"]),
            text(&report["env"])
        ),
        format!("{} to {}: {}", text(&report["since"]), text(&report["until"]), verdict(report)),
        String::new(),
    ];
    for step in report["steps"].as_array().into_iter().flatten() {
        lines.push(format!("{}: {}. {}", text(&step["step"]), verdict(step), text(&step["expected"])));
        lines.extend(step["missing"].as_str().map(|missing| format!("  {missing}")));
        for message in step["messages"].as_array().into_iter().flatten() {
            let parts = ["at", "sessionId", "direction", "msgType"].map(|name| text(&message[name]));
            lines.push(format!("  {} 34={}", parts.join(" "), message["msgSeqNum"]));
        }
    }
    let signature = &signed["signature"];
    lines.extend([
        String::new(),
        format!("Signed with the service's key {} (Ed25519):", text(&signature["publicKey"])),
        text(&signature["value"]),
    ]);
    lines
}

pub(super) fn certificate(args: &Certificate) -> anyhow::Result<ExitCode> {
    let signed = read(&args.file)?;
    let report = &signed["report"];
    let part = |name: &str| {
        let text = signed["signature"][name].as_str().with_context(|| format!("no {name}"))?;
        hex::decode(text).with_context(|| format!("{name} is not hex"))
    };
    let signature = Signed { public_key: part("publicKey")?, signature: part("value")? };
    let is_trusted = match &args.public_key {
        Some(key) => hex::decode(key).context("the public key is not hex")? == signature.public_key,
        None => {
            let place = ServiceLocation::find(args.dir.as_deref(), args.config.as_deref())?;
            place.vault()?.has_signing_key(&signature.public_key)?
        }
    };
    let fault = if !signature.verifies(canonical_json(report).as_bytes()) {
        Some("the signature is not of this report")
    } else if !is_trusted {
        Some("it is signed with another key")
    } else {
        (report["version"] != VERSION).then_some("it is no report of a test session")
    };
    let value = json!({
        "verified": fault.is_none(), "fault": fault, "sessionId": report["sessionId"], "passed": report["passed"],
        "until": report["until"], "publicKey": hex::encode(&signature.public_key),
    });
    print(args.json, &value, || match fault {
        None => [vec!["verified".to_owned()], as_text(&signed)].concat(),
        Some(fault) => vec![format!("NOT verified: {fault}")],
    })?;
    Ok(if fault.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(REPORT_BYTES_MAX).read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        file.take(REPORT_BYTES_MAX).read_to_end(&mut bytes)?;
    }
    let value: Value = serde_json::from_slice(&bytes).context("the report is not JSON")?;
    if value["report"].is_object() { Ok(value) } else { bail!("the file has no report") }
}
