//! Hostile callers over REST: unknown keys, long-polls, signed bodies with hostile text, and too many valid orders.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use clap::ValueEnum as _;
use dvp_core::context::now;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::target::Peer;
use super::values::ValueFault;
use crate::crash::rest::fiat_order;
use crate::dice::Dice;
use crate::harness::ACCOUNT;
use crate::wire::visible;

const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How long a long-poll waits: as long as it may.
const WAIT: Duration = Duration::from_secs(8);

fn client_from(from: Ipv4Addr) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().timeout(ANSWER_WITHIN).local_address(IpAddr::V4(from)).build()
}

impl Peer {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.target.http)
    }

    fn signed(
        &self,
        client: &reqwest::Client,
        path: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<reqwest::RequestBuilder> {
        self.target.hostile.post(client, (&self.url(""), path), &Uuid::new_v4().to_string(), body)
    }

    /// Unknown keys in bursts, from the well-behaved partner's address too.
    pub(super) async fn unknown_keys(self, burst: usize) -> anyhow::Result<u64> {
        let clients = [client_from(Ipv4Addr::LOCALHOST)?, client_from(Ipv4Addr::new(127, 0, 0, 29))?];
        let mut dice = Dice::new(self.seed);
        let mut made = 0;
        while !self.stop.is_cancelled() {
            let mut requests = JoinSet::new();
            for client in clients.iter().cycle().take(burst) {
                let key = format!("svc_test_{:016x}{:016x}", dice.roll(u64::MAX), dice.roll(u64::MAX));
                let request = client.get(self.url("/v1/events")).header("X-API-Key", key);
                let promises = self.promises.clone();
                requests.spawn(async move {
                    let Ok(answer) = request.send().await else { return };
                    let status = answer.status().as_u16();
                    // Refused or deferred; never authenticated, and never an internal error.
                    let is_refused = matches!(status, 401 | 429 | 503);
                    promises.check(is_refused, "an unknown API key is refused", || status.to_string());
                });
                made += 1;
            }
            requests.join_all().await;
            tokio::time::sleep(self.pause).await;
        }
        Ok(made)
    }

    /// So many readers that wait for events that do not come.
    pub(super) async fn long_polls(self, count: usize) -> anyhow::Result<u64> {
        let client = client_from(Ipv4Addr::new(127, 0, 0, 28))?;
        let mut readers = JoinSet::new();
        let apart = WAIT / u32::try_from(count)?.max(1);
        for n in 0..u32::try_from(count)? {
            let (me, client) = (self.clone(), client.clone());
            readers.spawn(async move {
                // They came one after the other: two hundred requests at once are a burst, not a wait.
                tokio::time::sleep(apart * n).await;
                let mut made = 0_u64;
                while !me.stop.is_cancelled() {
                    let path = format!("/v1/events?wait={}&intentId=none-{made}", WAIT.as_secs());
                    let request =
                        client.get(me.url(&path)).header("X-API-Key", &me.target.hostile.api_key).send();
                    tokio::select! {
                        answer = request => {
                            let status = answer.map_or(0, |answer| answer.status().as_u16());
                            let is_known = matches!(status, 200 | 429 | 503);
                            me.promises.check(is_known, "a long-poll is answered", || status.to_string());
                            made += 1;
                            if status != 200 {
                                tokio::time::sleep(Duration::from_secs(1)).await;
                            }
                        }
                        // The first one is awaited: on a busy machine it may outlast the others' time.
                        () = me.stop.cancelled(), if made > 0 => {}
                    }
                }
                made
            });
        }
        Ok(readers.join_all().await.into_iter().sum())
    }

    /// Signed bodies with hostile text in every field, and the same in paths and queries.
    pub(super) async fn bodies(self) -> anyhow::Result<u64> {
        let client = client_from(Ipv4Addr::new(127, 0, 0, 27))?;
        let mut dice = Dice::new(self.seed);
        let mut answered = 0;
        while !self.stop.is_cancelled() {
            for (path, template) in templates()? {
                for pointer in leaves(&template) {
                    if self.stop.is_cancelled() {
                        break;
                    }
                    let what = *dice.pick(ValueFault::value_variants());
                    let body = with_text(&template, &pointer, &what.value(b"text", &mut dice));
                    let request = self.signed(&client, path, body.clone())?;
                    answered += u64::from(self.judge(path, &pointer, what, &body, request).await);
                    tokio::time::sleep(self.pause).await;
                }
            }
            answered += self.reads(&client, &mut dice).await;
        }
        Ok(answered)
    }

    /// Is the request answered? A value that is not text is refused with the field's name.
    async fn judge(
        &self,
        path: &str,
        pointer: &str,
        what: ValueFault,
        body: &[u8],
        request: reqwest::RequestBuilder,
    ) -> bool {
        let promise = format!("a signed body is answered ({path})");
        let (status, answer) = match answer_of(request).await {
            Ok(answered) => answered,
            Err(error) => {
                self.promises.broken(&promise, || format!("{pointer} {what:?}: {error:#}"));
                return false;
            }
        };
        let case = || format!("{what:?} in {pointer}: {status} {answer}; sent {}", visible(body));
        self.promises.check(
            status < 500 || self.promises.is_excused(status),
            &format!("a hostile body is no error of the service ({path})"),
            case,
        );
        // A free-form object may be named as a whole.
        let mut fields = pointer.split('/').filter(|field| !field.is_empty());
        // The contract leaves travelRuleData to the parties, so only the body's size bounds it.
        let is_free =
            pointer.contains("/travelRuleData/") && matches!(what, ValueFault::Long | ValueFault::VeryLong);
        if what.is_never_text() && !is_free && status < 500 {
            let promise = format!("text that no field may hold is refused ({path} {pointer})");
            self.promises.check(status >= 400, &promise, case);
            // Bytes that are no UTF-8 are no JSON: which field they are in is unknown.
            let is_readable = what != ValueFault::InvalidUtf8;
            let promise = format!("a refusal names the field at fault ({path} {pointer})");
            let is_named = fields.any(|field| answer.contains(field));
            self.promises.check(status != 400 || !is_readable || is_named, &promise, case);
        }
        true
    }

    async fn reads(&self, client: &reqwest::Client, dice: &mut Dice) -> u64 {
        let texts = ["%00", "%FF%FE", "%0A", "%C0%80", "..%2F..", "%E2%80%AE", "a%00b"];
        let long = "A".repeat(6_000);
        let mut answered = 0;
        for text in texts.into_iter().chain([long.as_str()]) {
            let paths = [
                format!("/v1/executions/{text}"),
                format!("/v1/executions/{text}/receipt?refType=executionId"),
                format!("/v1/intents/{text}/status"),
                format!("/v1/events?since={text}"),
                format!("/v1/events?intentId={text}"),
                format!("/v1/events/{text}"),
                format!("/v1/reconciliation?from={text}&to={text}"),
                format!("/v1/rates/{text}/USD"),
            ];
            for path in paths {
                let key = if dice.roll(10) == 0 { text } else { &self.target.hostile.api_key };
                let request = client.get(self.url(&path)).header("X-API-Key", key);
                match answer_of(request).await {
                    Ok((status, answer)) => {
                        answered += 1;
                        let case = || format!("{}: {status} {answer}", visible(path.as_bytes()));
                        let promise = "a hostile path or query is no error of the service";
                        let is_known = status < 500 || self.promises.is_excused(status);
                        self.promises.check(is_known, promise, case);
                    }
                    Err(error) => {
                        let case = || format!("{}: {error:#}", visible(path.as_bytes()));
                        self.promises.broken("a hostile path or query is answered", case);
                    }
                }
                tokio::time::sleep(self.pause / 4).await;
            }
        }
        answered
    }

    /// Bursts of valid orders: each is accepted or deferred.
    pub(super) async fn flood(self, burst: usize) -> anyhow::Result<u64> {
        let client = client_from(Ipv4Addr::new(127, 0, 0, 26))?;
        let mut answered = 0;
        while !self.stop.is_cancelled() {
            let mut requests = JoinSet::new();
            for _ in 0..burst {
                let body = fiat_order(ACCOUNT)?.to_string().into_bytes();
                requests.spawn(answer_of(self.signed(&client, "/v1/intents", body)?));
            }
            for answer in requests.join_all().await {
                let (status, answer) = answer.unwrap_or_else(|error| (0, format!("{error:#}")));
                let is_known = matches!(status, 202 | 429 | 503);
                let promise = "a valid order beyond the partner's share is accepted or deferred";
                self.promises.check(is_known, promise, || format!("{status} {answer}"));
                answered += u64::from(is_known);
            }
            tokio::time::sleep(self.pause).await;
        }
        Ok(answered)
    }
}

async fn answer_of(request: reqwest::RequestBuilder) -> anyhow::Result<(u16, String)> {
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    Ok((status, visible(&answer.bytes().await?)))
}

/// A body in order for each POST.
pub(super) fn templates() -> anyhow::Result<Vec<(&'static str, Value)>> {
    let mut order = fiat_order(ACCOUNT)?;
    // Everything that the contract has, so that each field is walked.
    order["outputRecipient"] = json!("acme");
    order["actorType"] = json!("institution");
    order["side"] = json!("sell");
    order["metadata"] = json!({
        "senderKycHash": "k", "depositReference": "d", "currency": "USD", "targetStablecoin": "USDC",
        "travelRuleData": {"originator": "o"}, "beneficiaryAccount": "a", "beneficiaryName": "n",
    });
    let mut inline = order.clone();
    inline["beneficiary"] = json!({
        "account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "wire",
        "swiftCode": "SANDUS33", "bank": "Bank", "travelRuleData": {"beneficiary": "b"},
        "address": {"line1": "l", "city": "c", "state": "s", "postalCode": "p"},
    });
    let mut with_permit = fiat_order(ACCOUNT)?;
    let (token, spender) = (format!("0x{}", "aa".repeat(20)), format!("0x{}", "bb".repeat(20)));
    with_permit["user"] = json!(spender);
    with_permit["inputAsset"] =
        json!({"type": "erc20", "symbol": "USDC", "address": token, "chain": "anvil"});
    with_permit["permit"] = json!({
        "token": token, "amountMinor": "10000", "spender": spender, "nonce": "0",
        "deadline": now().unix_secs() + 7200, "signature": format!("0x{}", "cc".repeat(65)),
    });
    let asset = |symbol: &str| json!({"type": "fiat", "symbol": symbol, "currency": symbol});
    Ok(vec![
        ("/v1/intents", order),
        ("/v1/intents", inline),
        ("/v1/intents", with_permit),
        (
            "/v1/intents",
            json!({"pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "10",
                   "strategy": "instant", "constraints": {"settlementPref": "auto"}, "clientRef": "r"}),
        ),
        (
            "/v1/quotes",
            json!({"requestId": "r", "actorId": "a", "source": "USD", "target": "EUR", "amount": "10",
                   "side": "sell", "settlementPref": "hybrid"}),
        ),
        (
            "/v1/quotes/firm",
            json!({"requestId": "r", "actorId": "a", "inputAsset": asset("USD"), "outputAsset": asset("EUR"),
                   "amountMinor": "1000", "amountType": "source"}),
        ),
    ])
}

/// The pointers of all values that are neither objects nor lists.
pub(super) fn leaves(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let below = |(name, value): (&String, &Value)| {
                leaves(value).into_iter().map(|rest| format!("/{name}{rest}")).collect::<Vec<_>>()
            };
            fields.iter().flat_map(below).collect()
        }
        _ => vec![String::new()],
    }
}

/// The body with bytes as the text of one field: escaped where JSON demands it, as they are where they are no UTF-8.
fn with_text(template: &Value, pointer: &str, text: &[u8]) -> Vec<u8> {
    const MARK: &str = "the-text-goes-here";
    let mut body = template.clone();
    if let Some(value) = body.pointer_mut(pointer) {
        *value = json!(MARK);
    }
    let escaped = match std::str::from_utf8(text) {
        Ok(text) => json!(text).to_string().into_bytes(),
        Err(_) => [b"\"", text, b"\""].concat(),
    };
    let body = body.to_string();
    let (before, after) = body.split_once(&format!("\"{MARK}\"")).unwrap_or((&body, ""));
    [before.as_bytes(), &escaped, after.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_of_a_body_can_hold_hostile_text() {
        let template = json!({"a": {"b": "x", "c": 1}, "d": "y"});
        assert_eq!(leaves(&template), ["/a/b", "/a/c", "/d"]);
        assert_eq!(with_text(&template, "/a/c", b"\0"), br#"{"a":{"b":"x","c":"\u0000"},"d":"y"}"#);
        assert_eq!(with_text(&template, "/d", b"\xff"), b"{\"a\":{\"b\":\"x\",\"c\":1},\"d\":\"\xff\"}");
    }
}
