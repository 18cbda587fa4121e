//! The requirements and limits of a FIX session.

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::fix::hex_bytes;
use crate::{StoreError, statement};

/// Settings of one session. `None` requires nothing, or sets no limit.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FixSessionSettings {
    /// Networks (CIDR) of the peer.
    pub allowed_sources: Option<Vec<String>>,
    /// SHA-256 of certificates (DER), one of which the peer must present.
    #[serde(with = "hex_bytes::list")]
    pub client_cert_sha256: Option<Vec<Vec<u8>>>,
    /// DNS names, one of which the peer's certificate must have.
    pub client_cert_names: Option<Vec<String>>,
    /// The secret that signs Logons, encrypted for the session's id. With it no password is accepted.
    #[serde(with = "hex_bytes")]
    pub logon_secret: Option<Vec<u8>>,
    /// The tolerated difference of a signed Logon's SendingTime(52) from the service's clock, in seconds.
    pub logon_window_secs: i32,
    /// Application messages a second that are processed; more are rejected one by one.
    pub soft_messages_per_sec: Option<i32>,
    /// Application messages a second beyond which the session ends.
    pub hard_messages_per_sec: Option<i32>,
    /// Session messages a second beyond which the session ends.
    pub admin_messages_per_sec: Option<i32>,
    /// Messages requested at once in a ResendRequest.
    pub resend_request_chunk: Option<i64>,
    pub last_msg_seq_num_processed: bool,
    pub next_expected_msg_seq_num: bool,
    /// The tolerated difference of SendingTime(52) from the service's clock, in seconds.
    pub max_latency_secs: i32,
    /// The maximum age of an order's TransactTime(60), in seconds.
    pub order_age_secs: Option<i32>,
    /// The maximum age of TransactTime(60) and OrigSendingTime(122) of an order with PossDupFlag or PossResend, in
    /// seconds.
    pub repeated_order_age_secs: Option<i32>,
    /// The session's schedule, in the syntax of the FIX engine.
    pub schedule: Option<String>,
    /// The session gets copies of the reports of all the partner's orders, and sends none.
    pub drop_copy: bool,
    /// Orders that can be cancelled are cancelled this many seconds after the disconnect; `None`: never.
    pub cancel_on_disconnect_secs: Option<i32>,
    /// The tags that are read and ignored, in place of the default list; empty: none.
    pub ignored_fields: Option<String>,
    /// The fraction of a second in the timestamps that are sent: `seconds`, `millis`, `micros` or `nanos`.
    pub time_precision: String,
    /// The encoding of text, as MessageEncoding(347) names it: `UTF-8` or `ISO-8859-1`.
    pub text_encoding: String,
    /// A ClOrdID is unique in a trading day, and not for ever. Once it is so, it stays so: a ClOrdID of several days
    /// cannot be used for ever.
    pub cl_ord_id_per_day: bool,
}

impl Default for FixSessionSettings {
    fn default() -> Self {
        Self {
            allowed_sources: None,
            client_cert_sha256: None,
            client_cert_names: None,
            logon_secret: None,
            logon_window_secs: 30,
            soft_messages_per_sec: None,
            hard_messages_per_sec: None,
            admin_messages_per_sec: None,
            resend_request_chunk: None,
            last_msg_seq_num_processed: false,
            next_expected_msg_seq_num: false,
            max_latency_secs: 120,
            order_age_secs: None,
            repeated_order_age_secs: Some(120),
            schedule: None,
            drop_copy: false,
            cancel_on_disconnect_secs: None,
            ignored_fields: None,
            time_precision: "millis".to_owned(),
            text_encoding: "UTF-8".to_owned(),
            cl_ord_id_per_day: false,
        }
    }
}

pub(super) const COLUMNS: &str = "allowed_sources::text[] as allowed_sources, client_cert_sha256, client_cert_names, \
    logon_secret, logon_window_secs, soft_messages_per_sec, hard_messages_per_sec, admin_messages_per_sec, \
    resend_request_chunk, last_msg_seq_num_processed, next_expected_msg_seq_num, max_latency_secs, schedule, \
    drop_copy, cancel_on_disconnect_secs, order_age_secs, repeated_order_age_secs, \
    ignored_fields, time_precision, text_encoding, \
    cl_ord_id_per_day";

/// The settings of a session, `None` when there is no such session.
pub async fn find_settings(
    conn: &mut PgConnection,
    session_id: &str,
) -> Result<Option<FixSessionSettings>, StoreError> {
    // The columns are a constant of this module.
    let sql = sqlx::AssertSqlSafe(format!("select {COLUMNS} from fix_session where session_id = $1"));
    statement::find(conn, sql, (session_id,)).await
}

/// Replaces the settings of a session. Credentials apply from its next connection on, the other settings as soon as its
/// peer is disconnected.
pub async fn update_settings(
    conn: &mut PgConnection,
    session_id: &str,
    settings: &FixSessionSettings,
) -> Result<(), StoreError> {
    let sql = "update fix_session \
         set allowed_sources = $2::text[]::cidr[], client_cert_sha256 = $3, client_cert_names = $4, \
             logon_secret = $5, logon_window_secs = $6, soft_messages_per_sec = $7, hard_messages_per_sec = $8, \
             admin_messages_per_sec = $9, resend_request_chunk = $10, last_msg_seq_num_processed = $11, \
             next_expected_msg_seq_num = $12, max_latency_secs = $13, schedule = $14, \
             drop_copy = $15, cancel_on_disconnect_secs = $16, order_age_secs = $17, \
             repeated_order_age_secs = $18, ignored_fields = $19, time_precision = $20, \
             text_encoding = $21, cl_ord_id_per_day = cl_ord_id_per_day or $22 \
         where session_id = $1";
    let parameters = (
        session_id,
        settings.allowed_sources.as_deref(),
        settings.client_cert_sha256.as_deref(),
        settings.client_cert_names.as_deref(),
        settings.logon_secret.as_deref(),
        settings.logon_window_secs,
        settings.soft_messages_per_sec,
        settings.hard_messages_per_sec,
        settings.admin_messages_per_sec,
        settings.resend_request_chunk,
        settings.last_msg_seq_num_processed,
        settings.next_expected_msg_seq_num,
        settings.max_latency_secs,
        settings.schedule.as_deref(),
        settings.drop_copy,
        settings.cancel_on_disconnect_secs,
        settings.order_age_secs,
        settings.repeated_order_age_secs,
        settings.ignored_fields.as_deref(),
        settings.time_precision.as_str(),
        settings.text_encoding.as_str(),
        settings.cl_ord_id_per_day,
    );
    let done = statement::affected(conn, sql, parameters).await?;
    if done == 1 {
        Ok(())
    } else {
        Err(StoreError::corrupt("fix_session", format_args!("no session {session_id}")))
    }
}

/// Marks a signed Logon's SendingTime(52) as used, in Unix nanoseconds. `false`: it, or a later one, was used before,
/// by any process.
pub async fn use_signed_logon(
    conn: &mut PgConnection,
    session_id: &str,
    signed_at: i64,
) -> Result<bool, StoreError> {
    let sql = "update fix_session set logon_signed_at = $2 where session_id = $1 and logon_signed_at < $2";
    Ok(statement::affected(conn, sql, (session_id, signed_at)).await? == 1)
}
