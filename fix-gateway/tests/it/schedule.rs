//! Sessions that are not there at every hour, with a real database behind the numbers.

use dvp_fix::UtcNanos;

use super::{
    client::Client,
    harness::{FixHarness, LOGON, SESSION},
};

pub(crate) const HOUR: u64 = 3_600_000_000_000;

/// The time of day, `HH:MM`, at an instant.
pub(crate) fn time_of_day(at: u64) -> String {
    UtcNanos(at).to_millis_text()[9..14].to_owned()
}

async fn numbers_of_another_day(harness: &FixHarness) {
    let statement = "update fix_session set next_in = 5, next_out = 7, epoch = 20000 where session_id = $1";
    sqlx::query(statement).bind(SESSION).execute(harness.pool()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outside_its_schedule_a_session_refuses_logons() {
    let harness = FixHarness::new().await;
    let now = Client::utc().0;
    let schedule =
        format!("daily {} UTC to {} UTC", time_of_day(now + 6 * HOUR), time_of_day(now + 7 * HOUR));
    harness.change_settings(|settings| settings.schedule = Some(schedule)).await;
    numbers_of_another_day(&harness).await;
    let gateway = harness.gateway().await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    assert!(client.is_refused(LOGON).await);
    gateway.stop().await;
    assert_eq!(
        harness
            .count("select next_in + next_out + epoch from fix_session where client_comp_id = 'ACME'")
            .await,
        20_012
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_reset_once_per_window_across_a_restart() {
    let harness = FixHarness::new().await;
    let began = time_of_day(Client::utc().0 - HOUR);
    let schedule = format!("daily reset {began} UTC");
    harness.change_settings(|settings| settings.schedule = Some(schedule)).await;
    numbers_of_another_day(&harness).await;
    let gateway = harness.gateway().await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    assert_eq!(client.log_on(LOGON).await.seq().unwrap().0, 1);
    client.log_out().await;
    gateway.stop().await;
    // The window is the same one after the restart.
    let gateway = harness.gateway().await;
    client.reconnect(gateway.addr).await;
    assert_eq!(client.log_on(LOGON).await.seq().unwrap().0, 3);
    gateway.stop().await;
}
