//! Quotes, order status, drop copies, and cancel on disconnect.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use rust_decimal::Decimal;

use super::terms::adds_up;
use super::{
    client::Client,
    harness::{FIX_42, FIXT, FixHarness, LIMIT, LOGON, VERSIONS, cancel, logged_on, order, place},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_firm_quote_is_taken_once_at_its_price_in_every_version() {
    let harness = FixHarness::new().await;
    harness.settle_everything();
    let gateway = harness.gateway().await;
    for (begin_string, comp_id, logon) in VERSIONS {
        let mut client = gateway.client_of((begin_string, comp_id, logon)).await;
        let quote = client.ask("R", "131=q1|146=1|55=USDC/USD|54=2|38=100", "S").await;
        assert_eq!((quote.text(131), quote.text(55)), (Some("q1"), Some("USDC/USD")), "{quote:?}");
        assert_eq!((quote.text(134), quote.text(133)), (Some("100"), None), "{quote:?}");
        assert!(quote.text(62) > quote.text(60), "{quote:?}");
        let id = quote.text(117).unwrap();
        let (firm, again) = (format!("firm {comp_id}"), format!("again {comp_id}"));
        client.send("D", &order(&firm, "12345678", &format!("40=D|117={id}"))).await;
        let filled = client.report(&firm, "2").await;
        // The quote's price has the fees in it.
        let number = |text: Option<&str>| text.unwrap().parse::<Decimal>().unwrap();
        let net = number(filled.text(118).or(filled.text(119)));
        assert_eq!(
            (number(quote.text(132)) * number(filled.text(32))).trunc_with_scale(2),
            net,
            "{filled:?}"
        );
        adds_up(&filled, begin_string == "FIX.4.2");
        client.send("D", &order(&again, "12345678", &format!("40=D|117={id}"))).await;
        let refused = client.report(&again, "8").await;
        assert_eq!((refused.text(103), refused.text(58)), (Some("8"), Some("quote_already_used")));
        client.log_out().await;
    }
    let kept = "select count(*) from firm_quote where used_by is not null";
    assert_eq!(harness.count(kept).await, 3);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lets_too_many_reservations_go_is_told_when_to_come_back() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for statement in [
        "insert into cool_down (scope, subject, since, until) \
         select 'partner', id, now(), now() + interval '1 hour' from partner",
        "insert into unused_hold (partner_id, provider_id, asset, lapsed_in, held) \
         select id, 'north', 'USD', now(), 10::numeric ^ 30 from partner",
    ] {
        harness.execute(statement).await;
    }
    for (begin_string, comp_id, logon) in VERSIONS {
        let mut client = gateway.client_of((begin_string, comp_id, logon)).await;
        client.send("R", "131=q1|146=1|55=USDC/USD|54=2|38=100").await;
        let refused = client.expect_any(&["AG", "b"]).await;
        let text = refused.text(58).unwrap();
        assert!(text.starts_with("firm quotes of this pair are refused for now"), "{text}");
        assert!(text.contains("; try again after 20") && refused.text(131) == Some("q1"), "{refused:?}");
        let mine = format!("mine {comp_id}");
        client.send("D", &order(&mine, "12345678", "40=2|44=0.99")).await;
        let text = client.report(&mine, "8").await.text(58).unwrap().to_owned();
        assert!(text.starts_with("orders of this partner are refused for now"), "{text}");
        assert!(text.contains("; try again after 20"), "{text}");
    }
    assert_eq!(harness.count("select count(*) from execution").await, 0);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quote_without_liquidity_is_refused_in_the_versions_fields() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let cases = [
        ("146=1|55=GOLD/USD|54=2|38=1", Some("1"), "1"),
        ("146=1|55=USDC/USD|54=2|38=900000000000", None, "9"),
        ("146=1|55=USDC/USD|54=5|38=1", None, "99"),
        ("146=1|55=USDC/USD|54=2", None, "99"),
        ("146=1|55=USDC/USD|54=2|38=0", None, "99"),
        ("146=2|55=USDC/USD|54=2|38=1|55=USDC/USD|54=2|38=2", None, "99"),
    ];
    for (begin_string, comp_id, logon) in VERSIONS {
        let mut client = gateway.client_of((begin_string, comp_id, logon)).await;
        for (body, of_42, later) in cases {
            client.send("R", &format!("131=q|{body}")).await;
            let refused = client.expect_any(&["AG", "b"]).await;
            let (reason, expected) = if begin_string == "FIX.4.2" {
                assert_eq!((refused.text(35), refused.text(297)), (Some("b"), Some("5")), "{refused:?}");
                (refused.text(300), of_42)
            } else {
                assert_eq!(refused.text(35), Some("AG"), "{refused:?}");
                (refused.text(658), Some(later))
            };
            assert_eq!((reason, refused.text(131)), (expected, Some("q")), "{body}: {refused:?}");
            assert!(refused.text(58).is_some(), "{refused:?}");
        }
    }
    assert_eq!(harness.count("select count(*) from firm_quote").await, 0);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mass_status_reports_open_orders_only() {
    let (_harness, gateway, mut client) = logged_on().await;
    for id in ["a", "b", "c"] {
        place(&mut client, id, "00000008", LIMIT).await;
    }
    client.send("F", &cancel("x", "b")).await;
    client.report("x", "4").await;
    for (kind, expected) in
        [("585=7", &["a", "c"][..]), ("585=1|55=USDC/USD", &["a", "c"]), ("585=1|55=WETH/USD", &[])]
    {
        client.send("AF", &format!("584=m1|{kind}")).await;
        let mut reported = Vec::new();
        loop {
            let report = client.expect("8").await;
            assert_eq!((report.text(150), report.text(584)), (Some("I"), Some("m1")), "{report:?}");
            assert_eq!(report.text(911), Some(expected.len().to_string().as_str()), "{report:?}");
            reported.extend(report.text(11).filter(|_| report.text(37) != Some("NONE")).map(str::to_owned));
            if report.is_yes(912) {
                break;
            }
        }
        assert_eq!(reported, expected, "{kind}");
    }
    for (body, reason) in [("585=8", "0"), ("585=1", "5")] {
        client.send("AF", &format!("584=m|{body}")).await;
        assert_eq!(client.expect("j").await.text(380), Some(reason), "{body}");
    }
    let status = client.ask("H", "11=a|790=s1|54=2|55=USDC/USD", "8").await;
    assert_eq!((status.text(790), status.text(39)), (Some("s1"), Some("0")), "{status:?}");
    // FIX 4.2 has no such request: it is known, and not supported.
    let mut old = gateway.client_of(FIX_42).await;
    let refused = old.ask("AF", "584=m|585=7", "j").await;
    assert_eq!((refused.text(372), refused.text(380)), (Some("AF"), Some("3")), "{refused:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mass_status_requests_without_a_pause_are_refused_after_a_while() {
    let (_harness, gateway, mut client) = logged_on().await;
    // So many that a slow machine spends the allowance faster than it is given.
    for n in 0..120 {
        place(&mut client, &format!("o{n}"), "00000008", LIMIT).await;
    }
    let mut answered = 0;
    let refused = 'asked: loop {
        client.send("AF", "584=m|585=7").await;
        loop {
            let answer = client.expect_any(&["8", "j"]).await;
            if answer.text(35) == Some("j") {
                break 'asked answer;
            }
            if answer.is_yes(912) {
                break;
            }
        }
        answered += 1;
        assert!(answered < 1_000, "they are never refused");
    };
    assert_eq!((refused.text(372), refused.text(380)), (Some("AF"), Some("4")), "{refused:?}");
    assert!(answered > 50, "{answered}");
    // Other messages are answered.
    client.send("H", "11=o1|790=s1|54=2|55=USDC/USD").await;
    assert_eq!(client.expect("8").await.text(790), Some("s1"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_a_filled_order_has_its_receipt_and_anchor() {
    let harness = FixHarness::new().await;
    harness.settle_everything();
    let (gateway, mut client) = harness.logged_on().await;
    client.send("D", &order("o", "12345678", LIMIT)).await;
    client.report("o", "2").await;
    let ask = async |client: &mut Client| {
        client.send("H", "11=o|54=2|55=USDC/USD").await;
        client.expect("8").await
    };
    // The anchor is reported once it is final.
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        let status = ask(&mut client).await;
        if status.text(20106).is_some() {
            break status;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let hash: (Vec<u8>,) =
        sqlx::query_as("select content_hash from receipt").fetch_one(harness.pool()).await.unwrap();
    assert_eq!(status.text(20105), Some(format!("0x{}", hex::encode(hash.0)).as_str()), "{status:?}");
    assert!(status.text(20106).unwrap().starts_with("0x"), "{status:?}");
    assert_eq!((status.text(39), status.text(14), status.text(151)), (Some("2"), Some("100"), Some("0")));
    gateway.stop().await;
}

/// The next `count` reports, by ExecID.
async fn reports(client: &mut Client, count: usize) -> BTreeMap<String, String> {
    let mut reported = BTreeMap::new();
    while reported.len() < count {
        let report = client.expect("8").await;
        let said = |tag| report.text(tag).unwrap_or("-").to_owned();
        let words = [11, 37, 39, 14, 6, 54, 55, 20101, 20102].map(said).join("|");
        assert!(reported.insert(said(17), words).is_none(), "reported twice: {report:?}");
    }
    reported
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_copy_reports_all_orders_of_the_partner_and_accepts_none() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.drop_copy = true).await;
    let gateway = harness.gateway().await;
    let mut copy = gateway.client().await;
    for (kind, body) in
        [("D", order("mine", "12345678", LIMIT)), ("R", "131=q|146=1|55=USDC/USD|54=2|38=1".into())]
    {
        let refused = copy.ask(kind, &body, "j").await;
        assert_eq!((refused.text(372), refused.text(380)), (Some(kind), Some("6")), "{refused:?}");
    }
    let mut client = gateway.client_of(FIXT).await;
    place(&mut client, "rests", "00000008", LIMIT).await;
    client.send("F", &cancel("c", "rests")).await;
    let cancelled = client.report("c", "4").await;
    let copied = reports(&mut copy, 2).await;
    assert!(copied.contains_key(cancelled.text(17).unwrap()), "{copied:?}");
    harness.settle_everything();
    client.send("D", &order("through", "12345678", LIMIT)).await;
    let original = reports(&mut client, 5).await;
    assert_eq!(reports(&mut copy, 5).await, original);
    // Away, and an order through the other listener meanwhile.
    let logout = copy.log_out().await.seq().unwrap().0;
    let reference = harness.submit_otherwise("by rest").await;
    harness.wait_for_count("select count(*) from event where type = 'payout.completed'", 2).await;
    harness.wait_for_count("select count(*) from fix_outbound where session_id like '%->ACME'", 14).await;
    copy.reconnect(gateway.addr).await;
    let logon = copy.log_on(LOGON).await.seq().unwrap().0;
    copy.send("2", &format!("7={}|16={}", logout + 1, logon - 1)).await;
    let reported: BTreeSet<String> = reports(&mut copy, 5).await.into_values().collect();
    let filled = reported.iter().find(|words| words.contains("|2|100|")).expect("a fill");
    assert!(filled.starts_with(&format!("by rest|{reference}|")), "{filled}");
    assert!(filled.contains("|2|USDC/USD|payout|completed"), "{filled}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_on_disconnect_cancels_and_reports_on_the_next_logon() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.cancel_on_disconnect_secs = Some(2)).await;
    let (gateway, mut client) = harness.logged_on().await;
    for id in ["a", "b"] {
        client.send("D", &order(id, "00000008", LIMIT)).await;
    }
    client.report("b", "0").await;
    // Without such an agreement orders stay.
    let mut other = gateway.client_of(FIXT).await;
    place(&mut other, "stays", "00000008", LIMIT).await;
    drop(other);
    let seq = client.next_out;
    drop(client);
    harness.wait_for_count("select count(*) from event where type = 'intent.cancelled'", 2).await;
    harness.wait_for_count("select count(*) from fix_outbound where session_id like '%->ACME'", 4).await;
    assert_eq!(harness.count("select count(*) from execution where state_name = 'accepted'").await, 1);
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.next_out = seq;
    client.log_on(LOGON).await;
    client.send("2", "7=4|16=5").await;
    for id in ["a", "b"] {
        let report = client.expect("8").await;
        assert_eq!((report.text(11), report.text(39)), (Some(id), Some("4")), "{report:?}");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_on_disconnect_survives_the_death_of_the_sessions_owner() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.cancel_on_disconnect_secs = Some(0)).await;
    let (gateway, mut client) = harness.logged_on().await;
    place(&mut client, "a", "00000008", LIMIT).await;
    gateway.kill().await;
    assert_eq!(harness.count("select count(*) from event").await, 1);
    let gateway = harness.gateway().await;
    harness.wait_for_count("select count(*) from fix_outbound", 2).await;
    assert_eq!(harness.count("select count(*) from event where type = 'intent.cancelled'").await, 1);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_lost_the_session_cancels_nothing() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.cancel_on_disconnect_secs = Some(0)).await;
    let (gateway, mut client) = harness.logged_on().await;
    place(&mut client, "a", "00000008", LIMIT).await;
    // Another process has the session, as after this one was frozen.
    let taken = "update lease set owner = gen_random_uuid(), expires_at = now() + interval '1 hour' \
                 where name like 'fix:%->ACME'";
    harness.execute(taken).await;
    drop(client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(harness.count("select count(*) from event where type = 'intent.cancelled'").await, 0);
    gateway.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fix_42_is_answered_within_its_own_enumerations() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut client = gateway.client_of(FIX_42).await;
    let body = order("rests", "00000008", LIMIT);
    client.send("D", &body).await;
    let new = client.report("rests", "0").await;
    for (id, terms) in [("type", "40=3"), ("low", "40=2|44=1.5")] {
        client.send("D", &order(id, "12345678", terms)).await;
        assert_eq!(client.report(id, "8").await.text(103), Some("0"), "{id}");
    }
    // Sent again as it was: the current report again. Something else under its ClOrdID: a duplicate.
    client.send("D", &format!("97=Y|{body}")).await;
    let again = client.report("rests", "0").await;
    assert_eq!((again.text(17), again.text(20)), (new.text(17), Some("0")), "{again:?}");
    client.send("D", &format!("97=Y|{}", order("rests", "99999999", LIMIT))).await;
    assert_eq!(client.report("rests", "8").await.text(103), Some("6"));
    let status = client.ask("H", "11=rests|54=2|55=USDC/USD", "8").await;
    assert_eq!((status.text(20), status.text(150), status.text(39)), (Some("3"), Some("0"), Some("0")));
    let time = Client::utc().to_millis_text();
    let cancel = |id: &str, orig: &str| format!("11={id}|38=100|41={orig}|54=2|55=USDC/USD|60={time}");
    for (id, orig, reason) in [("c1", "nothing", "1"), ("c1", "rests", "2")] {
        let refused = client.ask("F", &cancel(id, orig), "9").await;
        assert_eq!((refused.text(102), refused.text(434)), (Some(reason), Some("1")), "{refused:?}");
    }
    client.send("F", &cancel("c2", "rests")).await;
    let cancelled = client.report("c2", "4").await;
    assert_eq!((cancelled.text(20), cancelled.text(150)), (Some("0"), Some("4")), "{cancelled:?}");
    gateway.stop().await;
}
