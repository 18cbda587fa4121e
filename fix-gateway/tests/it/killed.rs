//! A process that is killed, and what the next one says.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use dvp_core::embedded::TestDatabase;

use super::client::Client;

/// The echo acceptor as a process of its own, over the database.
struct Acceptor {
    child: Child,
    addr: SocketAddr,
}

impl Acceptor {
    fn start(database: &TestDatabase) -> Self {
        let dir = tempfile::TempDir::new().unwrap();
        let config = dir.path().join("echo.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\ncomp_id = \"DVP\"\nstore = \"postgres:{}\"\n\
             [[session]]\nbegin_string = \"FIX.4.4\"\ntarget_comp_id = \"ACME\"\n",
            database.url()
        );
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new(&*PROGRAM)
            .args(["--config".as_ref(), config.as_os_str()])
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

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(program);

/// The example beside this test. Built first: whoever asks for this test alone has an old one, or none.
fn program() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let program = deps.parent().unwrap().parent().unwrap().join("examples/echo_acceptor");
    let build = ["build", "--quiet", "--package", "dvp-fix-gateway", "--example", "echo_acceptor"];
    assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
    program
}

fn order(n: usize) -> String {
    let time = Client::utc().to_millis_text();
    format!("11=order {n}|21=1|38=100|40=1|54=1|55=USDC/USD|60={time}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_a_number_still_stands_for_the_same_bytes() {
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
        let heard: BTreeSet<u64> = client.heard.keys().copied().collect();
        acceptor = Acceptor::start(&database);
        let numbers: (i64, i64) = sqlx::query_as(
            "select next_in, next_out from fix_session where session_id = 'FIX.4.4:DVP->ACME'",
        )
        .fetch_one(database.pool())
        .await
        .unwrap();
        assert!(
            heard.iter().all(|seq| i64::try_from(*seq).unwrap() < numbers.1),
            "told before it was durable"
        );
        client.next_out = u64::try_from(numbers.0).unwrap();
        client.reconnect(acceptor.addr).await;
        client.log_on("").await;
        // The client compares what it hears under a number with what it heard under it before.
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
