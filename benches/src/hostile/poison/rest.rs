//! Poisoned orders over REST, of the current and of the older surface.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_core::context::now;
use dvp_domain::intent::Permit;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::cases::{Case, Poisoned, Template, Then};
use super::ground::FreshWallet;
use super::{Accepted, Poisoning, Sent, Surface};
use crate::crash::process::text;
use crate::crash::rest::{bound, deliver_token, fiat_order, pay_with_token};
use crate::hostile::promises::Promises;
use crate::hostile::target::Peer;
use crate::wire::visible;

const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const PATH: &str = "/v1/intents";
/// What an order pays: ten tokens, a thousandth of a coin.
const TOKENS: u64 = 10_000_000;
const COINS: &str = "1000000000000000";
/// How long an order may last whose deadline is not poisoned.
const LASTS_SECS: u64 = 20;

type Job = (Case, Option<FreshWallet>);

/// Sends the cases one after the other, each when it is due.
pub(super) async fn run(plan: Poisoning, cases: Vec<Case>) -> anyhow::Result<Sent> {
    let wallets = cases.iter().filter(|case| case.template.has_permit()).count();
    let name = format!("poisoned {}", plan.peer.seed);
    let mut wallets = plan.ground.wallets(&name, wallets).await?.into_iter();
    let client = reqwest::Client::builder()
        .timeout(ANSWER_WITHIN)
        .local_address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 25)))
        .build()?;
    let (mut sent, mut sending) = (Sent::default(), JoinSet::new());
    let mut at = Instant::now();
    for case in cases {
        let wallet = if case.template.has_permit() { wallets.next() } else { None };
        tokio::select! {
            () = tokio::time::sleep_until(at.into()) => {}
            () = plan.peer.stop.cancelled() => break,
        }
        at += plan.peer.pause;
        sent.count += 1;
        sending.spawn(one(plan.clone(), client.clone(), (case, wallet)));
        plan.count.send_modify(|count| *count += 1);
    }
    while let Some(ended) = sending.join_next().await {
        sent.accepted.extend(ended??);
    }
    Ok(sent)
}

async fn one(
    plan: Poisoning,
    client: reqwest::Client,
    (case, wallet): Job,
) -> anyhow::Result<Option<Accepted>> {
    let Peer { target, promises, .. } = &plan.peer;
    let order = order(&target.ready, &case, wallet.as_ref()).with_context(|| case.describe())?;
    let place = (&*format!("http://{}", target.http), PATH);
    let request = target.hostile.post(&client, place, &Uuid::new_v4().to_string(), order.to_string())?;
    let answered = async {
        let answer = request.send().await?;
        anyhow::Ok((answer.status().as_u16(), answer.bytes().await?))
    };
    let (status, bytes) = match answered.await {
        Ok(answered) => answered,
        Err(error) => {
            let promise = "a poisoned order over REST is answered";
            promises.broken(promise, || format!("{}: {error:#}", case.describe()));
            return Ok(None);
        }
    };
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if !matches!(status, 201 | 202) {
        check_refusal(promises, &case, status, &answer, &bytes);
        return Ok(None);
    }
    let id = answer.get("intentId").or_else(|| answer.pointer("/data/intentId")).and_then(Value::as_str);
    let intent_id = id.context("the id of an accepted order")?.to_owned();
    then(&plan, &client, &case, wallet.as_ref(), &intent_id).await?;
    let surface = if case.template == Template::Legacy { Surface::Legacy } else { Surface::Rest };
    Ok(Some(Accepted { surface, id: intent_id, case: case.describe() }))
}

/// A refusal is no error of the service, and says which field or reason it is about.
fn check_refusal(promises: &Promises, case: &Case, status: u16, answer: &Value, bytes: &[u8]) {
    if promises.is_excused(status) {
        return;
    }
    let told = || format!("{}: {status} {}", case.describe(), visible(bytes));
    promises.check(status < 500, "a poisoned order is no error of the service (REST)", told);
    let said = |at: &str| answer.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (code, message) = (said("/error/code"), said("/error/message"));
    // A value of one field may be what makes another one wrong.
    let names_a_field = || {
        let named = message.split_once(": ").map_or("", |(path, _)| path);
        !named.is_empty() && named.chars().all(|c| c.is_ascii_alphanumeric() || ".[]".contains(c))
    };
    let is_named = match (status, code) {
        (400, "INVALID_PARAMETER") => names_a_field(),
        (422, "") => !said("/reason").is_empty(),
        _ => !code.is_empty() && !message.is_empty(),
    };
    promises.check(is_named, "a refusal of a poisoned order names a field or a reason (REST)", told);
}

async fn then(
    plan: &Poisoning,
    client: &reqwest::Client,
    case: &Case,
    wallet: Option<&FreshWallet>,
    intent_id: &str,
) -> anyhow::Result<()> {
    match (case.then, wallet) {
        (Then::Nothing, _) => Ok(()),
        (Then::CancelsAfter(pause), _) => {
            tokio::time::sleep(pause).await;
            let Peer { target, promises, .. } = &plan.peer;
            let url = format!("http://{}{PATH}/{intent_id}", target.http);
            let request = client.delete(url).header("X-API-Key", &target.hostile.api_key);
            let status = request.send().await.map_or(0, |answer| answer.status().as_u16());
            let is_answered = (200..500).contains(&status) || promises.is_excused(status);
            let told = || format!("{}: {status}", case.describe());
            promises.check(is_answered, "a cancellation of a poisoned order is answered", told);
            Ok(())
        }
        (then, Some(fresh)) => plan.ground.spoil(then, fresh.address).await,
        (then, None) => anyhow::bail!("{then:?} without a wallet"),
    }
}

fn order(ready: &Value, case: &Case, wallet: Option<&FreshWallet>) -> anyhow::Result<Value> {
    let value = resolved(&case.value);
    let mut order = template(ready, case.template, wallet)?;
    let is_marker = case.then != Then::Nothing && matches!(case.value, Poisoned::Unique(_));
    if is_marker {
        return Ok(order);
    }
    for field in case.at.pointers {
        set(&mut order, field, value.clone())?;
    }
    let Some(fresh) = wallet else { return Ok(order) };
    // What the permit says is signed as far as it can be.
    let signature = order["permit"]["signature"].clone();
    let is_its_own = case.at.pointers.contains(&"/permit/signature");
    if let Ok(permit) = serde_json::from_value::<Permit>(order["permit"].clone())
        && let Ok(signed) = fresh.wallet.signed(permit)
        && !is_its_own
    {
        order["permit"]["signature"] = json!(signed.signature);
    } else {
        order["permit"]["signature"] = signature;
    }
    Ok(order)
}

fn resolved(value: &Poisoned) -> Value {
    match value {
        Poisoned::Is(value) => value.clone(),
        Poisoned::MillisFromNow(millis) => json!(now().millis().saturating_add(*millis)),
        Poisoned::SecondsFromNow(seconds) => json!((now().millis() / 1000).saturating_add(*seconds)),
        Poisoned::Unique(line) => {
            let unique = format!("{}{line}", Uuid::new_v4().simple());
            json!(unique.chars().take(128).collect::<String>())
        }
    }
}

/// Sets a field, which may be missing in an object that is there.
fn set(order: &mut Value, pointer: &str, value: Value) -> anyhow::Result<()> {
    let (parent, name) = pointer.rsplit_once('/').context("a pointer")?;
    let parent = order.pointer_mut(parent).and_then(Value::as_object_mut);
    let fields = parent.with_context(|| format!("{pointer} is of no object"))?;
    fields.insert(name.to_owned(), value);
    Ok(())
}

fn template(ready: &Value, template: Template, wallet: Option<&FreshWallet>) -> anyhow::Result<Value> {
    if template == Template::Legacy {
        return Ok(json!({
            "pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "10", "strategy": "instant",
            "constraints": {"settlementPref": "auto"}, "clientRef": Uuid::new_v4().to_string(),
        }));
    }
    let mut order = fiat_order("000123456789")?;
    order["deadline"] = json!((now().unix_secs() + LASTS_SECS) * 1000);
    order["beneficiary"] = json!({
        "account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "wire",
        "swiftCode": "SANDUS33", "bank": "Sandbox Bank",
        "address": {"line1": "1 Main Street", "city": "New York", "state": "NY", "postalCode": "10001"},
    });
    order["metadata"] = json!({"depositReference": "INV-1"});
    // A bank in files takes the details of a recipient in dollars as they are.
    let fiat = |code: &str| json!({"type": "fiat", "symbol": code, "currency": code});
    order["inputAsset"] = fiat("EUR");
    order["outputAsset"] = fiat("USD");
    if let Some(fresh) = wallet {
        let permit = fresh.wallet.permit_with(0, TOKENS)?;
        pay_with_token(&mut order, &fresh.wallet, &permit)?;
    } else {
        ensure!(!template.has_permit(), "{template:?} without a wallet");
    }
    let [usdc, weth] = ["/chain/tokens/0/address", "/chain/tokens/1/address"].map(|at| text(ready, at));
    let coin = json!({"type": "native", "symbol": "ETH", "chain": "anvil"});
    let receiver = text(ready, "/chain/wallets/2/address")?;
    match template {
        Template::FiatToFiat | Template::TokenToFiat | Template::Legacy => {}
        Template::FiatExactOutput => bound(&mut order, 20_000, ["9000", "9000"])?,
        Template::TokenExactOutput => bound(&mut order, TOKENS, ["900", "900"])?,
        Template::FiatRange => bound(&mut order, 10_000, ["10900", "9000"])?,
        Template::TokenRange => bound(&mut order, TOKENS, ["1000", "900"])?,
        Template::TokenToToken => deliver_token(&mut order, weth?)?,
        Template::FiatToToken => {
            order["outputAsset"] =
                json!({"type": "erc20", "symbol": "USDC", "address": usdc?, "chain": "anvil"});
            order["outputRecipient"] = json!(receiver);
        }
        Template::FiatToCoin => {
            order["inputAsset"] = fiat("USD");
            order["outputAsset"] = coin;
            order["outputRecipient"] = json!(receiver);
        }
        Template::CoinToFiat => {
            order["inputAsset"] = coin;
            order["inputAmountMinor"] = json!(COINS);
            order["user"] = json!(receiver);
        }
    }
    Ok(order)
}
