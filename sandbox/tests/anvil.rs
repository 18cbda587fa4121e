//! The private chain against the real program: its kept state, and that it ends.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use alloy::primitives::address;
use alloy::providers::{Provider, ProviderBuilder};
use dvp_sandbox::anvil::{Anvil, AnvilOptions, CHAIN_ID};
use dvp_sandbox::embedded::EmbeddedError;
use dvp_sandbox::embedded::tools::Finder;
use serde_json::{Value, json};

mod support;

use support::{processes_with, wait_for};

const HELPER_DIR: &str = "DVP_TEST_ANVIL_DIR";
/// Emits one log with the topic 7 while it is being created, and has no code.
const EMITS_A_LOG: &str = "0x600760006000a100";

fn in_dir(dir: &Path) -> AnvilOptions {
    AnvilOptions { dir: Some(dir.to_owned()), ..AnvilOptions::default() }
}

async fn call(anvil: &Anvil, method: &'static str, params: Value) -> Value {
    let provider = ProviderBuilder::new().connect_http(anvil.rpc_url().parse().unwrap());
    provider.raw_request(method.into(), params).await.unwrap()
}

async fn head(anvil: &Anvil) -> u64 {
    ProviderBuilder::new().connect_http(anvil.rpc_url().parse().unwrap()).get_block_number().await.unwrap()
}

/// Sends a transaction and waits until it is in a block.
async fn emit(anvil: &Anvil) -> Value {
    let transaction = json!([{"from": anvil.accounts()[0].address, "data": EMITS_A_LOG}]);
    let hash = call(anvil, "eth_sendTransaction", transaction).await;
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let receipt = call(anvil, "eth_getTransactionReceipt", json!([hash])).await;
        if !receipt.is_null() {
            return receipt;
        }
        assert!(Instant::now() < until, "no block for the transaction");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Everything that another run of the chain has to give again.
async fn picture(anvil: &Anvil) -> Vec<Value> {
    let account = anvil.accounts()[0].address;
    let head = head(anvil).await;
    let mut seen = vec![
        call(anvil, "eth_getBalance", json!([account, "latest"])).await,
        call(anvil, "eth_getTransactionCount", json!([account, "latest"])).await,
        call(anvil, "eth_getLogs", json!([{"fromBlock": "0x0"}])).await,
        call(anvil, "eth_getBlockByNumber", json!(["finalized", false])).await,
    ];
    for number in 0..=head {
        let number = format!("{number:#x}");
        seen.push(call(anvil, "eth_getBlockByNumber", json!([number, true])).await);
        seen.push(call(anvil, "eth_getBlockReceipts", json!([number])).await);
    }
    seen
}

/// The process that the tests below kill; does nothing as a test.
#[tokio::test]
async fn owner_process_runs_until_it_is_killed() {
    let Some(dir) = std::env::var_os(HELPER_DIR).map(PathBuf::from) else { return };
    let anvil = Anvil::start(in_dir(&dir)).await.unwrap();
    emit(&anvil).await;
    emit(&anvil).await;
    let seen = serde_json::to_vec(&picture(&anvil).await).unwrap();
    fs::write(dir.join("seen.partial"), seen).unwrap();
    fs::rename(dir.join("seen.partial"), dir.join("seen")).unwrap();
    std::future::pending::<()>().await;
}

/// Starts this test binary again as the owner of a chain; returns it with the picture of its chain.
fn start_owner(dir: &Path) -> (Child, Vec<Value>) {
    let owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner_process_runs_until_it_is_killed"])
        .env(HELPER_DIR, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let seen = wait_for("the owner to be ready", || fs::read(dir.join("seen")).ok());
    (owner, serde_json::from_slice(&seen).unwrap())
}

#[tokio::test]
async fn temporary_chain_has_the_expected_id_and_accounts_and_leaves_no_files() {
    let anvil = Anvil::start(AnvilOptions { accounts: 3, ..AnvilOptions::default() }).await.unwrap();
    assert_eq!(call(&anvil, "eth_chainId", json!([])).await, json!(format!("{CHAIN_ID:#x}")));
    assert_eq!(anvil.accounts().len(), 3);
    let first = anvil.accounts()[0];
    assert_eq!(first.address, address!("f39Fd6e51aad88F6F4ce6aB8827279cffFb92266"));
    assert!(first.private_key.to_string().starts_with("0xac0974bec39a17e36ba4a6b4d238ff94"));
    assert_eq!(anvil.ws_url().replace("ws:", "http:"), anvil.rpc_url());
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", anvil.pid())).unwrap();
    let cache = arguments.split('\0').find(|argument| argument.ends_with("/cache")).unwrap();
    let root = Path::new(cache).parent().unwrap();
    assert!(root.is_dir());
    anvil.stop().await.unwrap();
    assert!(!root.exists());
    assert_eq!(processes_with(&root.to_string_lossy()), Vec::<String>::new());
}

#[tokio::test]
async fn restart_keeps_the_chain_its_recent_state_and_the_port() {
    let dir = tempfile::tempdir().unwrap();
    let first = Anvil::start(in_dir(dir.path())).await.unwrap();
    let log = dir.path().join("anvil/anvil.log");
    let logged = log.metadata().unwrap().len();
    for _ in 0..12 {
        emit(&first).await;
    }
    let (url, before) = (first.rpc_url(), picture(&first).await);
    let second = Anvil::start(in_dir(dir.path())).await;
    assert!(matches!(second, Err(EmbeddedError::InUse { .. })), "{second:?}");
    first.stop().await.unwrap();
    assert!(log.metadata().unwrap().len() < logged + 500, "requests are not logged");

    let second = Anvil::start(in_dir(dir.path())).await.unwrap();
    assert_eq!(second.rpc_url(), url);
    assert_eq!(picture(&second).await, before);
    // The state above the finalized block.
    let finalized = call(&second, "eth_getBlockByNumber", json!(["finalized", false])).await;
    assert_eq!(finalized["number"], "0x4");
    let at = json!([second.accounts()[0].address, {"blockHash": finalized["hash"]}]);
    assert_eq!(call(&second, "eth_getTransactionCount", at).await, "0x4");
    let receipt = emit(&second).await;
    assert_eq!(receipt["blockNumber"], "0xd");
}

#[tokio::test]
async fn time_is_monotonic() {
    let dir = tempfile::tempdir().unwrap();
    let first = Anvil::start(in_dir(dir.path())).await.unwrap();
    call(&first, "evm_increaseTime", json!([3600])).await;
    emit(&first).await;
    let time_of = |block: Value| {
        u64::from_str_radix(block["timestamp"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    let before = time_of(call(&first, "eth_getBlockByNumber", json!(["latest", false])).await);
    first.stop().await.unwrap();
    let second = Anvil::start(in_dir(dir.path())).await.unwrap();
    emit(&second).await;
    let after = time_of(call(&second, "eth_getBlockByNumber", json!(["latest", false])).await);
    assert!(after >= before, "{after} < {before}");
}

#[tokio::test]
async fn a_killed_owner_leaves_no_process_and_the_chain_survives() {
    // A start right after the kill waits for the watcher.
    for is_at_once in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (mut owner, before) = start_owner(dir.path());
        owner.kill().unwrap();
        owner.wait().unwrap();
        if !is_at_once {
            let text = dir.path().to_string_lossy().into_owned();
            wait_for("all processes to end", || processes_with(&text).is_empty().then_some(()));
        }
        let again = Anvil::start(in_dir(dir.path())).await.unwrap();
        assert_eq!(picture(&again).await, before);
    }
}

/// anvil's own clock goes on while the state is written, and a block made then is incomplete in the file.
#[tokio::test]
async fn saved_state_under_load_is_consistent_with_its_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let with_clock = || AnvilOptions { block_time: Some(Duration::from_millis(20)), ..in_dir(dir.path()) };
    for _ in 0..8 {
        let anvil = Anvil::start(with_clock()).await.unwrap();
        let account = anvil.accounts()[0].address;
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            let transaction = json!([{"from": account, "data": EMITS_A_LOG}]);
            call(&anvil, "eth_sendTransaction", transaction).await;
        }
        anvil.stop().await.unwrap();
        let again = Anvil::start(with_clock()).await.unwrap();
        let nonce = call(&again, "eth_getTransactionCount", json!([account, "latest"])).await;
        let logs = call(&again, "eth_getLogs", json!([{"fromBlock": "0x0"}])).await;
        let logs = format!("{:#x}", logs.as_array().unwrap().len());
        assert_eq!(nonce, json!(logs));
        again.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_chain_is_noticed_and_loses_only_unwritten_state() {
    let dir = tempfile::tempdir().unwrap();
    let mut anvil = Anvil::start(in_dir(dir.path())).await.unwrap();
    let first = emit(&anvil).await;
    let good = dir.path().join("anvil/state.good.json");
    let hash = first["blockHash"].as_str().unwrap().to_owned();
    wait_for("the copy to have the block", || fs::read_to_string(&good).ok()?.contains(&hash).then_some(()));
    assert!(!anvil.has_exited());
    Command::new("kill").args(["-KILL", &anvil.pid().to_string()]).status().unwrap();
    wait_for("the kill to be noticed", || anvil.has_exited().then_some(()));
    drop(anvil);

    // The kill came in the middle of a write.
    let state = dir.path().join("anvil/state.json");
    let content = fs::read(&state).unwrap();
    for torn in [&content[..content.len() / 2], &content[..content.len() - 1], &[]] {
        fs::write(&state, torn).unwrap();
        let again = Anvil::start(in_dir(dir.path())).await.unwrap();
        let receipt = call(&again, "eth_getTransactionReceipt", json!([first["transactionHash"]])).await;
        assert_eq!(receipt, first);
        again.stop().await.unwrap();
    }
}

#[tokio::test]
async fn torn_state_without_a_copy_begins_a_new_chain() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("anvil")).unwrap();
    fs::write(dir.path().join("anvil/state.json"), "{\"block\":").unwrap();
    let anvil = Anvil::start(in_dir(dir.path())).await.unwrap();
    assert_eq!(head(&anvil).await, 0);
    assert!(dir.path().join("anvil/state.torn.json").exists());
}

#[tokio::test]
async fn remembered_port_that_is_taken_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let first = Anvil::start(in_dir(dir.path())).await.unwrap();
    let port = first.rpc_url().rsplit_once(':').unwrap().1.to_owned();
    first.stop().await.unwrap();
    let _taken = std::net::TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
    let second = Anvil::start(in_dir(dir.path())).await.unwrap();
    assert!(!second.rpc_url().ends_with(&port));
}

#[tokio::test]
async fn blocks_follow_the_clock_when_an_interval_is_set() {
    let time = Some(Duration::from_millis(100));
    let anvil = Anvil::start(AnvilOptions { block_time: time, ..AnvilOptions::default() }).await.unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while head(&anvil).await < 3 {
        assert!(Instant::now() < until, "no blocks");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn fetched_program_runs_a_chain() {
    let cache = tempfile::tempdir().unwrap();
    let finder = Finder::fetch_only(cache.path());
    let anvil = Anvil::start(AnvilOptions { finder, ..AnvilOptions::default() }).await.unwrap();
    let version = call(&anvil, "web3_clientVersion", json!([])).await;
    assert_eq!(version, "anvil/v1.7.1");
}
