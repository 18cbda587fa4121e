//! The terms of an order, and their fields in its reports, also in late ones.

use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use dvp_fix::{UtcNanos, codec::Message};
use dvp_store::orders::feed;
use dvp_testing::market::{ESCROW, PERMIT, TOKEN};
use rust_decimal::{Decimal, RoundingStrategy};

use super::{
    client::Client,
    harness::{FixHarness, LIMIT, LOGON, VERSIONS, cancel, logged_on, order, order_by, purchase},
};

/// The body with an earlier TransactTime(60).
fn sent_ago(body: &str, ago: Duration) -> String {
    let now = Client::utc();
    let then = UtcNanos(now.0 - u64::try_from(ago.as_nanos()).unwrap()).to_millis_text();
    let rest = body.split('|').filter(|field| !field.starts_with("60="));
    rest.map(str::to_owned).chain([format!("60={then}")]).collect::<Vec<_>>().join("|")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_is_correct_after_the_events_left_the_feed() {
    let harness = FixHarness::new().await;
    harness.settle_everything();
    let (gateway, mut client) = harness.logged_on().await;
    let body = order("old", "12345678", LIMIT);
    client.send("D", &body).await;
    let filled = client.report("old", "2").await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let sql = "update event set observed_at = observed_at - interval '16 days', occurred_at = occurred_at - interval '16 days'";
    harness.run(sql).await;
    assert!(feed::trim(&mut conn, 1000).await.unwrap() > 0);
    drop(conn);
    assert_eq!(harness.count("select count(*) from event where type = 'payout.completed'").await, 0);
    let status = client.ask("H", "11=old|54=2|55=USDC/USD", "8").await;
    assert_eq!((status.text(150), status.text(39)), (Some("I"), Some("2")), "{status:?}");
    assert_eq!((status.text(14), status.text(6)), (filled.text(14), filled.text(6)));
    let again = client.ask("D", &format!("97=Y|{body}"), "8").await;
    assert_eq!((again.text(39), again.text(17)), (Some("2"), filled.text(17)), "{again:?}");
    let late = client.ask("F", &cancel("c", "old"), "9").await;
    assert_eq!((late.text(102), late.text(39)), (Some("0"), Some("2")), "{late:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_order_with_poss_resend_is_not_executed() {
    let (harness, gateway, mut client) = logged_on().await;
    let (hour, minute) = (Duration::from_secs(3600), Duration::from_secs(60));
    let resent = |id: &str, ago| format!("97=Y|{}", sent_ago(&order(id, "00000008", LIMIT), ago));
    let refused = client.ask("D", &resent("resent", hour), "8").await;
    assert_eq!((refused.text(39), refused.text(103)), (Some("8"), Some("4")), "{refused:?}");
    let text = "TransactTime(60) is more than 120 seconds ago, and the order may have been sent before";
    assert_eq!(refused.text(58), Some(text));
    // A duplicate of the session layer: its TransactTime is new, and it was first sent an hour ago.
    let orig = UtcNanos(Client::utc().0 - 3_600_000_000_000);
    let seq = client.next_out;
    client.next_out += 1;
    client.send_as(seq, Some(orig), "D", &order("dup", "00000008", LIMIT)).await;
    let refused = client.expect("8").await;
    assert_eq!(refused.text(103), Some("4"), "{refused:?}");
    assert!(refused.text(58).unwrap().starts_with("OrigSendingTime(122)"));
    client.send("D", &resent("young", minute)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    // Nothing was agreed on about fresh ones.
    client.send("D", &sent_ago(&order("fresh", "00000008", LIMIT), hour)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    gateway.stop().await;

    harness
        .change_settings(|settings| {
            settings.order_age_secs = Some(30);
            settings.repeated_order_age_secs = None;
        })
        .await;
    let gateway = harness.gateway().await;
    client.reconnect(gateway.addr).await;
    client.log_on(LOGON).await;
    let refused = client.ask("D", &sent_ago(&order("stale", "00000008", LIMIT), hour), "8").await;
    assert_eq!(refused.text(58), Some("TransactTime(60) is more than 30 seconds ago"), "{refused:?}");
    client.send("D", &order("now", "00000008", LIMIT)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradictory_or_invalid_terms_are_refused() {
    let (harness, gateway, mut client) = logged_on().await;
    let good = |id: &str| order(id, "00000008", LIMIT);
    let without = |id: &str, tag: &str| {
        let prefix = format!("{tag}=");
        let kept: Vec<String> =
            good(id).split('|').filter(|field| !field.starts_with(&prefix)).map(str::to_owned).collect();
        kept.join("|")
    };
    let cases = [
        (order("p1", "00000008", "40=1").replace("USDC/USD", "USD/USD"), "no_liquidity"),
        (order("p2", "00000008", "40=1|44=0.9"), "Price(44) is not for OrdType(40) 1"),
        (order("p3", "00000008", "40=D|117=qte_none"), "quote_not_found"),
        (order("p4", "00000008", "40=D"), "QuoteID(117) required"),
        (without("n1", "20003"), "PermitSignature(20003) required with a permit"),
        (without("n2", "20001"), "PermitNonce(20001) required with a permit, a whole number"),
        (without("n3", "20002"), "PermitDeadline(20002) required with a permit, a whole number"),
        (without("n4", "20001") + "|20001=-1", "PermitNonce(20001) required with a permit, a whole number"),
        (good("n5") + "|20004=-5", "PermitAmount(20004) must be a whole number"),
        (good("a") + "|1=other", "Account(1) and BeneficiaryAccount(20011) differ"),
        (
            without("c", "20012") + "|20012=USA",
            "BeneficiaryCountry(20012) must be an ISO 3166-1 alpha-2 code of a country",
        ),
        (
            without("z", "20012") + "|20012=ZZ",
            "BeneficiaryCountry(20012) must be an ISO 3166-1 alpha-2 code of a country",
        ),
        (good("s") + "|20014=nonsense!", "SwiftCode(20014) must be a BIC of 8 or 11 characters (ISO 9362)"),
        (
            order("i", "DE89370400440532013001", LIMIT),
            "BeneficiaryAccount(20011) must be an IBAN of its country's length and structure, with right check digits",
        ),
        (without("m", "20010"), "beneficiary_incomplete_for_jit_payout"),
        (good("x") + "|59=6|126=20991231-00:00:00", "ExpireTime(126) is more than 30 days ahead"),
        (good("e") + "|126=20991231-00:00:00", "ExpireTime(126) is for TimeInForce(59) 6"),
        (good("d") + "|59=6|432=20200101", "ExpireDate(432) in the future required"),
        (good("t") + "|59=0|432=20991231", "ExpireDate(432) is for TimeInForce(59) 6"),
        (
            good("b") + "|59=6|126=20991231-00:00:00|432=20991231",
            "ExpireTime(126) and ExpireDate(432) exclude each other",
        ),
    ];
    for (body, text) in cases {
        let report = client.ask("D", &body, "8").await;
        assert_eq!((report.text(39), report.text(58)), (Some("8"), Some(text)), "{report:?}");
    }
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 0);
}

/// A book's arithmetic: the gross amount less what is deducted is what came in.
pub(super) fn adds_up(filled: &Message, is_42: bool) {
    let number = |tag| filled.text(tag).map_or(Decimal::ZERO, |text| text.parse().unwrap());
    let gross = (number(32) * number(31)).round_dp_with_strategy(2, RoundingStrategy::ToZero);
    assert_eq!((number(381), number(14), number(6)), (gross, number(32), number(31)), "{filled:?}");
    let (net, currency) = if is_42 { (119, 120) } else { (118, 479) };
    assert_eq!(number(net), gross - number(12) - number(137), "{filled:?}");
    assert_eq!((filled.text(13), filled.text(currency)), (Some("3"), Some("USD")), "{filled:?}");
    assert!(number(12) > Decimal::ZERO && (is_42 || filled.text(138) == Some("USD")), "{filled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fill_reports_account_currency_and_fees_in_every_version() {
    let harness = FixHarness::new().await;
    harness.settle_everything();
    let gateway = harness.gateway().await;
    for version in VERSIONS {
        let (begin_string, comp_id, _) = version;
        let mut client = gateway.client_of(version).await;
        let body = order(&format!("f{comp_id}"), "12345678", LIMIT) + "|1=12345678|15=USDC";
        let new = client.ask("D", &body, "8").await;
        assert_eq!((new.text(1), new.text(15), new.text(12)), (Some("12345678"), Some("USDC"), None));
        let filled = client.report(&format!("f{comp_id}"), "2").await;
        assert_eq!((filled.text(1), filled.text(15)), (Some("12345678"), Some("USDC")), "{filled:?}");
        // Half a dollar for the payout, and five basis points of 100 USDC.
        let own = [20107, 20108, 20109, 20114].map(|tag| filled.text(tag).unwrap_or_default());
        assert_eq!(own, ["0.5", "USD", "0.05", "USDC"], "{filled:?}");
        adds_up(&filled, begin_string == "FIX.4.2");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_report_keeps_its_exec_id_and_a_status_has_its_own() {
    let (_harness, gateway, mut client) = logged_on().await;
    let (good, bad) = (order("good", "00000008", LIMIT), order("bad", "00000008", "40=3"));
    let cancel = cancel("c", "good");
    for (msg_type, body) in [("D", &good), ("D", &bad), ("F", &cancel)] {
        let first = client.ask(msg_type, body, "8").await;
        let again = client.ask(msg_type, &format!("97=Y|{body}"), "8").await;
        for tag in [11, 17, 37, 39, 41, 150] {
            assert_eq!(first.text(tag), again.text(tag), "{tag} of {again:?}");
        }
    }
    let mut reported = std::collections::BTreeSet::new();
    for _ in 0..3 {
        client.send("H", "11=good|54=2|55=USDC/USD").await;
        assert!(reported.insert(client.expect("8").await.text(17).unwrap().to_owned()));
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purchase_by_quote_is_bounded_by_the_quotes_own_amounts() {
    let (harness, gateway, mut client) = logged_on().await;
    let quote = client.ask("R", "131=q|146=1|55=USDC/USD|54=2|38=100", "S").await;
    // The quote is for a sale, so the engine refuses; the bounds of the request are stored.
    let time = Client::utc().to_millis_text();
    let wallet = "0xcccccccccccccccccccccccccccccccccccccccc";
    let id = quote.text(117).unwrap();
    let body = format!("11=buy|21=1|38=100|40=D|117={id}|54=1|55=USDC/USD|60={time}|20020={wallet}");
    client.send("D", &body).await;
    assert_eq!(client.expect("8").await.text(39), Some("8"));
    gateway.stop().await;
    let sql = "select count(*) from intent, firm_quote \
               where intent.request->'bounds'->'exact_output'->'max_input' = firm_quote.terms->'priced'->'input'";
    assert_eq!(harness.count(sql).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wallet_that_nobody_could_spend_from_is_refused_by_its_tag() {
    let (_harness, gateway, mut client) = logged_on().await;
    let zero = format!("0x{:040x}", 0);
    let sold = |id: &str, wallet: &str| format!("{}|20021={wallet}", order(id, "00000008", LIMIT));
    let to = |id: &str, wallet: &str| {
        let body = purchase(id);
        let kept = body.split('|').filter(|field| !field.starts_with("20020="));
        kept.map(str::to_owned).chain([wallet.to_owned()]).collect::<Vec<_>>().join("|")
    };
    let recipient = |id: &str, wallet: &str| to(id, &format!("20020={wallet}"));
    for (body, text) in [
        (recipient("a", &zero), "OutputRecipient(20020) is the zero address, which nobody owns"),
        (recipient("b", TOKEN), "OutputRecipient(20020) is the token contract of USDC"),
        (recipient("c", ESCROW), "OutputRecipient(20020) is the escrow of anvil"),
        (
            recipient("d", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"),
            "OutputRecipient(20020) has a wrong checksum",
        ),
        (to("e", &format!("20021={zero}")), "UserWallet(20021) is the zero address"),
        (sold("f", &zero), "UserWallet(20021) is the zero address"),
        (sold("g", PERMIT), "UserWallet(20021) is the permit contract of anvil"),
    ] {
        let report = client.ask("D", &body, "8").await;
        assert_eq!((report.text(39), report.text(103)), (Some("8"), Some("99")), "{report:?}");
        assert!(report.text(58).unwrap().starts_with(text), "{report:?}");
    }
    // This one is taken; the market has nobody to sell to it.
    let report = client.ask("D", &recipient("h", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"), "8").await;
    assert_eq!(report.text(58), Some("no_liquidity"), "{report:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_out_of_nonce_order_is_refused_by_its_tag() {
    let (harness, gateway, mut client) = logged_on().await;
    let wallet = PrivateKeySigner::random();
    let of = |id: &str, nonce| order_by(&wallet, nonce, id, "00000008", LIMIT);
    let with_v = |body: String, v: &str| {
        let fields = body.split('|').map(|field| match field.strip_prefix("20003=") {
            Some(signature) => format!("20003={}{v}", &signature[..signature.len() - 2]),
            None => field.to_owned(),
        });
        fields.collect::<Vec<_>>().join("|")
    };
    let refused = |nonce| format!("PermitNonce(20001) leaves a gap: the wallet's next is {nonce}");
    let v = "PermitSignature(20003) ends in a v that is neither 0, 1, 27 nor 28";
    for (id, body, text) in [
        ("gap", of("gap", 1), Some(refused(0))),
        ("v", with_v(of("v", 0), "25"), Some(v.to_owned())),
        ("dust", of("dust", 0).replace("|38=100|", "|38=0.999999|"), Some("no_liquidity".to_owned())),
        ("large", of("large", 0).replace("|38=100|", "|38=500000.000001|"), Some("no_liquidity".to_owned())),
        ("first", of("first", 0), None),
        ("gap2", of("gap2", 2), Some(refused(1))),
        ("second", of("second", 1), None),
    ] {
        let report = client.ask("D", &body, "8").await;
        assert_eq!(report.text(11), Some(id));
        let state = if text.is_some() { ("8", Some("99")) } else { ("0", None) };
        assert_eq!((report.text(39), report.text(103)), (Some(state.0), state.1), "{report:?}");
        assert_eq!(report.text(58), text.as_deref(), "{report:?}");
    }
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from intent where reference is not null").await, 2);
}
