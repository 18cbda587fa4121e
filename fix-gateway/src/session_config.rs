//! The session's configuration, from its row and settings to the engine's parameters.
//!
//! It is valid from when a gateway acquires the session until it releases it.

use std::time::Duration;

use dvp_fix::{
    Precision,
    codec::{MsgType, NoEncoding},
    dictionary::Rules,
    schedule::{Schedule, ScheduleError},
    session::SessionConfig,
    time::NoPrecision,
};
use dvp_store::fix::{FixSessionRow, settings::FixSessionSettings};

use crate::limits::FRAME_MAX;
use crate::orders::{fields::IgnoreList, tags};

/// Types that are not worth resending later: a quote is stale, a price has changed. Reports are resent.
const NEVER_RESENT: [MsgType; 5] = [
    MsgType::new("S").expect("one printable character"),
    MsgType::new("AG").expect("two printable characters"),
    MsgType::new("B").expect("one printable character"),
    MsgType::MARKET_DATA_SNAPSHOT,
    MsgType::MARKET_DATA_REQUEST_REJECT,
];
/// Message types that a reset of the numbers does not keep, because they are of no use later.
pub fn stale_types() -> Vec<String> {
    NEVER_RESENT.iter().map(|kind| kind.as_str().to_owned()).collect()
}

/// Requests that FIX 4.2 does not have, and that a client of a later version may send.
const LATER: [&str; 3] = ["AF", "q", "x"];
/// Whose tags that the version does not have there are passed: of a Logon(A) nothing depends on them.
const TOLERANT: [&str; 1] = ["A"];
/// A ResendRequest equal to the previous one is not answered twice within this time.
const SAME_REQUEST_WINDOW: Duration = Duration::from_millis(250);

/// The configuration with which a session was started. Credentials are read at each Logon and are not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    session: FixSessionRow,
    settings: FixSessionSettings,
}

impl Terms {
    pub(crate) fn of(session: &FixSessionRow, settings: &FixSessionSettings) -> Self {
        let session = FixSessionRow {
            username: String::new(),
            password_hash: Vec::new(),
            next_in: 0,
            next_out: 0,
            feed_position: 0,
            ..session.clone()
        };
        let settings = FixSessionSettings {
            allowed_sources: None,
            client_cert_sha256: None,
            client_cert_names: None,
            logon_secret: None,
            logon_window_secs: 0,
            soft_messages_per_sec: None,
            hard_messages_per_sec: None,
            admin_messages_per_sec: None,
            ..settings.clone()
        };
        Self { session, settings }
    }
}

/// Why a session's configuration is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionConfigError {
    #[error("no dictionary for this version")]
    NoDictionary,
    #[error("schedule: {0}")]
    Schedule(#[from] ScheduleError),
    #[error("text encoding: {0}")]
    TextEncoding(#[from] NoEncoding),
    #[error("time precision: {0}")]
    TimePrecision(#[from] NoPrecision),
    #[error("time precision: FIX 4.2 has seconds and millis, not {}", .0.as_str())]
    TooPrecise(Precision),
}

/// Checks a session's configuration.
///
/// # Errors
/// The invalid part.
pub fn check_agreement(
    session: &FixSessionRow,
    settings: &FixSessionSettings,
) -> Result<(), SessionConfigError> {
    session_config(session, settings).map(drop)
}

pub(crate) fn session_config(
    session: &FixSessionRow,
    settings: &FixSessionSettings,
) -> Result<SessionConfig, SessionConfigError> {
    let application = match session.default_appl_ver_id.as_deref() {
        None => session.begin_string.as_str(),
        Some("9") => "FIX.5.0SP2",
        Some(_) => return Err(SessionConfigError::NoDictionary),
    };
    let rules = Rules::strict(&session.begin_string, application).ok_or(SessionConfigError::NoDictionary)?;
    let ignored = IgnoreList::agreed(settings.ignored_fields.as_deref());
    let check_user_defined = !ignored.has_user_defined();
    let rules = Rules {
        extra: &tags::EXTRA,
        later: &LATER,
        tolerant: &TOLERANT,
        encoding: settings.text_encoding.parse()?,
        check_user_defined,
        ..rules
    };
    let schedule = settings.schedule.as_deref().map_or(Ok(Schedule::CONTINUOUS), str::parse)?;
    let time_precision: Precision = settings.time_precision.parse()?;
    if session.begin_string == "FIX.4.2" && matches!(time_precision, Precision::Micros | Precision::Nanos) {
        return Err(SessionConfigError::TooPrecise(time_precision));
    }
    let seconds = u64::try_from(settings.max_latency_secs).unwrap_or(0);
    Ok(SessionConfig {
        default_appl_ver_id: session.default_appl_ver_id.clone(),
        schedule,
        reset_on_logon: session.reset_on_logon,
        reset_allowed: session.reset_allowed,
        max_latency: Duration::from_secs(seconds),
        resend_request_chunk: settings.resend_request_chunk.and_then(|chunk| u64::try_from(chunk).ok()),
        never_resent: &NEVER_RESENT,
        same_request_window: SAME_REQUEST_WINDOW,
        last_msg_seq_num_processed: settings.last_msg_seq_num_processed,
        next_expected_msg_seq_num: settings.next_expected_msg_seq_num,
        max_message_size: Some(FRAME_MAX),
        time_precision,
        session_status: true,
        ..SessionConfig::new(&session.begin_string, &session.service_comp_id, &session.client_comp_id, rules)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(begin_string: &str, default_appl_ver_id: Option<&str>) -> FixSessionRow {
        FixSessionRow {
            session_id: "id".to_owned(),
            partner_id: "ptn_acme".to_owned(),
            livemode: false,
            begin_string: begin_string.to_owned(),
            client_comp_id: "ACME".to_owned(),
            service_comp_id: "DVP".to_owned(),
            default_appl_ver_id: default_appl_ver_id.map(str::to_owned),
            username: "acme".to_owned(),
            password_hash: Vec::new(),
            enabled: true,
            reset_on_logon: false,
            reset_allowed: false,
            max_slippage_bps: 50,
            next_in: 1,
            next_out: 1,
            feed_position: 0,
        }
    }

    #[test]
    fn settings_become_the_sessions_terms() {
        let settings = FixSessionSettings {
            resend_request_chunk: Some(500),
            last_msg_seq_num_processed: true,
            next_expected_msg_seq_num: true,
            max_latency_secs: 7,
            schedule: Some("weekly sun 17:05 America/New_York to fri 16:55 America/New_York".to_owned()),
            ..FixSessionSettings::default()
        };
        let config = session_config(&row("FIXT.1.1", Some("9")), &settings).unwrap();
        assert_eq!(config.resend_request_chunk, Some(500));
        assert!(
            config.last_msg_seq_num_processed && config.next_expected_msg_seq_num && !config.reset_allowed
        );
        assert_eq!(config.max_latency, Duration::from_secs(7));
        assert_eq!(
            config.schedule.to_string(),
            "weekly sun 17:05:00 America/New_York to fri 16:55:00 America/New_York"
        );
        let plain = session_config(&row("FIX.4.2", None), &FixSessionSettings::default()).unwrap();
        assert_eq!(plain.schedule, Schedule::CONTINUOUS);
    }

    #[test]
    fn a_session_with_invalid_settings_is_not_started() {
        let wrong =
            FixSessionSettings { schedule: Some("always".to_owned()), ..FixSessionSettings::default() };
        let error = |row: FixSessionRow, settings: &FixSessionSettings| session_config(&row, settings).err();
        assert_eq!(
            error(row("FIX.4.4", None), &wrong),
            Some(SessionConfigError::Schedule(ScheduleError::Form))
        );
        for precision in [Precision::Micros, Precision::Nanos] {
            let time_precision = precision.as_str().to_owned();
            let precise = FixSessionSettings { time_precision, ..FixSessionSettings::default() };
            assert_eq!(
                error(row("FIX.4.2", None), &precise),
                Some(SessionConfigError::TooPrecise(precision))
            );
            assert_eq!(error(row("FIX.4.4", None), &precise), None);
        }
        let fine = FixSessionSettings::default();
        assert_eq!(error(row("FIXT.1.1", Some("7")), &fine), Some(SessionConfigError::NoDictionary));
        assert_eq!(error(row("FIX.4.1", None), &fine), Some(SessionConfigError::NoDictionary));
    }
}
