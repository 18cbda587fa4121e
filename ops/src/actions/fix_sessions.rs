//! FIX sessions: settings, credentials and control. Of a password only a keyed hash is stored.

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use dvp_core::operators::credentials;
use dvp_core::operators::credentials::sessions::{self, BEGIN_STRINGS, NewSession, is_comp_id};
use dvp_core::operators::fix_sessions;
use dvp_core::secrets::Vault;
use dvp_store::Acquire as _;
use dvp_store::fix::commands::SessionAction;
use dvp_store::fix::settings::{self as fix_settings, FixSessionSettings};
use dvp_store::fix::{self, NewFixSession, admin};
use serde_json::{Value, json};

use crate::actions::fix_options::{Agreed, SessionOptions};
use crate::actions::{EnvArg, IfLive, Reason, Why};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum FixSessionAction {
    /// Add a session, or give an existing one a new password. A running service serves it within seconds.
    ///
    /// With --evidence, and always in a live deployment, it is a request that another operator approves.
    #[command(
        after_help = "Example:\n  dvp fix-session add --begin-string FIX.4.4 --sender-comp-id ACME --partner acme --password env:ACME_PASSWORD --config dvp.toml"
    )]
    Add(Box<Add>),
    /// Change a session's settings. They apply from its next connection on; `dvp fix-session logout` ends the current
    /// one.
    ///
    /// With --evidence, and always in a live deployment, it is a request that another operator approves.
    #[command(
        after_help = "Example:\n  dvp fix-session set --session-id 'FIX.4.4:DVP->ACME' --cancel-on-disconnect 10 --config dvp.toml"
    )]
    Set(Box<Set>),
    /// Draw a new password of a session, which is shown once. It replaces the present one when another operator has
    /// approved it.
    #[command(
        after_help = "Example:\n  dvp fix-session password --session-id 'FIX.4.4:DVP->ACME' --reason 'yearly' --evidence 'plan' --config dvp.toml"
    )]
    Password(Drawn),
    /// Let a disabled session log on again.
    ///
    /// With --evidence, and always in a live deployment, it is a request that another operator approves.
    #[command(
        after_help = "Example:\n  dvp fix-session enable --session-id 'FIX.4.4:DVP->ACME' --config dvp.toml"
    )]
    Enable(Enable),
    /// Log the peer out and refuse further Logons.
    #[command(
        after_help = "Example:\n  dvp fix-session disable --session-id 'FIX.4.4:DVP->ACME' --reason 'contract ended' --config dvp.toml"
    )]
    Disable(Which),
    /// Log the peer out. It may log on again.
    #[command(
        after_help = "Example:\n  dvp fix-session logout --session-id 'FIX.4.4:DVP->ACME' --reason 'requested by phone' --config dvp.toml"
    )]
    Logout(Which),
    /// Close the connection without a Logout. The peer may connect again.
    #[command(
        after_help = "Example:\n  dvp fix-session disconnect --session-id 'FIX.4.4:DVP->ACME' --reason 'does not answer' --config dvp.toml"
    )]
    Disconnect(Which),
    /// Send the peer a TestRequest.
    #[command(
        after_help = "Example:\n  dvp fix-session test-request --session-id 'FIX.4.4:DVP->ACME' --reason 'is it alive' --config dvp.toml"
    )]
    TestRequest(Which),
    /// Log the peer out and begin both numbers at 1 again. Reports that it has not seen are kept, under new numbers.
    #[command(
        after_help = "Example:\n  dvp fix-session reset --session-id 'FIX.4.4:DVP->ACME' --reason 'requested by phone' --config dvp.toml"
    )]
    Reset(Which),
    /// Log the peer out and set both numbers.
    #[command(
        after_help = "Example:\n  dvp fix-session set-seq --session-id 'FIX.4.4:DVP->ACME' --next-in 17 --next-out 42 --reason 'restored from backup' --config dvp.toml"
    )]
    SetSeq(SetSeq),
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// FIX.4.2, FIX.4.4 or FIXT.1.1.
    #[arg(long, value_parser = BEGIN_STRINGS)]
    begin_string: String,
    /// The client's CompID.
    #[arg(long, value_parser = comp_id)]
    sender_comp_id: String,
    /// Ours.
    #[arg(long, value_parser = comp_id, default_value = "DVP")]
    target_comp_id: String,
    /// DefaultApplVerID(1137); needed by FIXT.1.1 and by nothing else.
    #[arg(long, required_if_eq("begin_string", "FIXT.1.1"), value_parser = ["9"])]
    default_appl_ver_id: Option<String>,
    /// The partner's name.
    #[arg(long)]
    partner: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    env: Option<EnvArg>,
    /// Username(553); the partner's name when not given.
    #[arg(long)]
    username: Option<String>,
    /// Password(554), drawn and shown once when not given. On the command line env:NAME, file:PATH, or - for a line of
    /// standard input; the password itself is taken with a warning.
    #[arg(long, value_name = "SECRET")]
    password: Option<String>,
    #[command(flatten)]
    options: SessionOptions,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    session_id: String,
    #[command(flatten)]
    options: SessionOptions,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct Drawn {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    session_id: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Enable {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    session_id: String,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    session_id: String,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct SetSeq {
    /// The number that the peer's next message must have.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=SEQ_MAX))]
    next_in: u64,
    /// The number of our next message. Without --with-reset it does not go back: a number never stands for two
    /// messages.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=SEQ_MAX))]
    next_out: u64,
    /// Delete sent messages, and renumber reports that the peer has not received from --next-out on.
    #[arg(long)]
    with_reset: bool,
    #[command(flatten)]
    which: Which,
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

impl FixSessionAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Add(args) => add(desk, *args).await,
            Self::Set(args) => set(desk, *args).await,
            Self::Password(Drawn { session_id: id, why }) => {
                let maker = desk.maker(&why.reason, &why.evidence);
                let vault = &desk.house.vault;
                let (password, requested) =
                    credentials::request_password(desk.conn, vault, &id, None, maker).await?;
                let value = json!({"sessionId": id, "password": password});
                let lines = vec!["Keep it now: it is shown this once.".to_owned()];
                Ok(Outcome::requested(&requested).with(value, lines).once("password", password))
            }
            Self::Enable(Enable { session_id: id, why }) => {
                if let Some(maker) = desk.second(&why)? {
                    return Ok(Outcome::requested(&sessions::request_enabling(desk.conn, &id, maker).await?));
                }
                let reason = why.reason.as_deref().unwrap_or("not given");
                let outcome = command(desk, &id, SessionAction::Enable, reason).await?;
                let value = json!({"sessionId": id, "enabled": true, "ended": true});
                Ok(Outcome::done(value, format!("{id} is {outcome}")))
            }
            Self::Disable(Which { session_id: id, why }) => {
                let outcome = command(desk, &id, SessionAction::Disable, &why.reason).await?;
                let value = json!({"sessionId": id, "enabled": false, "ended": outcome == "disabled"});
                Ok(Outcome::done(value, format!("{id} is {outcome}")))
            }
            Self::Logout(which) => carry_out(desk, &which, SessionAction::Logout).await,
            Self::Disconnect(which) => carry_out(desk, &which, SessionAction::Disconnect).await,
            Self::TestRequest(which) => carry_out(desk, &which, SessionAction::TestRequest).await,
            Self::Reset(which) => carry_out(desk, &which, SessionAction::Reset).await,
            Self::SetSeq(SetSeq { next_in, next_out, with_reset, which }) => {
                carry_out(desk, &which, SessionAction::SetSeq { next_in, next_out, with_reset }).await
            }
        }
    }
}

async fn command(
    desk: &mut Desk<'_>,
    id: &str,
    action: SessionAction,
    reason: &str,
) -> anyhow::Result<String> {
    let command = fix_sessions::command(id, action, &desk.by.name, reason)?;
    Ok(fix_sessions::carry_out(desk.conn, &command, &desk.house.fix.stale_types).await?)
}

async fn carry_out(desk: &mut Desk<'_>, which: &Which, action: SessionAction) -> anyhow::Result<Outcome> {
    let (id, name) = (&which.session_id, action.name());
    let outcome = command(desk, id, action, &which.why.reason).await?;
    let value = json!({"sessionId": id, "action": name, "outcome": outcome});
    Ok(Outcome::done(value, format!("{id}: {outcome}")))
}

async fn add(desk: &mut Desk<'_>, args: Add) -> anyhow::Result<Outcome> {
    let Add { begin_string, sender_comp_id, target_comp_id, default_appl_ver_id, partner, env, .. } = args;
    ensure!(
        (begin_string == "FIXT.1.1") == default_appl_ver_id.is_some(),
        "--default-appl-ver-id belongs to FIXT.1.1 and only to it"
    );
    let environment = desk.environment(env)?;
    let partner = desk.partner(&partner).await?;
    let id = fix::session_id(&begin_string, &target_comp_id, &sender_comp_id);
    if let Some(known) = fix::find_session(desk.conn, &id).await? {
        ensure!(known.partner_id == partner.id, "{id} is another partner's");
    }
    let username = args.username.unwrap_or_else(|| partner.name.clone());
    let is_drawn = args.password.is_none();
    let password = match args.password {
        Some(password) => password,
        None => credentials::draw_password()?,
    };
    ensure!(!password.is_empty(), "--password: the secret is empty");
    let session = NewFixSession {
        partner_id: partner.id,
        livemode: environment.is_live(),
        begin_string: begin_string.clone(),
        client_comp_id: sender_comp_id.clone(),
        service_comp_id: target_comp_id.clone(),
        default_appl_ver_id: default_appl_ver_id.clone(),
        username: username.clone(),
        password_hash: desk.house.vault.fix_password_hash(&id, &password),
        password_key: desk.house.vault.current_id().to_owned(),
    };
    let before = fix_settings::find_settings(desk.conn, &id).await?;
    let slippage = args.options.max_slippage_bps;
    let maker = desk.second(&args.why)?;
    let mut tx = desk.conn.begin().await?;
    fix::upsert_session(&mut tx, &session).await?;
    let mut inner = Desk { conn: &mut tx, house: desk.house, by: desk.by };
    let settings = agreed(&mut inner, &id, args.options).await?;
    let mut value = json!({
        "sessionId": id, "beginString": begin_string, "senderCompId": sender_comp_id,
        "targetCompId": target_comp_id, "username": username,
    });
    let mut lines = vec![format!("session {id}, user {username}")];
    if let Some(version) = &default_appl_ver_id {
        value["defaultApplVerId"] = version.as_str().into();
    }
    if is_drawn {
        value["password"] = password.as_str().into();
        lines.push("Keep it now: it is shown this once.".to_owned());
    }
    let drawn = is_drawn.then(|| password.clone());
    let told = |outcome: Outcome| match drawn {
        Some(password) => outcome.once("password", password),
        None => outcome,
    };
    let Some(maker) = maker else {
        write(&mut inner, &id, &settings, slippage).await?;
        tx.commit().await?;
        return Ok(told(Outcome::lines(value, lines)));
    };
    // The session was written only to check its settings.
    tx.rollback().await?;
    let requested = match before {
        None => {
            let new = NewSession {
                partner: &partner.name,
                environment,
                begin_string: &begin_string,
                client_comp_id: &sender_comp_id,
                service_comp_id: &target_comp_id,
                username: Some(&username),
                password: Some(&password),
                settings,
                max_slippage_bps: slippage,
            };
            sessions::request_session(desk.conn, &desk.house.vault, new, maker).await?.2
        }
        Some(before) => {
            let is_same = before == settings && slippage.is_none();
            ensure!(is_same, "{id} exists: its settings are changed by dvp fix-session set");
            let vault = &desk.house.vault;
            credentials::request_password(desk.conn, vault, &id, Some(&password), maker).await?.1
        }
    };
    Ok(told(Outcome::requested(&requested).with(value, lines)))
}

async fn set(desk: &mut Desk<'_>, args: Set) -> anyhow::Result<Outcome> {
    let Set { session_id: id, options, why } = args;
    let slippage = options.max_slippage_bps;
    let settings = agreed(desk, &id, options).await?;
    if let Some(maker) = desk.second(&why)? {
        let requested = sessions::request_settings(desk.conn, &id, settings, slippage, maker).await?;
        return Ok(Outcome::requested(&requested));
    }
    write(desk, &id, &settings, slippage).await?;
    let mut value = settings_json(&settings);
    value["sessionId"] = id.as_str().into();
    let who = "who may log on and how fast holds from the next Logon, the rest from the next connection on";
    Ok(Outcome::done(value, format!("{id}: {who}")))
}

async fn write(
    desk: &mut Desk<'_>,
    id: &str,
    settings: &FixSessionSettings,
    max_slippage_bps: Option<i32>,
) -> anyhow::Result<()> {
    fix_settings::update_settings(desk.conn, id, settings).await?;
    if let Some(bps) = max_slippage_bps {
        admin::update_max_slippage(desk.conn, id, bps).await?;
    }
    Ok(())
}

/// The settings of a session with the given ones.
async fn agreed(
    desk: &mut Desk<'_>,
    id: &str,
    options: SessionOptions,
) -> anyhow::Result<FixSessionSettings> {
    let missing = || format!("there is no session {id}");
    let session = fix::find_session(desk.conn, id).await?.with_context(missing)?;
    let before = fix_settings::find_settings(desk.conn, id).await?.with_context(missing)?;
    let is_per_day = before.cl_ord_id_per_day;
    let settings = changed(before, &desk.house.vault, id, options)?;
    ensure!(
        !is_per_day || settings.cl_ord_id_per_day,
        "--cl-ord-id-per-day cannot be taken back: a ClOrdID may stand for an order of each day"
    );
    ensure!(
        !settings.drop_copy || settings.cancel_on_disconnect_secs.is_none(),
        "a drop copy has no orders to cancel: give --cancel-on-disconnect off, or --drop-copy false"
    );
    let rates = settings.soft_messages_per_sec.zip(settings.hard_messages_per_sec);
    ensure!(rates.is_none_or(|(soft, hard)| soft <= hard), "--soft-rate is at most --hard-rate");
    (desk.house.fix.check)(&session, &settings)?;
    Ok(settings)
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
        ignored_fields: or(options.ignored_fields, before.ignored_fields),
        text_encoding: options.text_encoding.unwrap_or(before.text_encoding),
        cl_ord_id_per_day: options.cl_ord_id_per_day.unwrap_or(before.cl_ord_id_per_day),
        time_precision: options.time_precision.unwrap_or(before.time_precision),
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
        "ignoredFields": settings.ignored_fields,
        "clOrdIdPerDay": settings.cl_ord_id_per_day,
        "timePrecision": settings.time_precision,
        "textEncoding": settings.text_encoding,
    })
}
