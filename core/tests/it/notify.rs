//! Notifications end a wait, also after the connection that listens was lost.

use dvp_sandbox::embedded::TestDatabase;
use dvp_store::database::session;
use dvp_store::notify::Notifications;

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_names_its_channel_also_after_the_connection_was_lost() {
    let database = TestDatabase::create().await;
    let mut notifications = Notifications::new(database.pool().clone(), &["dvp_one", "dvp_two"]);
    notifications.listen().await;
    let mut conn = database.pool().acquire().await.unwrap();
    session::notify(&mut conn, "dvp_two", "what").await.unwrap();
    let heard = notifications.next().await.unwrap();
    assert_eq!((heard.channel(), heard.payload()), ("dvp_two", "what"));
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and query ilike 'listen%'";
    sqlx::query(cut).execute(&mut *conn).await.unwrap();
    let told = async {
        loop {
            session::notify(&mut conn, "dvp_one", "").await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let heard = async {
        loop {
            notifications.listen().await;
            if let Some(heard) = notifications.next().await {
                return heard.channel().to_owned();
            }
        }
    };
    tokio::select! {
        channel = heard => assert_eq!(channel, "dvp_one"),
        () = told => {}
    }
}
