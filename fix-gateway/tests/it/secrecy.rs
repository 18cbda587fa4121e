//! No secret of a Logon is in any log line, for every outcome of the Logon.

use std::{
    io::{self, Write},
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering},
    },
};

use tracing_subscriber::fmt::{MakeWriter, TestWriter};

use super::{client::Client, harness::FixHarness};

/// Part of every secret of these tests, and of nothing else.
const SECRET: &str = "hush7d1f";

static LEAKS: AtomicUsize = AtomicUsize::new(0);
static LINES: AtomicUsize = AtomicUsize::new(0);

/// Log lines of all tests, looked through for the secret.
#[derive(Clone, Copy)]
struct Watched;

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.fetch_add(1, Ordering::Relaxed);
        if bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
            LEAKS.fetch_add(1, Ordering::Relaxed);
        }
        TestWriter::default().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Watched {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

/// Log lines of this process from now on.
pub(crate) fn watch_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_env_filter("dvp_fix_gateway=trace,dvp_fix=trace,dvp_core=debug,sqlx=debug,rustls=debug")
            .with_ansi(false)
            .with_writer(Watched)
            .init();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_logged_however_a_logon_fails() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let secrets = format!(
        "553=acme|554={SECRET}|925={SECRET}|95=8|96={SECRET}|1401=8|1402={SECRET}|1403=8|1404={SECRET}"
    );
    let logons = [
        format!("98=0|108=30|{secrets}"),
        format!("98=0|108=-1|{secrets}"),
        format!("98=0|108=30|141=Y|{secrets}"),
        format!("98=0|108=30|553=acme|554=secret|925={SECRET}|1402={SECRET}"),
        format!("98=0|108=30|553=acme|554=secret|789=x|925={SECRET}"),
    ];
    for (begin_string, comp_id) in [("FIX.4.4", "ACME"), ("FIX.4.2", "ACME42"), ("FIX.4.4", "NOBODY")] {
        for logon in &logons {
            let mut client = Client::connect(gateway.addr, begin_string, comp_id).await;
            client.try_send("A", logon).await;
            while client.next().await.is_some_and(|answer| answer.text(35) != Some("A")) {}
            // Inside a session, if that is where we are.
            client.try_send("A", logon).await;
            while client.next().await.is_some() {}
        }
    }
    // Garbled, cut short, endless.
    let whole = format!(
        "8=FIX.4.4\u{1}9=70\u{1}35=A\u{1}34=1\u{1}49=ACME\u{1}56=DVP\u{1}554={SECRET}\u{1}10=000\u{1}"
    );
    for bytes in [whole.clone(), whole[..60].to_owned(), whole.replace("10=", "58=").repeat(200)] {
        let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        client.send_raw(bytes.as_bytes()).await;
        drop(client);
    }
    gateway.stop().await;
    assert!(LINES.load(Ordering::Relaxed) > 10, "nothing was logged at all");
    assert_eq!(LEAKS.load(Ordering::Relaxed), 0);
}
