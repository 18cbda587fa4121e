use alloy::signers::local::PrivateKeySigner;

use super::client::Client;
use super::harness::{FIX_42, FIXT, FixHarness, LIMIT, LOGON, VERSIONS, cancel, logged_on, order, order_by};
use super::terms::adds_up;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_reported_from_new_to_filled() {
    let harness = FixHarness::new().await;
    harness.settle_everything();
    let (gateway, mut client) = harness.logged_on().await;
    let new = client.ask("D", &order("first", "12345678", LIMIT), "8").await;
    assert_eq!((new.text(150), new.text(39), new.text(151)), (Some("0"), Some("0"), Some("100")), "{new:?}");
    assert!(new.text(37).unwrap().starts_with("exe_"), "{new:?}");
    assert!(new.text(198).unwrap().starts_with("DVP-"), "{new:?}");
    let filled = client.report("first", "2").await;
    assert_eq!(filled.text(150), Some("F"));
    assert_eq!((filled.text(14), filled.text(32), filled.text(151)), (Some("100"), Some("100"), Some("0")));
    adds_up(&filled, false);
    let net: rust_decimal::Decimal = filled.text(118).unwrap().parse().unwrap();
    let sql = "select object->'output'->>'amountMinor' from event where type = 'payout.completed'";
    let delivered: (String,) = harness.row(sql).await;
    assert_eq!((net * rust_decimal::Decimal::from(100)).normalize().to_string(), delivered.0);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_pipelined_and_answered_in_order() {
    let (harness, gateway, mut client) = logged_on().await;
    let wallet = PrivateKeySigner::random();
    for n in 0..300 {
        client.send("D", &order_by(&wallet, n, &format!("o{n}"), "12345678", LIMIT)).await;
    }
    for n in 0..300 {
        let report = client.expect("8").await;
        assert_eq!(report.text(11), Some(format!("o{n}").as_str()), "{report:?}");
        assert_eq!(report.text(39), Some("0"), "{report:?}");
        assert_eq!(u128::from(report.seq().unwrap().0), n + 2);
    }
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_order_is_rejected_with_its_reason() {
    let (_harness, gateway, mut client) = logged_on().await;
    let good = |id: &str| order(id, "12345678", LIMIT);
    let cases = [
        (good("symbol").replace("USDC/USD", "GOLD/USD"), "1", "unknown symbol"),
        (good("qty").replace("38=100|", "38=0|"), "13", "incorrect quantity"),
        (order("low", "12345678", "40=2|44=1.5"), "99", "below_minimum_output"),
        (
            good("permit").replace("|20003=0x", "|20003=0xzz"),
            "99",
            "PermitSignature(20003) is not a 65-byte hex value (of a user that is a contract: 65 to 2,048 bytes)",
        ),
        (order("type", "12345678", "40=3"), "11", "OrdType not supported"),
        (order("price", "12345678", "40=2"), "99", "Price required"),
        (good("tif") + "|59=6", "99", "ExpireTime in the future required"),
        (good("rail").replace("|20013=ach", ""), "99", "beneficiary_incomplete_for_jit_payout"),
        (order("quote", "12345678", "40=D|117=qte_none"), "99", "quote_not_found"),
    ];
    for (body, reason, text) in cases {
        let report = client.ask("D", &body, "8").await;
        assert_eq!((report.text(39), report.text(150)), (Some("8"), Some("8")), "{report:?}");
        assert_eq!((report.text(103), report.text(58)), (Some(reason), Some(text)), "{report:?}");
        assert_eq!((report.text(37), report.text(151)), (Some("NONE"), Some("0")), "{report:?}");
    }
    // A violation of the dictionary is a Reject; an unsupported message, a BusinessMessageReject.
    let reject = client.ask("D", &good("x").replace("|54=2", "|54=?"), "3").await;
    assert_eq!((reject.text(371), reject.text(373)), (Some("54"), Some("5")), "{reject:?}");
    client.send("6", "23=i|27=S|28=N|54=2|55=USDC/USD").await;
    assert_eq!(client.expect("j").await.text(380), Some("3"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_cl_ord_id_gets_the_same_report_again() {
    let (harness, gateway, mut client) = logged_on().await;
    let (body, bad) = (order("a", "12345678", LIMIT), order("b", "1", LIMIT).replace("USDC/USD", "GOLD/USD"));
    let new = client.ask("D", &format!("369=1|{body}"), "8").await;
    client.send("D", &bad).await;
    assert_eq!(client.expect("8").await.text(103), Some("1"));
    for again in [order("a", "12345678", LIMIT), order("b", "12345678", LIMIT), body.clone()] {
        let report = client.ask("D", &again, "8").await;
        assert_eq!((report.text(39), report.text(103)), (Some("8"), Some("6")), "{report:?}");
    }
    // Its header is another one.
    let again = client.ask("D", &format!("97=Y|369=2|{body}"), "8").await;
    assert_eq!((again.text(39), again.text(37), again.text(17)), (Some("0"), new.text(37), new.text(17)));
    // The rule outlives a reset of the numbers, and the gateway.
    gateway.stop().await;
    let gateway = harness.gateway().await;
    client.reconnect(gateway.addr).await;
    client.forget_numbers();
    client.log_on(&format!("141=Y|{LOGON}")).await;
    for again in [&body, &bad] {
        client.send("D", again).await;
        // The peer did not log out: unsure messages are sent again, marked as such.
        let mut report = client.expect("8").await;
        while report.is_yes(97) {
            report = client.expect("8").await;
        }
        assert_eq!(report.text(103), Some("6"));
    }
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_cancelled_before_its_lock_and_not_after() {
    let (harness, gateway, mut client) = logged_on().await;
    let wallet = PrivateKeySigner::random();
    client.ask("D", &order_by(&wallet, 0, "first", "00000008", LIMIT), "8").await;
    // Both in one go: the cancel waits for the order's commit.
    client.send("D", &order_by(&wallet, 1, "rests", "00000008", LIMIT)).await;
    let new = client.ask("F", &cancel("c1", "rests"), "8").await;
    let canceled = client.expect("8").await;
    assert_eq!((canceled.text(150), canceled.text(39)), (Some("4"), Some("4")), "{canceled:?}");
    assert_eq!((canceled.text(11), canceled.text(41)), (Some("c1"), Some("rests")));
    assert_eq!(canceled.text(37), new.text(37));

    let late = client.ask("F", &cancel("c2", "rests"), "9").await;
    assert_eq!(
        (late.text(102), late.text(39), late.text(434)),
        (Some("0"), Some("4"), Some("1")),
        "{late:?}"
    );
    let unknown = client.ask("F", &cancel("c3", "nothing"), "9").await;
    assert_eq!((unknown.text(102), unknown.text(37), unknown.text(39)), (Some("1"), Some("NONE"), Some("8")));
    client.send("F", &cancel("c1", "rests")).await;
    assert_eq!(client.expect("9").await.text(102), Some("6"));

    let status = client.ask("H", "11=rests|54=2|55=USDC/USD", "8").await;
    assert_eq!((status.text(150), status.text(39)), (Some("I"), Some("4")), "{status:?}");
    let status = client.ask("H", "11=nothing|54=2|55=USDC/USD", "8").await;
    assert_eq!((status.text(39), status.text(103), status.text(37)), (Some("8"), Some("5"), Some("NONE")));
    gateway.stop().await;
    // The answer reported the cancellation; its event is not reported again.
    assert_eq!(harness.count("select count(*) from fix_outbound where seq > 9").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_cancel_request_gets_its_own_answer_again() {
    let harness = FixHarness::new().await;
    harness.settle_everything();
    let (gateway, mut client) = harness.logged_on().await;
    client.send("D", &order("filled", "12345678", LIMIT)).await;
    client.report("filled", "2").await;
    let misfit = cancel("c2", "filled").replace("|54=2", "|54=1");
    for (request, id, reason) in
        [(&cancel("c1", "filled"), "c1", "0"), (&misfit, "c2", "99"), (&cancel("c3", "nothing"), "c3", "1")]
    {
        let mut answers = Vec::new();
        for again in ["", "97=Y|"] {
            let answer = client.ask("F", &format!("{again}{request}"), "9").await;
            assert_eq!((answer.text(11), answer.text(102)), (Some(id), Some(reason)), "{answer:?}");
            answers.push([37, 39, 41, 58].map(|tag| answer.text(tag).map(str::to_owned)));
        }
        assert_eq!(answers[0], answers[1]);
    }
    // A duplicate, and a repetition of another kind of request.
    client.send("F", &cancel("c1", "filled")).await;
    assert_eq!(client.expect("9").await.text(102), Some("6"));
    client.send("F", &format!("97=Y|{}", cancel("filled", "filled"))).await;
    assert_eq!(client.expect("9").await.text(102), Some("6"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_versions_log_on_and_get_reports_in_their_fields() {
    let harness = FixHarness::new().await;
    harness.settle_everything();
    let gateway = harness.gateway().await;
    let mut old = gateway.client_of(FIX_42).await;
    let new = old.ask("D", &order("old", "12345678", LIMIT), "8").await;
    assert_eq!((new.text(20), new.text(150), new.text(39)), (Some("0"), Some("0"), Some("0")), "{new:?}");
    let filled = old.report("old", "2").await;
    assert_eq!((filled.text(20), filled.text(150)), (Some("0"), Some("2")), "{filled:?}");

    let mut modern = gateway.client_of(FIXT).await;
    modern.send("D", &order("modern", "12345678", "40=1")).await;
    assert_eq!(modern.report("modern", "2").await.text(150), Some("F"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_is_honoured_while_the_lock_is_not_signed_in_every_version() {
    let harness = FixHarness::new().await;
    harness.start_workers();
    let gateway = harness.gateway().await;
    for version in VERSIONS {
        let mut client = gateway.client_of(version).await;
        let (id, request) = (format!("o{}", version.1), format!("c{}", version.1));
        let new = client.ask("D", &order(&id, "12345678", LIMIT), "8").await;
        harness.wait_for_state(new.text(37).unwrap(), "locking").await;
        let cancelled = client.ask("F", &cancel(&request, &id), "8").await;
        assert_eq!(
            (cancelled.text(150), cancelled.text(41)),
            (Some("4"), Some(id.as_str())),
            "{cancelled:?}"
        );
        // Of one that is not decided yet, too.
        let (id, request) = (format!("p{}", version.1), format!("d{}", version.1));
        client.send("D", &order(&id, "12345678", LIMIT)).await;
        client.send("F", &cancel(&request, &id)).await;
        assert_eq!(client.report(&request, "4").await.text(41), Some(id.as_str()));
    }
    assert_eq!(harness.count("select count(*) from execution where state_name <> 'cancelled'").await, 0);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_beyond_the_largest_size_is_rejected_and_the_session_goes_on() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for version in VERSIONS {
        let mut client = gateway.client_of(version).await;
        let huge = order("huge", "00000008", LIMIT) + "|58=" + &"x".repeat(200_000);
        let reject = client.ask("D", &huge, "3").await;
        let reason = (version.0 != "FIX.4.2").then_some("99");
        assert_eq!((reject.text(372), reject.text(373)), (Some("D"), reason), "{reject:?}");
        let said = "the message is longer than 65536 bytes, MaxMessageSize(383)";
        assert_eq!((reject.text(45), reject.text(58)), (Some("2"), Some(said)), "{reject:?}");
        let id = format!("after{}", version.1);
        client.send("D", &order(&id, "00000008", LIMIT)).await;
        assert_eq!(client.expect("8").await.text(39), Some("0"));
        client.log_out().await;
        // Its number is used: nothing is asked for again.
        client.reconnect(gateway.addr).await;
        assert_eq!(client.log_on(version.2).await.text(383), Some("65536"));
        client.send("1", "112=here").await;
        assert_eq!(client.next().await.unwrap().text(112), Some("here"));
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mass_cancel_takes_what_can_be_cancelled_of_a_symbol_or_of_all() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for version in &VERSIONS[1..] {
        let mut client = gateway.client_of(*version).await;
        let id = |name: &str| format!("{name}{}", version.1);
        for n in 0..4 {
            client.send("D", &order(&id(&format!("m{n}")), "00000008", LIMIT)).await;
            client.expect("8").await;
        }
        let time = Client::utc().to_millis_text();
        let refusals =
            [("530=7|55=USDC/USD", "0"), ("530=1", "1"), ("530=1|55=NONE/USD", "1"), ("530=5", "0")];
        for (n, (terms, reason)) in refusals.into_iter().enumerate() {
            let refused =
                client.ask("q", &format!("11={}|{terms}|60={time}", id(&format!("r{n}"))), "r").await;
            assert_eq!((refused.text(531), refused.text(532)), (Some("0"), Some(reason)), "{refused:?}");
        }
        let other = client.ask("q", &format!("11={}|530=1|55=USD/USDC|60={time}", id("other")), "r").await;
        assert_eq!((other.text(531), other.text(533)), (Some("1"), Some("0")), "{other:?}");
        client.send("D", &order(&id("last"), "12345678", LIMIT)).await;
        client.report(&id("last"), "0").await;
        let all = format!("11={}|530=7|60={time}", id("all"));
        client.send("q", &all).await;
        let report = client.expect("r").await;
        let said = [11, 530, 531, 533].map(|tag| report.text(tag).unwrap_or("-").to_owned());
        assert_eq!(said, [id("all"), "7".into(), "7".into(), "5".into()], "{report:?}");
        // They are cancelled side by side.
        let mut cancelled = Vec::new();
        while cancelled.len() < 5 {
            let report = client.expect("8").await;
            if report.text(39) == Some("4") && report.text(150) == Some("4") {
                cancelled.push(report.text(11).unwrap_or_default().to_owned());
            }
        }
        cancelled.sort();
        assert_eq!(cancelled, ["last", "m0", "m1", "m2", "m3"].map(id));
        let again = client.ask("q", &format!("97=Y|{all}"), "r").await;
        assert_eq!((again.text(531), again.text(533)), (Some("7"), Some("0")), "{again:?}");
        let duplicate = client.ask("q", &all, "r").await;
        assert_eq!((duplicate.text(531), duplicate.text(58)), (Some("0"), Some("duplicate ClOrdID")));
    }
    let mut old = gateway.client_of(FIX_42).await;
    assert_eq!(old.ask("q", "11=a|530=7|60=20260101-00:00:00", "j").await.text(380), Some("3"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_symbols_are_listed() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for version in &VERSIONS[1..] {
        let mut client = gateway.client_of(*version).await;
        let list = client.ask("x", "320=s1|559=4", "y").await;
        assert_eq!((list.text(320), list.text(560)), (Some("s1"), Some("0")), "{list:?}");
        let text = String::from_utf8_lossy(list.view().bytes()).into_owned();
        assert!(text.contains("\u{1}55=USDC/USD\u{1}"), "{text}");
        let count: usize = list.text(146).unwrap().parse().unwrap();
        assert_eq!((text.matches("\u{1}55=").count(), list.text(393)), (count, list.text(146)), "{text}");
        for (terms, result, count) in
            [("559=0|55=USDC/USD", "0", "1"), ("559=0|55=NONE/USD", "2", "0"), ("559=1", "1", "0")]
        {
            let list = client.ask("x", &format!("320=s2|{terms}"), "y").await;
            assert_eq!((list.text(560), list.text(393)), (Some(result), Some(count)), "{list:?}");
        }
    }
    gateway.stop().await;
}
