//! The settings of a FIX session. Settings not given keep their values; `off` removes a requirement or a limit.

use std::collections::BTreeSet;

use clap::Args;
use dvp_core::operators::credentials::sessions;

#[derive(Debug, Args)]
pub(crate) struct SessionOptions {
    /// Copies of the reports of all the partner's orders, and no orders: true or false.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub drop_copy: Option<bool>,
    /// Cancel orders that can be cancelled this many seconds (0 to 3600) after the connection ended.
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
    /// Tags that are read and ignored, with commas between them and `user-defined` for those from 5000 on, in place of the
    /// list of docs/fix.md; none: every field without an effect is refused; off: that list again.
    #[arg(long, value_name = "TAGS|none|off", value_parser = tags)]
    pub ignored_fields: Option<Agreed<String>>,
    /// The fraction of a second in our timestamps; FIX 4.2 has seconds and millis.
    #[arg(long, value_name = "seconds|millis|micros|nanos", value_parser = ["seconds", "millis", "micros", "nanos"])]
    pub time_precision: Option<String>,
    /// The encoding of text, which MessageEncoding(347) may name.
    #[arg(long, value_name = "UTF-8|ISO-8859-1", value_parser = ["UTF-8", "ISO-8859-1"])]
    pub text_encoding: Option<String>,
    /// A ClOrdID is unique in a trading day, which begins as the schedule does (without one, at midnight UTC), and not for
    /// ever. It cannot be taken back.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub cl_ord_id_per_day: Option<bool>,
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

/// Ascending tags, then `user-defined`; empty for `none`.
fn tags(text: &str) -> Result<Agreed<String>, String> {
    const USER_DEFINED: &str = "user-defined";
    Agreed::parse(text, |text| {
        let parts = text.split(',').map(str::trim).filter(|_| text != "none");
        let (words, numbers): (Vec<_>, Vec<_>) = parts.partition(|part| *part == USER_DEFINED);
        let number = |part: &str| {
            let tag = part.parse::<u32>().ok().filter(|tag| (1..5000).contains(tag));
            tag.ok_or_else(|| format!("{part} is no tag below 5000, nor {USER_DEFINED}"))
        };
        let numbers: BTreeSet<u32> = numbers.into_iter().map(number).collect::<Result<_, _>>()?;
        let numbers = numbers.iter().map(u32::to_string);
        Ok(numbers.chain(words.first().map(|word| (*word).to_owned())).collect::<Vec<_>>().join(","))
    })
}

fn text(text: &str) -> Result<Agreed<String>, String> {
    Agreed::parse(text, |text| Ok(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: SessionOptions,
    }

    #[test]
    fn the_form_of_messages_is_one_that_fix_knows() {
        let line =
            ["set", "--time-precision", "micros", "--text-encoding", "ISO-8859-1", "--cl-ord-id-per-day"];
        let Line { options } = Line::try_parse_from(line).unwrap();
        assert_eq!(options.time_precision.as_deref(), Some("micros"));
        assert_eq!(options.text_encoding.as_deref(), Some("ISO-8859-1"));
        assert_eq!(options.cl_ord_id_per_day, Some(true));
        for wrong in
            [["--time-precision", "days"], ["--text-encoding", "EUC-JP"], ["--time-precision", "off"]]
        {
            assert!(Line::try_parse_from([&["set"][..], &wrong].concat()).is_err());
        }
    }

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
        assert_eq!(tags("100, 18,user-defined,18"), Ok(Agreed::On("18,100,user-defined".to_owned())));
        assert_eq!((tags("none"), tags("off")), (Ok(Agreed::On(String::new())), Ok(Agreed::Off)));
        assert!(tags("5000").is_err() && tags("").is_err() && tags("all").is_err());
    }
}
