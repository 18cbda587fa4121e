//! Events of another cell's orders, which came after the session had moved here.

use super::{
    client::Client,
    harness::{FixHarness, order},
};

const WAITING: &str = "select count(*) from fix_late_report";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_of_another_cells_order_that_came_back_is_reported_once() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.log_on("553=acme|554=secret").await;
    client.send("D", &order("a", "12345678", "40=2|44=0.99")).await;
    harness.settle_everything();
    let fill = client.report("a", "2").await;
    // As the run of a move brings them.
    let brought = [
        "insert into moved_event (reference, type, sequence, object) \
         select reference, 'payout.reversed', sequence + 1, object from event order by sequence desc limit 1",
        "insert into fix_late_report (session_id, cl_ord_id, reference, sequence, occurred_at) \
         select session_id, cl_ord_id, reference, sequence, now() from fix_order join moved_event using (reference)",
    ];
    for statement in brought {
        sqlx::query(statement).execute(harness.pool()).await.unwrap();
    }
    let reversed = client.report("a", "4").await;
    assert_eq!((reversed.text(150), reversed.text(37)), (Some("H"), fill.text(37)));
    harness.wait_for_count(WAITING, 0).await;
    client.send("H", "11=a|54=2|55=USDC/USD").await;
    let next = client.expect("8").await;
    assert_eq!((next.text(150), next.text(39)), (Some("I"), Some("4")), "no second report: {next:?}");

    // A session without a peer reports, too, and a process that begins.
    drop(client);
    gateway.stop().await;
    for statement in ["update moved_event set sequence = sequence + 1", brought[1]] {
        sqlx::query(statement).execute(harness.pool()).await.unwrap();
    }
    let gateway = harness.gateway().await;
    harness.wait_for_count(WAITING, 0).await;
    let reported = "select count(*) from fix_outbound where session_id = 'FIX.4.4:DVP->ACME' \
                    and convert_from(body, 'UTF8') like '%150=H%'";
    assert_eq!(harness.count(reported).await, 2);
    gateway.stop().await;
}
