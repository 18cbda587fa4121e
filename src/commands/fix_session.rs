//! `dvp fix-session …`. The password is hashed here; the database never sees it.

use std::io::Write as _;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use dvp_core::operators::credentials;
use dvp_core::operators::credentials::sessions::{self, BEGIN_STRINGS, NewSession, is_comp_id};
use dvp_core::operators::requests::{Maker, RequestedChange};
use dvp_core::secrets::Vault;
use dvp_fix_gateway::{check_agreement, dictionaries};
use dvp_store::fix::admin::{self as fix_admin, ListedSession};
use dvp_store::fix::commands::SessionAction;
use dvp_store::fix::settings::{self as fix_settings, FixSessionSettings};
use dvp_store::fix::{self, NewFixSession};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use super::approval::print_requested;
use super::fix_control::{self, SessionCommand, SessionEnable, SessionId, SessionSwitch};
use super::named_partner;
use crate::access::Access;
use crate::cli::{Agreed, EnvArg, GivenSecret, MakerArgs, PlaceArgs, SessionOptions};
use crate::output::{all_pages, print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum FixSessionCommand {
    /// Add a session, or give an existing one a new password. A running service serves it within seconds.
    ///
    /// With --operator, and always in a live deployment, it is a request that another operator approves.
    #[command(
        after_help = "Example:\n  dvp fix-session add --begin-string FIX.4.4 --sender-comp-id ACME --partner acme --password env:ACME_PASSWORD --dir .dvp --json"
    )]
    Add(Box<FixSessionAdd>),
    /// Change a session's settings. They apply from its next connection on; `dvp fix-session logout` ends the current
    /// one.
    ///
    /// With --operator, and always in a live deployment, it is a request that another operator approves.
    #[command(
        after_help = "Example:\n  dvp fix-session set --session-id 'FIX.4.4:DVP->ACME' --cancel-on-disconnect 10 --dir .dvp"
    )]
    Set(Box<FixSessionSet>),
    /// List the sessions with their numbers.
    #[command(after_help = "Example:\n  dvp fix-session list --dir .dvp --json")]
    List(PlaceArgs),
    /// Log the peer out and refuse further Logons.
    #[command(after_help = "Example:\n  dvp fix-session disable --session-id 'FIX.4.4:DVP->ACME' --dir .dvp")]
    Disable(SessionSwitch),
    /// Let a disabled session log on again.
    ///
    /// With --operator, and always in a live deployment, it is a request that another operator approves.
    #[command(after_help = "Example:\n  dvp fix-session enable --session-id 'FIX.4.4:DVP->ACME' --dir .dvp")]
    Enable(SessionEnable),
    /// Log the peer out. It may log on again.
    #[command(
        after_help = "Example:\n  dvp fix-session logout --session-id 'FIX.4.4:DVP->ACME' --operator jo --reason 'requested by phone' --dir .dvp"
    )]
    Logout(SessionCommand),
    /// Close the connection without a Logout. The peer may connect again.
    #[command(
        after_help = "Example:\n  dvp fix-session disconnect --session-id 'FIX.4.4:DVP->ACME' --operator jo --reason 'does not answer' --dir .dvp"
    )]
    Disconnect(SessionCommand),
    /// Send the peer a TestRequest.
    #[command(
        after_help = "Example:\n  dvp fix-session test-request --session-id 'FIX.4.4:DVP->ACME' --operator jo --reason 'is it alive' --dir .dvp"
    )]
    TestRequest(SessionCommand),
    /// Log the peer out and begin both numbers at 1 again. Reports that it has not seen are kept, under new numbers.
    #[command(
        after_help = "Example:\n  dvp fix-session reset --session-id 'FIX.4.4:DVP->ACME' --operator jo --reason 'requested by phone' --dir .dvp"
    )]
    Reset(SessionCommand),
    /// Log the peer out and set both numbers.
    #[command(
        after_help = "Example:\n  dvp fix-session set-seq --session-id 'FIX.4.4:DVP->ACME' --next-in 17 --next-out 42 --operator jo --reason 'restored from backup' --dir .dvp"
    )]
    SetSeq(SessionSetSeq),
    /// List operators' commands for a session, newest first.
    #[command(
        after_help = "Example:\n  dvp fix-session history --session-id 'FIX.4.4:DVP->ACME' --dir .dvp --json"
    )]
    History(SessionId),
    /// Print the data dictionary that a FIX engine of an institution reads. FIX 5.0 SP2 needs FIXT.1.1's, too.
    #[command(after_help = "Example:\n  dvp fix-session dictionary --version FIX.4.4 > FIX44.xml")]
    Dictionary(FixDictionary),
}

#[derive(Debug, Args)]
pub(crate) struct FixSessionAdd {
    /// FIX.4.2, FIX.4.4 or FIXT.1.1.
    #[arg(long, value_parser = BEGIN_STRINGS)]
    pub begin_string: String,
    /// The client's CompID.
    #[arg(long, value_parser = comp_id)]
    pub sender_comp_id: String,
    /// Ours.
    #[arg(long, value_parser = comp_id, default_value = "DVP")]
    pub target_comp_id: String,
    /// DefaultApplVerID(1137); needed by FIXT.1.1 and by nothing else.
    #[arg(
        long,
        required_if_eq("begin_string", "FIXT.1.1"),
        value_parser = ["9"]
    )]
    pub default_appl_ver_id: Option<String>,
    /// The partner's name.
    #[arg(long)]
    pub partner: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    pub env: Option<EnvArg>,
    /// Username(553); the partner's name when not given.
    #[arg(long)]
    pub username: Option<String>,
    /// Password(554), of which only a keyed hash is kept: env:NAME, file:PATH, or - for a line of standard input. The
    /// password itself is taken with a warning.
    #[arg(long, value_name = "SECRET")]
    pub password: GivenSecret,
    #[command(flatten)]
    pub options: SessionOptions,
    #[command(flatten)]
    pub maker: MakerArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FixSessionSet {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    #[command(flatten)]
    pub options: SessionOptions,
    #[command(flatten)]
    pub maker: MakerArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FixDictionary {
    /// FIX.4.2, FIX.4.4, FIXT.1.1 or FIX.5.0SP2.
    #[arg(long, value_parser = ["FIX.4.2", "FIX.4.4", "FIXT.1.1", "FIX.5.0SP2"])]
    pub version: String,
}

#[derive(Debug, Args)]
pub(crate) struct SessionSetSeq {
    /// The number that the peer's next message must have.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=SEQ_MAX))]
    pub next_in: u64,
    /// The number of our next message. Without --with-reset it does not go back: a number never stands for two
    /// messages.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=SEQ_MAX))]
    pub next_out: u64,
    /// Delete sent messages, and renumber reports that the peer has not received from --next-out on.
    #[arg(long)]
    pub with_reset: bool,
    #[command(flatten)]
    pub command: SessionCommand,
}

/// The maximum of MsgSeqNum(34).
const SEQ_MAX: u64 = 999_999_999_999_999_999;

fn comp_id(text: &str) -> Result<String, String> {
    if is_comp_id(text) {
        Ok(text.to_owned())
    } else {
        Err("1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'".to_owned())
    }
}

const PAGE: i64 = 500;

pub(crate) async fn run(command: FixSessionCommand) -> anyhow::Result<()> {
    match command {
        FixSessionCommand::Add(args) => add(*args).await,
        FixSessionCommand::Set(args) => set(*args).await,
        FixSessionCommand::List(place) => list(place).await,
        FixSessionCommand::Disable(args) => fix_control::disable(args).await,
        FixSessionCommand::Enable(args) => fix_control::enable(args).await,
        FixSessionCommand::Logout(args) => fix_control::carry_out(args, SessionAction::Logout).await,
        FixSessionCommand::Reset(args) => fix_control::carry_out(args, SessionAction::Reset).await,
        FixSessionCommand::Disconnect(args) => fix_control::carry_out(args, SessionAction::Disconnect).await,
        FixSessionCommand::TestRequest(args) => {
            fix_control::carry_out(args, SessionAction::TestRequest).await
        }
        FixSessionCommand::SetSeq(args) => {
            let (next_in, next_out, with_reset) = (args.next_in, args.next_out, args.with_reset);
            fix_control::carry_out(args.command, SessionAction::SetSeq { next_in, next_out, with_reset })
                .await
        }
        FixSessionCommand::History(args) => fix_control::history(args).await,
        FixSessionCommand::Dictionary(args) => dictionary(&args),
    }
}

async fn add(args: FixSessionAdd) -> anyhow::Result<()> {
    let fixt = args.begin_string == "FIXT.1.1";
    ensure!(
        fixt == args.default_appl_ver_id.is_some(),
        "--default-appl-ver-id belongs to FIXT.1.1 and only to it"
    );
    let password = args.password.read("--password")?;
    let mut access = Access::open(&args.place).await?;
    let livemode = access.environment(args.env)?.is_live();
    let partner = named_partner(&mut access.conn, &args.partner).await?;
    let id = fix::session_id(&args.begin_string, &args.target_comp_id, &args.sender_comp_id);
    if let Some(known) = fix::find_session(&mut access.conn, &id).await? {
        ensure!(known.partner_id == partner.id, "{id} is another partner's");
    }
    let username = args.username.clone().unwrap_or_else(|| partner.name.clone());
    let session = NewFixSession {
        partner_id: partner.id,
        livemode,
        begin_string: args.begin_string.clone(),
        client_comp_id: args.sender_comp_id.clone(),
        service_comp_id: args.target_comp_id.clone(),
        default_appl_ver_id: args.default_appl_ver_id.clone(),
        username: username.clone(),
        password_hash: access.vault.fix_password_hash(&id, &password),
        password_key: access.vault.current_id().to_owned(),
    };
    let maker = args.maker.maker(access.environment)?;
    let before = fix_settings::find_settings(&mut access.conn, &id).await?;
    let slippage = args.options.max_slippage_bps;
    let mut tx = access.conn.begin().await?;
    fix::upsert_session(&mut tx, &session).await?;
    if let Some(maker) = maker {
        // The session is written only to check its settings.
        let settings = agreed(&mut tx, &access.vault, &id, args.options).await?;
        tx.rollback().await?;
        let new = NewSession {
            partner: &args.partner,
            environment: access.environment,
            begin_string: &args.begin_string,
            client_comp_id: &args.sender_comp_id,
            service_comp_id: &args.target_comp_id,
            username: Some(&username),
            password: Some(&password),
            settings,
            max_slippage_bps: slippage,
        };
        let requested = request(&mut access, &id, before, new, maker).await?;
        return print_requested(args.place.json, &requested);
    }
    agree(&mut tx, &access.vault, &id, args.options).await?;
    tx.commit().await?;
    let mut value = json!({
        "sessionId": id, "beginString": args.begin_string, "senderCompId": args.sender_comp_id,
        "targetCompId": args.target_comp_id, "username": username,
    });
    if let (Some(version), Some(fields)) = (&args.default_appl_ver_id, value.as_object_mut()) {
        fields.insert("defaultApplVerId".into(), json!(version));
    }
    print(args.place.json, &value, || vec![format!("session {id}, user {username}")])
}

/// Requests a session; of an existing one its new password, whose settings have a command of their own.
async fn request(
    access: &mut Access,
    id: &str,
    before: Option<FixSessionSettings>,
    new: NewSession<'_>,
    maker: Maker<'_>,
) -> anyhow::Result<RequestedChange> {
    let (conn, vault) = (&mut access.conn, &access.vault);
    let Some(before) = before else { return Ok(sessions::request_session(conn, vault, new, maker).await?.2) };
    let is_same = before == new.settings && new.max_slippage_bps.is_none();
    ensure!(is_same, "{id} exists: its settings are changed by dvp fix-session set");
    Ok(credentials::request_password(conn, vault, id, new.password, maker).await?.1)
}

async fn set(args: FixSessionSet) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    if let Some(maker) = args.maker.maker(access.environment)? {
        let (id, slippage) = (&args.session_id, args.options.max_slippage_bps);
        let settings = agreed(&mut access.conn, &access.vault, id, args.options).await?;
        let requested = sessions::request_settings(&mut access.conn, id, settings, slippage, maker).await?;
        return print_requested(args.place.json, &requested);
    }
    let mut tx = access.conn.begin().await?;
    let settings = agree(&mut tx, &access.vault, &args.session_id, args.options).await?;
    tx.commit().await?;
    let mut value = settings_json(&settings);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("sessionId".into(), json!(args.session_id));
    }
    print(args.place.json, &value, || {
        let who =
            "who may log on and how fast holds from the next Logon, the rest from the next connection on";
        vec![format!("{}: {who}", args.session_id)]
    })
}

/// Changes the given settings. Returns the resulting ones.
async fn agree(
    conn: &mut PgConnection,
    vault: &Vault,
    id: &str,
    options: SessionOptions,
) -> anyhow::Result<FixSessionSettings> {
    let slippage = options.max_slippage_bps;
    let settings = agreed(conn, vault, id, options).await?;
    fix_settings::update_settings(conn, id, &settings).await?;
    if let Some(bps) = slippage {
        fix_admin::update_max_slippage(conn, id, bps).await?;
    }
    Ok(settings)
}

/// The settings of a session with the given ones.
async fn agreed(
    conn: &mut PgConnection,
    vault: &Vault,
    id: &str,
    options: SessionOptions,
) -> anyhow::Result<FixSessionSettings> {
    let missing = || format!("there is no session {id}");
    let session = fix::find_session(conn, id).await?.with_context(missing)?;
    let before = fix_settings::find_settings(conn, id).await?.with_context(missing)?;
    let settings = changed(before, vault, id, options)?;
    check(&settings)?;
    check_agreement(&session, &settings)?;
    Ok(settings)
}

/// Settings that exclude each other.
fn check(settings: &FixSessionSettings) -> anyhow::Result<()> {
    ensure!(
        !settings.drop_copy || settings.cancel_on_disconnect_secs.is_none(),
        "a drop copy has no orders to cancel: give --cancel-on-disconnect off, or --drop-copy false"
    );
    let rates = settings.soft_messages_per_sec.zip(settings.hard_messages_per_sec);
    ensure!(rates.is_none_or(|(soft, hard)| soft <= hard), "--soft-rate is at most --hard-rate");
    Ok(())
}

fn changed(
    before: FixSessionSettings,
    vault: &Vault,
    id: &str,
    options: SessionOptions,
) -> anyhow::Result<FixSessionSettings> {
    /// The given value, or the earlier one.
    fn or<T>(given: Option<Agreed<T>>, before: Option<T>) -> Option<T> {
        given.map_or(before, Agreed::on)
    }
    let logon_secret = match options.logon_secret {
        Some(Agreed::On(secret)) => {
            let secret = secret.read("--logon-secret")?;
            ensure!((16..=256).contains(&secret.len()), "--logon-secret: 16 to 256 characters, or off");
            let sealed = vault.seal(id, secret.as_bytes()).context("the secret cannot be sealed")?;
            Some(sealed)
        }
        Some(Agreed::Off) => None,
        None => before.logon_secret,
    };
    Ok(FixSessionSettings {
        allowed_sources: or(options.allowed_sources, before.allowed_sources),
        client_cert_sha256: or(options.client_cert_sha256, before.client_cert_sha256),
        client_cert_names: or(options.client_cert_names, before.client_cert_names),
        logon_secret,
        logon_window_secs: options.logon_window.unwrap_or(before.logon_window_secs),
        soft_messages_per_sec: or(options.soft_rate, before.soft_messages_per_sec),
        hard_messages_per_sec: or(options.hard_rate, before.hard_messages_per_sec),
        admin_messages_per_sec: or(options.admin_rate, before.admin_messages_per_sec),
        resend_request_chunk: match options.resend_request_chunk {
            Some(chunk) => chunk.on().map(i64::from),
            None => before.resend_request_chunk,
        },
        last_msg_seq_num_processed: options
            .last_msg_seq_num_processed
            .unwrap_or(before.last_msg_seq_num_processed),
        next_expected_msg_seq_num: options
            .next_expected_msg_seq_num
            .unwrap_or(before.next_expected_msg_seq_num),
        max_latency_secs: options.max_latency.unwrap_or(before.max_latency_secs),
        order_age_secs: or(options.order_age, before.order_age_secs),
        repeated_order_age_secs: or(options.repeated_order_age, before.repeated_order_age_secs),
        schedule: or(options.schedule, before.schedule),
        drop_copy: options.drop_copy.unwrap_or(before.drop_copy),
        cancel_on_disconnect_secs: or(options.cancel_on_disconnect, before.cancel_on_disconnect_secs),
    })
}

/// Without secrets.
fn settings_json(settings: &FixSessionSettings) -> Value {
    let hashes = settings.client_cert_sha256.as_ref();
    json!({
        "dropCopy": settings.drop_copy,
        "cancelOnDisconnectSecs": settings.cancel_on_disconnect_secs,
        "allowedSources": settings.allowed_sources,
        "clientCertSha256": hashes.map(|hashes| hashes.iter().map(hex::encode).collect::<Vec<_>>()),
        "clientCertNames": settings.client_cert_names,
        "signedLogon": settings.logon_secret.is_some(),
        "logonWindowSecs": settings.logon_window_secs,
        "softRate": settings.soft_messages_per_sec,
        "hardRate": settings.hard_messages_per_sec,
        "adminRate": settings.admin_messages_per_sec,
        "resendRequestChunk": settings.resend_request_chunk,
        "lastMsgSeqNumProcessed": settings.last_msg_seq_num_processed,
        "nextExpectedMsgSeqNum": settings.next_expected_msg_seq_num,
        "maxLatencySecs": settings.max_latency_secs,
        "orderAgeSecs": settings.order_age_secs,
        "repeatedOrderAgeSecs": settings.repeated_order_age_secs,
        "schedule": settings.schedule,
    })
}

fn dictionary(args: &FixDictionary) -> anyhow::Result<()> {
    let name = args.version.replace('.', "");
    let text = dictionaries::find(&name).with_context(|| format!("no dictionary of {}", args.version))?;
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let page = async |after: &str| fix_admin::list(&mut access.conn, after, PAGE).await;
    let all = all_pages(|row: &ListedSession| &row.session_id, page).await?;
    let line = |row: &ListedSession| {
        let state = if row.enabled { "enabled" } else { "disabled" };
        let copy = if row.drop_copy { "  drop copy" } else { "" };
        format!(
            "{}  {}  {state}  in {}  out {}{copy}",
            row.session_id, row.partner, row.next_in, row.next_out
        )
    };
    print_list(place.json, "sessions", &all, view, line)
}

fn view(row: &ListedSession) -> Value {
    json!({
        "sessionId": row.session_id, "partner": row.partner, "env": if row.livemode { "live" } else { "test" },
        "username": row.username, "enabled": row.enabled, "nextIn": row.next_in, "nextOut": row.next_out,
        "dropCopy": row.drop_copy, "cancelOnDisconnectSecs": row.cancel_on_disconnect_secs,
        "maxSlippageBps": row.max_slippage_bps,
    })
}
