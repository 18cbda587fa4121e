//! An acceptor for session-level acceptance tests: the real session engine and driver with an application that sends
//! back what it gets.
//!
//! `cargo run -p dvp-fix-gateway --example echo_acceptor -- --config FILE` prints `listening HOST:PORT`.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
    io::Write as _,
    ops::Range,
    time::Duration,
};

use dvp_fix::{
    SeqNum,
    codec::{Body, MessageRef, MsgType},
    dictionary::{Rules, Section},
    session::{ResendSlice, SessionConfig, Stored, business_reject},
    tag::{self, Tag},
};
use dvp_fix_gateway::{
    Application, Commit, Directory, Driver, Numbers, SessionKey, Turn, Unavailable, acceptor,
    store::MemoryStore,
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

/// The memory limit of all sessions' messages kept for resends.
const MEMORY_BYTES: usize = 64 * 1024 * 1024;

type Failure = Box<dyn std::error::Error>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    listen: String,
    comp_id: String,
    #[serde(default)]
    reset_on_logon: bool,
    max_latency_secs: Option<u64>,
    profile: Option<String>,
    store: Option<String>,
    session: Vec<SessionSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionSection {
    begin_string: String,
    target_comp_id: String,
    default_appl_ver_id: Option<String>,
    #[serde(default = "yes")]
    validate_fields_have_values: bool,
    resend_request_chunk_size: Option<u64>,
    #[serde(default)]
    enable_next_expected_msg_seq_num: bool,
    #[serde(default)]
    enable_last_msg_seq_num_processed: bool,
}

const fn yes() -> bool {
    true
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let path = match (args.next().as_deref(), args.next()) {
        (Some("--config"), Some(path)) => path,
        _ => return Err("usage: echo_acceptor --config FILE".into()),
    };
    let config: Config = toml::from_str(&std::fs::read_to_string(path)?)?;
    let is_other = |value: &Option<String>, only: &str| value.as_ref().is_some_and(|value| value != only);
    if is_other(&config.profile, "quickfix") || is_other(&config.store, "memory") {
        return Err("only profile = \"quickfix\" and store = \"memory\"".into());
    }
    let directory = Directory::default();
    for section in &config.session {
        let session = session_config(&config, section)?;
        let attach = directory.announce(SessionKey::of_session(&session));
        let echo = Echo::new(&session, MemoryStore::new(MEMORY_BYTES / config.session.len()));
        tokio::spawn(Driver::new(echo, session, attach).run(CancellationToken::new()));
    }
    let listener = tokio::net::TcpListener::bind(&config.listen).await?;
    writeln!(std::io::stdout(), "listening {}", listener.local_addr()?)?;
    acceptor::accept(listener, directory, CancellationToken::new()).await;
    Ok(())
}

fn session_config(config: &Config, section: &SessionSection) -> Result<SessionConfig, Failure> {
    let version = section.default_appl_ver_id.as_deref();
    let application = version.unwrap_or(&section.begin_string);
    let rules = Rules::strict(&section.begin_string, application)
        .ok_or_else(|| format!("no dictionary for {} {application}", section.begin_string))?;
    let rules = Rules { require_values: section.validate_fields_have_values, ..rules };
    let mut session =
        SessionConfig::new(&section.begin_string, &config.comp_id, &section.target_comp_id, rules);
    session.default_appl_ver_id =
        version.map(|version| if version == "FIX.5.0SP2" { "9" } else { version }.to_owned());
    session.reset_on_logon = config.reset_on_logon;
    session.resend_request_chunk = section.resend_request_chunk_size;
    session.next_expected_msg_seq_num = section.enable_next_expected_msg_seq_num;
    session.last_msg_seq_num_processed = section.enable_last_msg_seq_num_processed;
    if let Some(seconds) = config.max_latency_secs {
        session.max_latency = Duration::from_secs(seconds);
    }
    Ok(session)
}

/// Sends orders, security definitions and emails back; knows the orders of this connection.
struct Echo {
    rules: Rules,
    appl_ver_id: Option<String>,
    memory: MemoryStore,
    /// Hashes of the orders' ids: a day's orders are many, and two of a session are not the same by chance.
    seen: HashSet<u64>,
    hasher: RandomState,
    /// Fields of the message under way that stay together, one or a group with its count: whether they are of its body,
    /// their tag, and where they are.
    runs: Vec<((bool, Tag), Range<usize>)>,
}

impl Echo {
    fn new(session: &SessionConfig, memory: MemoryStore) -> Self {
        Self {
            rules: session.rules,
            appl_ver_id: session.default_appl_ver_id.clone(),
            memory,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            runs: Vec::new(),
        }
    }

    fn answer(&mut self, message: MessageRef<'_>, body: Body) -> Option<(MsgType, Body)> {
        let msg_type = MsgType::from_bytes(message.msg_type());
        match message.msg_type() {
            b"D" => {
                let is_new = self.seen.insert(self.hasher.hash_one(message.get(11)?));
                let is_wanted = is_new || !message.is_yes(tag::POSS_RESEND);
                is_wanted.then(|| (MsgType::NEW_ORDER_SINGLE, self.ascending(message, body)))
            }
            b"d" | b"C" => Some((msg_type?, self.ascending(message, body))),
            // A reject of a reject would go on for ever.
            b"j" => None,
            _ => {
                let body = business_reject(message, None, 3, "Unsupported Message Type");
                // Which version the type is unsupported in.
                let body = body.maybe(tag::DEFAULT_APPL_VER_ID, self.appl_ver_id.as_deref());
                Some((MsgType::BUSINESS_MESSAGE_REJECT, body))
            }
        }
    }

    /// The message's own fields again: routing fields, then the body by ascending tag, each group after its count.
    fn ascending(&mut self, message: MessageRef<'_>, mut body: Body) -> Body {
        self.find_runs(message);
        self.runs.sort_by_key(|(place, _)| *place);
        for (_, run) in &self.runs {
            body.copy_run(message, message.fields().get(run.clone()).unwrap_or_default());
        }
        body
    }

    /// The fields of the echo, in the order of the message.
    fn find_runs(&mut self, message: MessageRef<'_>) {
        const STAMPED: [Tag; 9] = [8, 9, 34, 35, 43, 49, 52, 56, 122];
        self.runs.clear();
        let section = self.rules.application.message(message.msg_type());
        let fields = message.fields();
        let mut at = 0;
        while let Some(field) = fields.get(at) {
            let start = at;
            at += 1;
            let is_header = self.rules.is_header(field.tag);
            if field.tag == tag::CHECK_SUM || is_header && STAMPED.contains(&field.tag) {
                continue;
            }
            if let Some(group) = section.filter(|_| !is_header).and_then(|section| section.group(field.tag)) {
                while fields.get(at).is_some_and(|next| Section::has_anywhere(group, next.tag)) {
                    at += 1;
                }
            }
            self.runs.push(((!is_header, field.tag), start..at));
        }
    }
}

impl Application for Echo {
    async fn load(&mut self) -> Result<(SeqNum, SeqNum), Unavailable> {
        Ok(self.memory.numbers())
    }

    async fn persist(&mut self, numbers: Numbers) -> Result<Commit, Unavailable> {
        Ok(self.memory.commit(numbers, Vec::new()))
    }

    async fn deliver(&mut self, message: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        let body = turn.body();
        let answer = self
            .answer(message, body)
            .map(|(msg_type, body)| self.memory.keep(turn.reserve(), msg_type, turn.sending_time(), body));
        Ok(self.memory.commit(turn.numbers(), answer.into_iter().collect()))
    }

    async fn stored(&mut self, slice: ResendSlice) -> Result<Vec<Stored>, Unavailable> {
        Ok(self.memory.stored(slice))
    }

    fn connected(&mut self, is_connected: bool) {
        if !is_connected {
            self.seen = HashSet::new();
        }
    }
}
