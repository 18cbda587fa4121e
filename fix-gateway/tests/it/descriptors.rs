//! A process that runs out of file descriptors.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use dvp_testing::example::example;
use tokio::net::TcpStream;

use super::client::Client;

/// Ends with the test.
struct Acceptor(Child);

impl Drop for Acceptor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepting_resumes_once_file_descriptors_are_free() {
    let dir = tempfile::TempDir::new().unwrap();
    let config = dir.path().join("echo.toml");
    let text = "listen = \"127.0.0.1:0\"\ncomp_id = \"DVP\"\n\
                [[session]]\nbegin_string = \"FIX.4.4\"\ntarget_comp_id = \"ACME\"\n";
    std::fs::write(&config, text).unwrap();
    let acceptor = Command::new("sh")
        .args(["-c", "ulimit -n 24 && exec \"$0\" --config \"$1\""])
        .args([example("echo_acceptor").as_os_str(), config.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acceptor = Acceptor(acceptor);
    let mut line = String::new();
    BufReader::new(acceptor.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("listening ").expect("an address").parse().unwrap();
    let mut early = Client::connect(addr, "FIX.4.4", "ACME").await;
    early.log_on("").await;
    // More than it can accept; the kernel takes the rest.
    let mut unauthenticated = Vec::new();
    for _ in 0..60 {
        unauthenticated.push(TcpStream::connect(addr).await.unwrap());
    }
    early.send("1", "112=while it cannot accept").await;
    assert_eq!(early.expect("0").await.text(112), Some("while it cannot accept"));
    early.log_out().await;
    drop(unauthenticated);
    let mut late = Client::connect(addr, "FIX.4.4", "ACME").await;
    late.log_on("141=Y").await;
}
