//! Poisoned orders over FIX 4.4: the same values in the fields of NewOrderSingle(D), and those of forms of its own.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::context::now;
use dvp_fix::codec::Message;
use serde_json::json;
use tokio::sync::watch;

use super::cases::{self, Addresses, Case, Field, Poisoned, Template, Then};
use super::ground::{FreshWallet, Ground};
use super::{Accepted, Poisoning, Sent, Surface};
use crate::crash::process::text;
use crate::dice::Dice;
use crate::hostile::fix_peers::carry_on;
use crate::hostile::target::Peer;
use crate::wire::{Fields, Line, after, fields, permit_fields, readable, utc, visible};

const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 24);
const HEARTBEAT: Duration = Duration::from_secs(20);
/// What an order with a permit pays, in the token's units.
const TOKENS: u64 = 10_000_000;

/// Symbol(55), OrderQty(38), Price(44).
const fn terms(template: Template) -> [&'static str; 3] {
    match template {
        Template::FiatToFiat | Template::FiatExactOutput | Template::FiatRange | Template::Legacy => {
            ["EUR/USD", "100", "0.5"]
        }
        Template::TokenToFiat | Template::TokenExactOutput | Template::TokenRange => {
            ["USDC/USD", "10", "0.9"]
        }
        Template::TokenToToken => ["USDC/WETH", "10", "0.0001"],
        Template::FiatToToken => ["USD/USDC", "100", "0.5"],
        Template::FiatToCoin => ["USD/ETH", "100", "0.0001"],
        Template::CoinToFiat => ["ETH/USD", "0.001", "100"],
    }
}

const QUANTITIES: &[&str] = &[
    "0.01",
    "0.000001",
    "0.000000000000000001",
    "1.10",
    "000000100",
    "18446744073709551615",
    "3402823669209384634633746074317682114.55",
];
const PRICES: &[&str] = &["0.000000000000001", "79228162514264337593543950335", "1", "0.92", "000.5"];
const NUMBERS: [(Template, u32, &[&str]); 7] = [
    (Template::FiatToFiat, 38, QUANTITIES),
    (Template::TokenToFiat, 38, QUANTITIES),
    (Template::TokenToToken, 38, QUANTITIES),
    (Template::FiatToCoin, 38, QUANTITIES),
    (Template::CoinToFiat, 38, QUANTITIES),
    (Template::FiatToFiat, 44, PRICES),
    (Template::TokenRange, 20_030, PRICES),
];

const CHOICES: [(Template, u32, &[&str]); 3] = [
    (Template::FiatToFiat, 54, &["1"]),
    (Template::FiatToFiat, 59, &["3", "4"]),
    (Template::TokenToFiat, 59, &["3", "4"]),
];

pub(super) fn all(addresses: &Addresses, has_bank: bool, dice: &mut Dice) -> Vec<Case> {
    let mut own = Vec::new();
    for (template, tag, values) in NUMBERS.into_iter().chain(CHOICES) {
        own.extend(values.iter().map(|value| Case::is(template, Field::fix(tag), value)));
    }
    cases::all(addresses, has_bank, own, |at| at.tag != 0, dice)
}

/// Sends the cases on one session, each when it is due.
pub(super) async fn run(plan: Poisoning, cases: Vec<Case>) -> anyhow::Result<Sent> {
    let wallets = cases.iter().filter(|case| case.template.has_permit()).count();
    let Poisoning { peer, ground, count, .. } = plan;
    let wallets = ground.wallets(&format!("poisoned FIX {}", peer.seed), wallets).await?;
    let mut client = Client {
        receiver: text(&peer.target.ready, "/chain/wallets/2/address")?.to_owned(),
        peer,
        ground,
        count,
        wallets: wallets.into_iter(),
        waiting: BTreeMap::new(),
        cancels: Vec::new(),
        sent: Sent::default(),
    };
    let mut cases = VecDeque::from(cases);
    while !cases.is_empty() && !client.peer.stop.is_cancelled() {
        match Line::log_on(client.peer.target.fix, FROM, &client.peer.login).await {
            Ok(mut line) => client.work(&mut line, &mut cases).await?,
            Err(_) => tokio::time::sleep(RECONNECT_INTERVAL).await,
        }
    }
    Ok(client.sent)
}

struct Waiting {
    seq: u64,
    case: Case,
    since: Instant,
    wallet: Option<FreshWallet>,
}

struct Client {
    peer: Peer,
    ground: Ground,
    count: Arc<watch::Sender<u64>>,
    receiver: String,
    wallets: std::vec::IntoIter<FreshWallet>,
    /// By ClOrdID.
    waiting: BTreeMap<String, Waiting>,
    /// When an order is to be cancelled, and its ClOrdID.
    cancels: Vec<(Instant, String)>,
    sent: Sent,
}

impl Client {
    /// Until the last case is answered, or the connection ends.
    async fn work(&mut self, line: &mut Line, cases: &mut VecDeque<Case>) -> anyhow::Result<()> {
        let mut at = Instant::now();
        let mut beat = tokio::time::interval(HEARTBEAT);
        loop {
            if self.peer.stop.is_cancelled() {
                cases.clear();
            }
            if cases.is_empty() && self.waiting.is_empty() && self.cancels.is_empty() {
                return Ok(());
            }
            self.give_up();
            self.cancels.sort();
            let due_cancel = self.cancels.first().map(|(at, _)| *at);
            tokio::select! {
                message = line.next() => {
                    let Some(message) = message else { return Ok(()) };
                    if !self.take(line, &message).await? {
                        return Ok(());
                    }
                }
                () = tokio::time::sleep_until(at.into()), if !cases.is_empty() => {
                    at += self.peer.pause;
                    if let Some(case) = cases.pop_front() {
                        self.place(line, case).await?;
                    }
                }
                () = sleep_until(due_cancel) => self.cancel(line).await,
                () = tokio::time::sleep(RECONNECT_INTERVAL) => {}
                _ = beat.tick() => {
                    let _ = line.send("0", &Fields::new()).await;
                }
            }
        }
    }

    async fn place(&mut self, line: &mut Line, case: Case) -> anyhow::Result<()> {
        let wallet = if case.template.has_permit() { self.wallets.next() } else { None };
        let id = match &case.value {
            Poisoned::Unique(text) => format!("P{}{text}", self.sent.count),
            _ => format!("P-{}-{}", self.peer.seed, self.sent.count),
        };
        let body = self.order(&case, &id, wallet.as_ref())?;
        self.sent.count += 1;
        self.count.send_modify(|count| *count += 1);
        if let Then::CancelsAfter(pause) = case.then {
            self.cancels.push((Instant::now() + pause, id.clone()));
        }
        // A broken connection shows when it is read.
        let (seq, bytes) = line.message("D", &body);
        let _ = line.write(&bytes).await;
        self.waiting.insert(id, Waiting { seq, case, since: Instant::now(), wallet });
        Ok(())
    }

    async fn cancel(&mut self, line: &mut Line) {
        let (_, id) = self.cancels.remove(0);
        let mut body = fields(&[(11, &format!("C-{id}")), (41, &id), (54, "2"), (55, "USD/EUR")]);
        body.extend(fields(&[(60, &utc()), (38, "10")]));
        let _ = line.send("F", &body).await;
    }

    /// Whether the session goes on.
    async fn take(&mut self, line: &mut Line, message: &Message) -> anyhow::Result<bool> {
        let said = |tag: u32| message.text(tag).unwrap_or_default().to_owned();
        match message.msg_type() {
            b"3" | b"j" => {
                let seq: u64 = said(45).parse().unwrap_or_default();
                let id = self.waiting.iter().find(|(_, one)| one.seq == seq).map(|(id, _)| id.clone());
                let refused = id.and_then(|id| self.waiting.remove(&id));
                if let Some(refused) = refused {
                    self.check_refusal(&refused.case, message);
                }
            }
            b"8" => {
                let Some(placed) = self.waiting.remove(&said(11)) else { return Ok(true) };
                if said(39) == "8" {
                    self.check_refusal(&placed.case, message);
                } else {
                    self.accepted(said(11), placed).await?;
                }
            }
            _ => return Ok(carry_on(line, message).await),
        }
        Ok(true)
    }

    async fn accepted(&mut self, id: String, placed: Waiting) -> anyhow::Result<()> {
        let (ground, case) = (&self.ground, placed.case.describe());
        if let Some(fresh) = placed.wallet {
            ground.spoil(placed.case.then, fresh.address).await?;
        }
        self.sent.accepted.push(Accepted { surface: Surface::Fix(self.peer.login.session_id()), id, case });
        Ok(())
    }

    /// A refusal has a text or names a tag.
    fn check_refusal(&self, case: &Case, message: &Message) {
        let is_named = [58, 371].iter().any(|tag| message.text(*tag).is_some_and(|said| !said.is_empty()));
        let promise = "a refusal of a poisoned order names a field or a reason (FIX)";
        self.peer.promises.check(is_named, promise, || format!("{}: {}", case.describe(), readable(message)));
    }

    fn give_up(&mut self) {
        let promises = &self.peer.promises;
        self.waiting.retain(|id, one| {
            let is_late = one.since.elapsed() > ANSWER_WITHIN;
            let promise = "a poisoned order over FIX is answered";
            promises
                .check(!is_late, promise, || format!("{}: {}", visible(id.as_bytes()), one.case.describe()));
            !is_late
        });
    }

    fn order(&self, case: &Case, id: &str, wallet: Option<&FreshWallet>) -> anyhow::Result<Fields> {
        let [symbol, quantity, price] = terms(case.template);
        let mut body = fields(&[(11, id), (21, "1"), (38, quantity), (40, "2"), (44, price), (54, "2")]);
        // It ends soon, unless that is what is poisoned.
        let expires = after(Duration::from_secs(20)).to_millis_text();
        body.extend(fields(&[(55, symbol), (59, "6"), (60, &utc()), (126, &expires)]));
        body.extend(fields(&[(20_010, "Jane Doe"), (20_011, "000123456789"), (20_012, "US")]));
        body.extend(fields(&[(20_013, "wire"), (20_014, "SANDUS33"), (20_016, "1 Main Street")]));
        body.extend(fields(&[(20_017, "New York"), (20_018, "NY"), (20_019, "10001")]));
        if matches!(case.template, Template::FiatToToken | Template::FiatToCoin) {
            body.extend(fields(&[(20_020, &self.receiver)]));
        }
        if case.template == Template::CoinToFiat {
            body.extend(fields(&[(20_021, &self.receiver)]));
        }
        if matches!(case.template, Template::TokenRange | Template::FiatRange) {
            body.extend(fields(&[(20_030, "1")]));
        }
        let value = match &case.value {
            Poisoned::Is(value) => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            Poisoned::MillisFromNow(millis) => {
                after(Duration::from_millis(u64::try_from(*millis)?)).to_millis_text()
            }
            Poisoned::SecondsFromNow(seconds) => {
                now().unix_secs().saturating_add_signed(*seconds).to_string()
            }
            Poisoned::Unique(_) => id.to_owned(),
        };
        if let Some(fresh) = wallet {
            body.extend(permit(case, &value, fresh)?);
        }
        let at = case.at.tag;
        if at == 59 {
            body.retain(|(tag, _)| *tag != 126);
        }
        match body.iter_mut().find(|(tag, _)| *tag == at) {
            Some((_, there)) => *there = value.into_bytes(),
            None => body.push((at, value.into_bytes())),
        }
        Ok(body)
    }
}

/// A permit's fields: what is poisoned of it is signed.
fn permit(case: &Case, value: &str, fresh: &FreshWallet) -> anyhow::Result<Fields> {
    let mut unsigned = fresh.wallet.unsigned(0, TOKENS)?;
    match case.at.tag {
        38 => {
            let amount = dvp_domain::money::Minor::parse_decimal(value, 6).ok();
            unsigned["amountMinor"] = json!(amount.map_or_else(|| TOKENS.to_string(), |one| one.to_string()));
        }
        20_001 => unsigned["nonce"] = json!(value),
        20_002 => unsigned["deadline"] = json!(value.parse::<u64>()?),
        20_004 => unsigned["amountMinor"] = json!(value),
        _ => {}
    }
    Ok(permit_fields(&fresh.wallet.signed(serde_json::from_value(unsigned)?)?))
}

/// Never without a time.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_field_of_an_order_has_poisoned_values() {
        let addresses = Addresses { recipients: vec!["0x00".to_owned()], payees: vec!["0x01".to_owned()] };
        let cases = all(&addresses, false, &mut Dice::new(1));
        let poisoned: BTreeSet<u32> = cases.iter().map(|case| case.at.tag).collect();
        let own: BTreeSet<u32> = dvp_fix_gateway::dictionaries::OWN_FIELDS
            .iter()
            .filter(|field| field.message == "D")
            .map(|field| field.tag)
            .collect();
        assert_eq!(own.difference(&poisoned).collect::<Vec<_>>(), Vec::<&u32>::new());
        for tag in [1, 11, 38, 44, 54, 55, 58, 59, 117, 126] {
            assert!(poisoned.contains(&tag), "{tag}");
        }
    }
}
