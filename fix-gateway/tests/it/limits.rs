//! Limits on messages a second: refusals, and the end of the session.

use super::harness::{FixHarness, LIMIT, order};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_over_the_soft_limit_are_refused_and_the_session_continues() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.soft_messages_per_sec = Some(1)).await;
    let (gateway, mut client) = harness.logged_on().await;
    let orders: Vec<String> = (0..20).map(|n| order(&format!("o{n}"), "12345678", LIMIT)).collect();
    let first = client.next_out;
    for order in &orders {
        client.send("D", order).await;
    }
    // A peer's reject of a report is accepted without an answer.
    client.send("j", "45=1|372=8|380=0").await;
    client.send("1", "112=end").await;
    let (mut reports, mut refused, mut has_ended) = (0, Vec::new(), false);
    // Orders that wait for their wallets are reported after later orders.
    while !has_ended || reports + refused.len() < 20 {
        let message = client.next().await.unwrap();
        match message.text(35) {
            Some("8") => reports += 1,
            Some("j") => {
                assert_eq!((message.text(380), message.text(372)), (Some("0"), Some("D")), "{message:?}");
                assert_eq!(message.text(58), Some("message rate exceeded"));
                refused.push(message.text(45).unwrap().parse::<u64>().unwrap() - first);
            }
            Some("0") if message.text(112) == Some("end") => has_ended = true,
            other => panic!("{other:?}: {message:?}"),
        }
    }
    assert_eq!(reports + refused.len(), 20);
    assert!(refused.len() >= 10, "{refused:?}");
    assert_eq!(harness.count("select count(*) from execution").await, i64::try_from(reports).unwrap());
    // A refused order was not accepted: it may be sent again.
    let again = usize::try_from(refused[0]).unwrap();
    let wait = tokio::time::Duration::from_millis(1500);
    tokio::time::sleep(wait).await;
    client.send("D", &orders[again]).await;
    client.report(&format!("o{again}"), "0").await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_hard_limit_the_peer_is_logged_out_with_a_reason() {
    for (settings_of, msg_type) in [("hard", "D"), ("admin", "0")] {
        let harness = FixHarness::new().await;
        harness
            .change_settings(|settings| match settings_of {
                "hard" => settings.hard_messages_per_sec = Some(5),
                _ => settings.admin_messages_per_sec = Some(5),
            })
            .await;
        let gateway = harness.gateway().await;
        let mut client = gateway.client().await;
        for n in 0..40 {
            let body =
                if msg_type == "D" { order(&format!("o{n}"), "12345678", LIMIT) } else { String::new() };
            client.try_send(msg_type, &body).await;
        }
        let logout = loop {
            let message = client.next().await.unwrap();
            if message.text(35) == Some("5") {
                break message;
            }
        };
        assert_eq!(logout.text(58), Some("message rate exceeded"), "{msg_type}");
        let taken = harness.count("select next_in from fix_session where client_comp_id = 'ACME'").await;
        assert!(taken < 20, "{msg_type}: {taken}");
        client.try_send("5", "").await;
        while client.next().await.is_some() {}
        gateway.stop().await;
    }
}
