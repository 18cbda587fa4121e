//! A ClOrdID that is unique in a trading day, and messages of yesterday that come today.

use dvp_fix::UtcNanos;

use super::{
    client::Client,
    harness::{FixHarness, Gateway, LIMIT, LOGON, cancel, order, place},
    schedule::{HOUR, time_of_day},
};

/// A schedule whose trading day begins at an instant, where it is neither midnight then nor now.
fn day_from(instant: u64) -> String {
    let hour = Client::utc().0 / HOUR % 24;
    if (2..22).contains(&hour) {
        format!("daily reset {} UTC", time_of_day(instant))
    } else {
        format!("daily reset {} Asia/Tokyo", time_of_day(instant + 9 * HOUR))
    }
}

/// A client of the session, whose trading day ends in an hour, or began an hour ago.
async fn client_of_day(harness: &FixHarness, gateway: &Gateway, is_first: bool) -> Client {
    let now = Client::utc().0;
    let schedule = day_from(if is_first { now + HOUR } else { now - HOUR });
    harness
        .change_settings(|settings| {
            settings.cl_ord_id_per_day = true;
            settings.schedule = Some(schedule);
            settings.repeated_order_age_secs = None;
        })
        .await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(gateway.addr, &format!("141=Y|{LOGON}")).await;
    client
}

/// The same body with the TransactTime of two hours ago.
fn of_yesterday(body: &str) -> String {
    let then = UtcNanos(Client::utc().0 - 2 * HOUR).to_millis_text();
    let fields = body.split('|').map(|field| match field.strip_prefix("60=") {
        Some(_) => format!("60={then}"),
        None => field.to_owned(),
    });
    fields.collect::<Vec<_>>().join("|")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cl_ord_id_of_an_earlier_trading_day_is_a_new_order_and_requests_mean_the_newest() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut client = client_of_day(&harness, &gateway, true).await;
    let first = place(&mut client, "a", "00000008", LIMIT).await;
    let used = client.ask("D", &order("a", "00000008", LIMIT), "8").await;
    assert_eq!((used.text(39), used.text(103)), (Some("8"), Some("6")), "{used:?}");
    client.ask("F", &cancel("c", "none"), "9").await;
    client.log_out().await;

    let mut client = client_of_day(&harness, &gateway, false).await;
    let body = order("a", "00000008", LIMIT);
    let second = client.ask("D", &body, "8").await;
    assert_eq!(second.text(39), Some("0"), "{second:?}");
    assert_ne!(second.text(37), first.text(37));
    let again = client.ask("D", &format!("97=Y|{body}"), "8").await;
    assert_eq!((again.text(37), again.text(17)), (second.text(37), second.text(17)));
    let used = client.ask("D", &order("a", "00000008", LIMIT), "8").await;
    assert_eq!((used.text(39), used.text(103)), (Some("8"), Some("6")), "{used:?}");

    let status = client.ask("H", "11=a|54=2|55=USDC/USD", "8").await;
    assert_eq!(status.text(37), second.text(37));
    let older = format!("11=a|37={}|54=2|55=USDC/USD", first.text(37).unwrap());
    assert_eq!(client.ask("H", &older, "8").await.text(37), first.text(37));
    client.send("AF", "584=all|585=7").await;
    let mut open = [client.expect("8").await, client.expect("8").await].map(|report| {
        assert_eq!(report.text(11), Some("a"));
        report.text(37).unwrap().to_owned()
    });
    let mut placed = [&first, &second].map(|report| report.text(37).unwrap().to_owned());
    open.sort();
    placed.sort();
    assert_eq!(open, placed);

    // The request's ClOrdID is used again, too.
    let canceled = client.ask("F", &cancel("c", "a"), "8").await;
    assert_eq!((canceled.text(39), canceled.text(37)), (Some("4"), second.text(37)), "{canceled:?}");
    let older = format!("37={}|{}", first.text(37).unwrap(), cancel("d", "a"));
    let canceled = client.ask("F", &older, "8").await;
    assert_eq!((canceled.text(39), canceled.text(37)), (Some("4"), first.text(37)), "{canceled:?}");
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 2);
    let references =
        "select count(distinct client_reference) from intent where client_reference like 'a/20______'";
    assert_eq!(harness.count(references).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_an_earlier_trading_day_does_nothing_when_it_comes_again() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut client = client_of_day(&harness, &gateway, true).await;
    let body = order("a", "00000008", LIMIT);
    let first = client.ask("D", &body, "8").await;
    assert_eq!(first.text(39), Some("0"), "{first:?}");
    client.ask("F", &cancel("used", "none"), "9").await;
    let none = format!("11=mass|530=1|55=USDC/EUR|60={}", Client::utc().to_millis_text());
    client.ask("q", &none, "r").await;
    client.log_out().await;

    let mut client = client_of_day(&harness, &gateway, false).await;
    // By its TransactTime, and by its OrigSendingTime.
    let again = client.ask("D", &format!("97=Y|{}", of_yesterday(&body)), "8").await;
    assert_eq!((again.text(37), again.text(17)), (first.text(37), first.text(17)), "{again:?}");
    let orig = UtcNanos(Client::utc().0 - 2 * HOUR);
    client.send_as(client.next_out, Some(orig), "D", &body).await;
    client.next_out += 1;
    assert_eq!(client.expect("8").await.text(17), first.text(17));
    let other = order("a", "00000008", LIMIT);
    let unseen = order("unseen", "00000008", LIMIT);
    let (duplicate, unclear) =
        ("duplicate ClOrdID", "duplicate ClOrdID: an earlier trading day has an order with this content");
    for (body, reason, text) in [
        (format!("97=Y|{body}"), "6", unclear),
        (format!("97=Y|{}", of_yesterday(&other)), "6", duplicate),
        (of_yesterday(&other), "6", duplicate),
        (of_yesterday(&body), "6", duplicate),
        (format!("97=Y|{}", of_yesterday(&unseen)), "4", "first sent on an earlier trading day"),
    ] {
        let refused = client.ask("D", &body, "8").await;
        let said = [39, 103, 58].map(|tag| refused.text(tag).unwrap_or_default());
        assert_eq!(said, ["8", reason, text], "{refused:?}");
    }
    // Neither ClOrdID was used by what was refused.
    let mut placed = Vec::new();
    for body in [&other, &unseen] {
        let new = client.ask("D", body, "8").await;
        assert_eq!(new.text(39), Some("0"), "{new:?}");
        placed.push(new);
    }
    // Requests of yesterday are not about the orders of today.
    let by_time = of_yesterday(&cancel("c", "a"));
    for request in [by_time.as_str(), &cancel("used", "a")] {
        let old = client.ask("F", &format!("97=Y|{request}"), "9").await;
        assert_eq!(
            (old.text(102), old.text(58)),
            (Some("99"), Some("may be of an earlier trading day than the order")),
            "{old:?}"
        );
    }
    let all = |id: &str| format!("97=Y|11={id}|530=7|60={}", Client::utc().to_millis_text());
    for request in [of_yesterday(&all("new")), of_yesterday(&all("mass")), all("mass")] {
        let old = client.ask("q", &request, "r").await;
        assert_eq!((old.text(531), old.text(58)), (Some("0"), Some("may be of an earlier trading day")));
    }
    for order in &placed {
        let status = format!("11={}|54=2|55=USDC/USD", order.text(11).unwrap());
        assert_eq!(client.ask("H", &status, "8").await.text(39), Some("0"));
    }
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_used_for_ever_is_used_on_its_own_day_once_the_day_counts() {
    let harness = FixHarness::new().await;
    let (gateway, mut client) = harness.logged_on().await;
    let (today, yesterday) = (order("a", "00000008", LIMIT), order("b", "00000008", LIMIT));
    for body in [&today, &yesterday] {
        client.ask("D", body, "8").await;
    }
    client.log_out().await;
    harness
        .execute("update fix_order set created_at = created_at - interval '1 day' where cl_ord_id = 'b'")
        .await;
    let mut client = client_of_day(&harness, &gateway, false).await;
    for body in [&today, &order("a", "00000008", LIMIT)] {
        let used = client.ask("D", body, "8").await;
        assert_eq!((used.text(39), used.text(103)), (Some("8"), Some("6")), "{used:?}");
    }
    let new = client.ask("D", &order("b", "00000008", LIMIT), "8").await;
    assert_eq!(new.text(39), Some("0"), "{new:?}");
    gateway.stop().await;
}
