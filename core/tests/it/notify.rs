//! Notifications end a wait, also after the listening connection was lost.

use dvp_sandbox::embedded::TestDatabase;
use dvp_store::database::notify::Notifications;
use dvp_store::database::session;

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_names_its_channel_even_after_a_reconnect() {
    let database = TestDatabase::create().await;
    let mut notifications = Notifications::new(database.pool().clone(), &["dvp_one", "dvp_two"]);
    notifications.listen().await;
    let mut conn = database.pool().acquire().await.unwrap();
    session::notify(&mut conn, "dvp_two", "what").await.unwrap();
    let received = notifications.next().await.unwrap();
    assert_eq!((received.channel(), received.payload()), ("dvp_two", "what"));
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and query ilike 'listen%'";
    sqlx::query(cut).execute(&mut *conn).await.unwrap();
    let reported = async {
        loop {
            session::notify(&mut conn, "dvp_one", "").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let received = async {
        loop {
            notifications.listen().await;
            if let Some(received) = notifications.next().await {
                return received.channel().to_owned();
            }
        }
    };
    tokio::select! {
        channel = received => assert_eq!(channel, "dvp_one"),
        () = reported => {}
    }
}
