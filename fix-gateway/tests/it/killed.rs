//! A process that is killed, and the messages of the next one.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use dvp_sandbox::embedded::TestDatabase;
use dvp_testing::example::example;
use tokio::net::TcpStream;

use super::client::Client;

/// The echo acceptor as a process of its own, over the database.
struct Acceptor {
    child: Child,
    addr: SocketAddr,
}

impl Acceptor {
    fn start(database: &TestDatabase) -> Self {
        Self::start_with(&format!("postgres:{}", database.url()), 1024)
    }

    /// With a store, and a limit of file descriptors.
    fn start_with(store: &str, descriptors: u32) -> Self {
        let dir = tempfile::TempDir::new().unwrap();
        let config = dir.path().join("echo.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\ncomp_id = \"DVP\"\nstore = \"{store}\"\n\
             [[session]]\nbegin_string = \"FIX.4.4\"\ntarget_comp_id = \"ACME\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let limited = format!("ulimit -n {descriptors} && exec \"$0\" --config \"$1\"");
        let mut child = Command::new("sh")
            .args(["-c", &limited])
            .args([PROGRAM.as_os_str(), config.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addr = line.trim().strip_prefix("listening ").expect("an address").parse().unwrap();
        Self { child, addr }
    }
}

impl Drop for Acceptor {
    /// SIGKILL.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| example("echo_acceptor"));

fn order(n: usize) -> String {
    let time = Client::utc().to_millis_text();
    format!("11=order {n}|21=1|38=100|40=1|54=1|55=USDC/USD|60={time}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_each_number_still_has_the_same_message() {
    let database = TestDatabase::create().await;
    let mut acceptor = Acceptor::start(&database);
    let mut client = Client::connect(acceptor.addr, "FIX.4.4", "ACME").await;
    client.log_on("").await;
    for round in 0..3_usize {
        for n in 0..200 {
            client.send("D", &order(round * 200 + n)).await;
        }
        // Killed in the middle of the burst.
        for _ in 0..=round * 30 {
            client.expect("D").await;
        }
        drop(acceptor);
        while client.next().await.is_some() {}
        let received: BTreeSet<u64> = client.received.keys().copied().collect();
        acceptor = Acceptor::start(&database);
        let numbers: (i64, i64) = sqlx::query_as(
            "select next_in, next_out from fix_session where session_id = 'FIX.4.4:DVP->ACME'",
        )
        .fetch_one(database.pool())
        .await
        .unwrap();
        assert!(
            received.iter().all(|seq| i64::try_from(*seq).unwrap() < numbers.1),
            "sent before it was durable"
        );
        client.next_out = u64::try_from(numbers.0).unwrap();
        client.reconnect(acceptor.addr).await;
        client.log_on("").await;
        // The client compares each message with the one that it received under the same number before.
        client.send("2", "7=1|16=0").await;
        client.send("1", "112=all").await;
        let mut again = BTreeSet::new();
        loop {
            let message = client.next().await.unwrap();
            match message.text(35) {
                Some("D") => {
                    assert!(message.is_yes(43), "{message:?}");
                    again.insert(message.seq().unwrap().0);
                }
                Some("0") if message.text(112) == Some("all") => break,
                _ => {}
            }
        }
        let stored: Vec<(i64,)> = sqlx::query_as("select seq from fix_outbound order by seq")
            .fetch_all(database.pool())
            .await
            .unwrap();
        let stored: BTreeSet<u64> = stored.into_iter().map(|(seq,)| u64::try_from(seq).unwrap()).collect();
        assert_eq!(again, stored);
        assert!(again.len() > round * 30);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepting_resumes_once_file_descriptors_are_free() {
    let acceptor = Acceptor::start_with("memory", 24);
    let mut early = Client::connect(acceptor.addr, "FIX.4.4", "ACME").await;
    early.log_on("").await;
    // More than it can accept; the kernel takes the rest.
    let mut unauthenticated = Vec::new();
    for _ in 0..60 {
        unauthenticated.push(TcpStream::connect(acceptor.addr).await.unwrap());
    }
    early.send("1", "112=while it cannot accept").await;
    assert_eq!(early.expect("0").await.text(112), Some("while it cannot accept"));
    early.log_out().await;
    drop(unauthenticated);
    let mut late = Client::connect(acceptor.addr, "FIX.4.4", "ACME").await;
    late.log_on("141=Y").await;
}
