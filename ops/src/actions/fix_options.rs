//! The settings of a FIX session. Settings not given keep their values; `off` removes a requirement or a limit.

use clap::Args;
use dvp_core::operators::credentials::sessions;

#[derive(Debug, Args)]
pub(crate) struct SessionOptions {
    /// Copies of the reports of all the partner's orders, and no orders: true or false.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub drop_copy: Option<bool>,
    /// Cancel orders that are not locking yet this many seconds (0 to 3600) after the connection ended.
    #[arg(long, value_name = "SECONDS|off", value_parser = upto::<3600>)]
    pub cancel_on_disconnect: Option<Agreed<i32>>,
    /// How far an order without a price may slip, in basis points.
    #[arg(long, value_name = "BPS", value_parser = clap::value_parser!(i32).range(0..=10_000))]
    pub max_slippage_bps: Option<i32>,
    /// Networks that the peer may come from, with commas between them.
    #[arg(long, value_name = "NETWORKS|off", value_parser = networks)]
    pub allowed_sources: Option<Agreed<Vec<String>>>,
    /// SHA-256 of the client certificates (DER, hex) one of which must be shown, with commas between them.
    #[arg(long, value_name = "HASHES|off", value_parser = hashes)]
    pub client_cert_sha256: Option<Agreed<Vec<Vec<u8>>>>,
    /// DNS names one of which the client certificate must have, with commas between them.
    #[arg(long, value_name = "NAMES|off", value_parser = names)]
    pub client_cert_names: Option<Agreed<Vec<String>>>,
    /// The secret that Logons are signed with, 16 characters at least; then no password is taken. env:NAME, file:PATH,
    /// or - for a line of standard input; the secret itself is taken with a warning.
    #[arg(long, value_name = "SECRET|off", value_parser = text)]
    pub logon_secret: Option<Agreed<String>>,
    /// How far SendingTime(52) of a signed Logon may be off, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(1..=300))]
    pub logon_window: Option<i32>,
    /// Application messages a second beyond which they are refused one by one.
    #[arg(long, value_name = "RATE|off", value_parser = rate)]
    pub soft_rate: Option<Agreed<i32>>,
    /// Application messages a second beyond which the session ends.
    #[arg(long, value_name = "RATE|off", value_parser = rate)]
    pub hard_rate: Option<Agreed<i32>>,
    /// Session messages a second beyond which the session ends.
    #[arg(long, value_name = "RATE|off", value_parser = rate)]
    pub admin_rate: Option<Agreed<i32>>,
    /// The maximum number of messages that one ResendRequest requests.
    #[arg(long, value_name = "MESSAGES|off", value_parser = rate)]
    pub resend_request_chunk: Option<Agreed<i32>>,
    /// LastMsgSeqNumProcessed(369) in our messages: true or false.
    #[arg(long, value_name = "BOOL")]
    pub last_msg_seq_num_processed: Option<bool>,
    /// NextExpectedMsgSeqNum(789) in Logons: true or false.
    #[arg(long, value_name = "BOOL")]
    pub next_expected_msg_seq_num: Option<bool>,
    /// How far SendingTime(52) may be off, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(1..))]
    pub max_latency: Option<i32>,
    /// How old TransactTime(60) of an order may be, in seconds (1 to 604800).
    #[arg(long, value_name = "SECONDS|off", value_parser = age)]
    pub order_age: Option<Agreed<i32>>,
    /// How old an order may be that was possibly sent before (PossDupFlag, PossResend), in seconds (1 to 604800).
    #[arg(long, value_name = "SECONDS|off", value_parser = age)]
    pub repeated_order_age: Option<Agreed<i32>>,
    /// When there is a session, as `daily 08:00 Europe/Zurich to 22:00 Europe/Zurich`; off: always.
    #[arg(long, value_name = "SCHEDULE|off", value_parser = text)]
    pub schedule: Option<Agreed<String>>,
}

/// A setting's new value, or its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Agreed<T> {
    Off,
    On(T),
}

impl<T> Agreed<T> {
    fn parse(text: &str, on: impl FnOnce(&str) -> Result<T, String>) -> Result<Self, String> {
        if text == "off" { Ok(Self::Off) } else { on(text).map(Self::On) }
    }

    pub(super) fn on(self) -> Option<T> {
        match self {
            Self::Off => None,
            Self::On(agreed) => Some(agreed),
        }
    }
}

fn number(text: &str, least: i32, most: i32) -> Result<Agreed<i32>, String> {
    Agreed::parse(text, |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("{least} to {most}, or off"))
    })
}

fn upto<const MOST: i32>(text: &str) -> Result<Agreed<i32>, String> {
    number(text, 0, MOST)
}

fn rate(text: &str) -> Result<Agreed<i32>, String> {
    number(text, 1, 1_000_000)
}

fn age(text: &str) -> Result<Agreed<i32>, String> {
    number(text, 1, 604_800)
}

/// Of each part between commas.
fn list<T>(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Agreed<Vec<T>>, String> {
    Agreed::parse(text, |text| text.split(',').map(|part| one(part.trim())).collect())
}

fn networks(text: &str) -> Result<Agreed<Vec<String>>, String> {
    Agreed::parse(text, |text| sessions::networks(text).map_err(|part| format!("{part} is no network")))
}

fn hashes(text: &str) -> Result<Agreed<Vec<Vec<u8>>>, String> {
    list(text, |part| {
        let hash = hex::decode(part.replace(':', "")).ok().filter(|hash| hash.len() == 32);
        hash.ok_or_else(|| format!("{part} is not 64 hex digits"))
    })
}

fn names(text: &str) -> Result<Agreed<Vec<String>>, String> {
    list(text, |part| {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_name = (1..=253).contains(&part.len()) && part.chars().all(known);
        if is_name { Ok(part.to_ascii_lowercase()) } else { Err(format!("{part} is no DNS name")) }
    })
}

fn text(text: &str) -> Result<Agreed<String>, String> {
    Agreed::parse(text, |text| Ok(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_in_the_databases_form() {
        let on = |list: &[&str]| Ok(Agreed::On(list.iter().map(|&one| one.to_owned()).collect()));
        assert_eq!(networks("10.1.2.3/8, 192.0.2.7"), on(&["10.0.0.0/8", "192.0.2.7/32"]));
        assert_eq!(networks("off"), Ok(Agreed::Off));
        assert_eq!(networks("10.0.0.0/33"), Err("10.0.0.0/33 is no network".to_owned()));
        assert!(networks("").is_err() && networks("10.0.0.0/8,").is_err());
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        assert_eq!(rate("0"), Err("1 to 1000000, or off".to_owned()));
        assert_eq!(upto::<3600>("0"), Ok(Agreed::On(0)));
        assert_eq!(upto::<3600>("never"), Err("0 to 3600, or off".to_owned()));
        assert!(hashes("00").is_err() && names("a b").is_err());
    }
}
