//! A chain of our own for the sandbox and the tests: anvil, supervised, with a state that survives.
//!
//! With a directory the chain goes on where it was: hashes, receipts, logs, balances and nonces are those of before,
//! and time goes on by the clock, never backwards. The behaviour of anvil 1.7.1, found by experiment:
//!
//! - On SIGINT it writes its state and ends; that is how the watcher stops it when we are killed. On SIGKILL it loses
//!   what it has done since the last periodic write.
//! - It writes the file in place, so a kill in mid-write leaves half of one, with which it refuses to start. Hence
//!   `keep_good_copy`, and `choose_state` before each start.
//! - State at past blocks (`eth_call` at a block's hash) is lost at a restart unless anvil keeps it, which costs a
//!   whole copy per block: everything above `finalized` and a little more is kept.
//! - A chain whose time was ahead of the clock falls back to the clock when it is loaded (`go_on_from_latest`).
//! - A state written while its own clock made a block is torn in itself: `miner` is the clock instead. What is written
//!   now and then beside the blocks can still be so, and counts only after a SIGKILL of anvil itself.
//! - Transactions that wait for a block are not part of the state. Their senders send them again.
//!
//! The files, in `DIR/anvil`: `state.json` (anvil's), `state.good.json` (the last one that was complete),
//! `state.torn.json` (one that was not, for a person to look at), `anvil.log`, `pid`, `port`.

use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::embedded::child::{Launch, Supervised};
use crate::embedded::files::write_durably;
use crate::embedded::tools::Finder;
use crate::embedded::{EmbeddedError, orphan, random_hex};
use alloy::eips::BlockNumberOrTag;
use alloy::primitives::{Address, B256};
use alloy::providers::{Provider, ProviderBuilder};
use alloy::transports::TransportResult;
use dvp_store::durable::Readers;
use serde::Deserialize;
use serde::de::IgnoredAny;

use self::miner::Miner;

mod miner;

/// The chain id that wallets and tools know a development chain by.
pub const CHAIN_ID: u64 = 31337;

const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Writing a big state takes a while.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// How to run a chain. The default is a throw-away chain with a block per transaction.
#[derive(Clone, Debug)]
pub struct AnvilOptions {
    /// The state lives in `dir/anvil`; `None` is a chain that is gone when it stops.
    pub dir: Option<PathBuf>,
    pub chain_id: u64,
    /// Time between blocks; `None` makes one for each transaction.
    pub block_time: Option<Duration>,
    /// The distance of `safe` from the head in blocks; that of `finalized` is twice as large.
    pub slots_in_an_epoch: u64,
    /// How many of the well-known development accounts have funds.
    pub accounts: u32,
    pub args: Vec<String>,
    pub finder: Finder,
    /// Another node's program, which takes anvil's arguments and answers its methods.
    pub stand_in: Option<PathBuf>,
}

impl Default for AnvilOptions {
    fn default() -> Self {
        Self {
            dir: None,
            chain_id: CHAIN_ID,
            block_time: None,
            slots_in_an_epoch: 4,
            accounts: 10,
            args: Vec::new(),
            finder: Finder::machine(),
            stand_in: None,
        }
    }
}

/// A funded account of the well-known mnemonic `test test … junk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevAccount {
    pub address: Address,
    /// Everybody has it.
    pub private_key: B256,
}

/// A running chain. Dropping it stops it, with its state written.
#[derive(Debug)]
pub struct Anvil {
    // In the order they are dropped: no block is made while the state is written for the last time, no copy of the file
    // either, and the directory is ours until the program has ended.
    miner: Option<Miner>,
    _copier: Option<StateCopier>,
    server: Supervised,
    port: u16,
    accounts: Vec<DevAccount>,
    _lock: File,
}

impl Anvil {
    /// Starts a chain, on the port it had before when that is free.
    ///
    /// # Errors
    /// [`EmbeddedError::InUse`] when another process runs the directory's chain, [`EmbeddedError::Missing`] when there
    /// is no anvil to run, and what its files or its log say.
    pub async fn start(options: AnvilOptions) -> Result<Self, EmbeddedError> {
        let (block_time, chain_id) = (options.block_time, options.chain_id);
        let anvil = tokio::task::spawn_blocking(move || Self::start_blocking(&options)).await??;
        anvil.wait_until_ready(block_time, chain_id).await
    }

    pub fn rpc_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn ws_url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.port)
    }

    pub fn accounts(&self) -> &[DevAccount] {
        &self.accounts
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Whether anvil has ended without being stopped.
    pub fn has_exited(&mut self) -> bool {
        self.server.exit_status().is_some()
    }

    /// Stops anvil and waits until its state is written and it is gone.
    pub async fn stop(self) -> Result<(), EmbeddedError> {
        let Self { miner, _copier: copier, server, _lock: lock, .. } = self;
        if let Some(miner) = miner {
            miner.stop().await;
        }
        tokio::task::spawn_blocking(move || drop(copier)).await?;
        let stopped = server.stop().await;
        drop(lock);
        stopped
    }

    fn start_blocking(options: &AnvilOptions) -> Result<Self, EmbeddedError> {
        let program = options.stand_in.clone().map_or_else(|| options.finder.anvil(), Ok)?;
        let home = Home::open(options.dir.as_deref())?;
        let mut remembered = home.port();
        loop {
            let mut server = home.launch(&program, options, remembered).spawn()?;
            home.write("pid", server.pid().to_string().as_bytes())?;
            match wait_for_port(&mut server) {
                Ok(port) => {
                    home.write("port", port.to_string().as_bytes())?;
                    let copier = home.persistent.then(|| StateCopier::start(&home.root, home.interval()));
                    let accounts = home.accounts()?;
                    return Ok(Self {
                        miner: None,
                        _copier: copier,
                        server,
                        port,
                        accounts,
                        _lock: home.lock,
                    });
                }
                // Another process has taken the remembered port. Use any free one.
                Err(EmbeddedError::Exited { log_tail, .. })
                    if remembered.is_some() && log_tail.contains("in use") =>
                {
                    remembered = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A chain is ready once it answers on its port. Then the log, a line for each request, is turned off.
    async fn wait_until_ready(
        mut self,
        block_time: Option<Duration>,
        chain_id: u64,
    ) -> Result<Self, EmbeddedError> {
        let url = self.rpc_url().parse().expect("a loopback URL parses");
        let provider = ProviderBuilder::new().connect_http(url);
        let until = Instant::now() + READY_DEADLINE;
        loop {
            if provider.get_chain_id().await.is_ok_and(|id| id == chain_id) {
                let quiet = provider.raw_request::<_, ()>("anvil_setLoggingEnabled".into(), (false,)).await;
                if quiet.is_ok() && go_on_from_latest(&provider).await.is_ok() {
                    self.miner = block_time.map(|every| Miner::start(provider.erased(), every));
                    return Ok(self);
                }
            }
            if let Some(status) = self.server.exit_status() {
                return Err(self.server.exited_error(status));
            }
            if Instant::now() >= until {
                return Err(self.server.not_ready_error(READY_DEADLINE));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A chain whose time was moved ahead of the clock would fall back to the clock when it is loaded: anvil does not hold
/// blocks to the order of their times.
async fn go_on_from_latest(provider: &impl Provider) -> TransportResult<()> {
    let latest = provider.get_block_by_number(BlockNumberOrTag::Latest).await?;
    let latest = latest.map_or(0, |block| block.header.timestamp);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    if latest > now {
        set_time(provider, latest).await?;
    }
    Ok(())
}

/// From here on the chain's time goes on from this one, in Unix seconds.
async fn set_time(provider: &impl Provider, secs: u64) -> TransportResult<()> {
    let _: serde_json::Value = provider.raw_request("anvil_setTime".into(), (secs,)).await?;
    Ok(())
}

/// Has the chain at this URL go on from this time, in Unix seconds, with a block of it.
///
/// # Errors
/// What the node says, or that it does not answer.
pub async fn go_on_from(rpc_url: &str, secs: u64) -> TransportResult<()> {
    let provider = ProviderBuilder::new().connect(rpc_url).await?;
    set_time(&provider, secs).await?;
    let _: serde_json::Value = provider.raw_request("anvil_mine".into(), (1,)).await?;
    Ok(())
}

/// anvil binds a free port itself and prints it, so that no other process can take it in between.
fn wait_for_port(server: &mut Supervised) -> Result<u16, EmbeddedError> {
    let until = Instant::now() + READY_DEADLINE;
    loop {
        let exited = server.exit_status();
        let log = server.log_tail();
        // With the end of the line, or the number may be cut off.
        let said = log.rsplit_once("Listening on 127.0.0.1:").and_then(|(_, rest)| rest.split_once('\n'));
        if let Some(port) = said.and_then(|(port, _)| port.trim().parse().ok()) {
            return Ok(port);
        }
        if let Some(status) = exited {
            return Err(server.exited_error(status));
        }
        if Instant::now() >= until {
            return Err(server.not_ready_error(READY_DEADLINE));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

struct Home {
    root: PathBuf,
    persistent: bool,
    lock: File,
}

impl Home {
    /// Opens the directory for ourselves alone: after this no other anvil writes here, and the state can be loaded.
    fn open(dir: Option<&Path>) -> Result<Self, EmbeddedError> {
        let persistent = dir.is_some();
        let root = match dir {
            Some(dir) => {
                fs::create_dir_all(dir).map_err(EmbeddedError::file("create", dir))?;
                dir.canonicalize().map_err(EmbeddedError::file("read", dir))?.join("anvil")
            }
            None => std::env::temp_dir().join(format!("dvp-anvil-{}", random_hex(8))),
        };
        DirBuilder::new()
            .recursive(persistent)
            .mode(0o700)
            .create(&root)
            .map_err(EmbeddedError::file("create", &root))?;
        let lock_path = root.join("lock");
        let lock = File::create(&lock_path).map_err(EmbeddedError::file("create", &lock_path))?;
        EmbeddedError::locked(lock.try_lock(), &lock_path, &root)?;
        let mark = root.to_string_lossy();
        orphan::end("anvil", || orphan::living(&root.join("pid"), &["anvil", &mark]))?;
        if persistent {
            choose_state(&root)?;
        }
        Ok(Self { root, persistent, lock })
    }

    fn launch(&self, program: &Path, options: &AnvilOptions, port: Option<u16>) -> Launch {
        let mut launch = Launch::new(program, &self.root.join("anvil.log"));
        launch.current_dir.clone_from(&self.root);
        launch.grace = STOP_GRACE;
        // Otherwise it leaves files in the user's home directory.
        launch.env = vec![("HOME".into(), self.root.clone().into())];
        let mut arg = |name: &str, value: &dyn ToString| {
            launch.args.extend([name.into(), value.to_string().into()]);
        };
        arg("--host", &"127.0.0.1");
        arg("--port", &port.unwrap_or(0));
        arg("--chain-id", &options.chain_id);
        arg("--accounts", &options.accounts);
        arg("--slots-in-an-epoch", &options.slots_in_an_epoch);
        arg("--config-out", &self.root.join("accounts.json").display());
        arg("--cache-path", &self.root.join("cache").display());
        if self.persistent {
            // For so many recent blocks `eth_call` works, over restarts too; each costs a copy of the whole state.
            let recent = options.slots_in_an_epoch.saturating_mul(2).saturating_add(8);
            arg("--prune-history", &recent);
            arg("--state", &self.root.join("state.json").display());
            arg("--state-interval", &self.interval().as_secs());
            launch.args.push("--preserve-historical-states".into());
        } else {
            launch.remove_after = Some(self.root.clone());
        }
        if options.block_time.is_some() {
            launch.args.push("--no-mining".into());
            launch.settle = miner::SETTLE;
        }
        launch.args.extend(options.args.iter().map(Into::into));
        launch
    }

    /// How often the state is written: so much of the chain's past a SIGKILL of anvil itself, or a power cut, may cost.
    /// Each time it is all of it, so a big state is written less often.
    fn interval(&self) -> Duration {
        let bytes = self.root.join("state.json").metadata().map_or(0, |metadata| metadata.len());
        Duration::from_secs(1 + bytes / (16 * 1024 * 1024))
    }

    fn port(&self) -> Option<u16> {
        fs::read_to_string(self.root.join("port")).ok()?.trim().parse().ok()
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), EmbeddedError> {
        replace(&self.root.join(name), content)
    }

    /// anvil derives the accounts; it writes them down before it listens.
    fn accounts(&self) -> Result<Vec<DevAccount>, EmbeddedError> {
        #[derive(Deserialize)]
        struct AnvilAccounts {
            available_accounts: Vec<Address>,
            private_keys: Vec<B256>,
        }
        let path = self.root.join("accounts.json");
        let text = fs::read(&path).map_err(EmbeddedError::file("read", &path))?;
        let said: AnvilAccounts = serde_json::from_slice(&text).map_err(|error| EmbeddedError::Unusable {
            dir: self.root.clone(),
            reason: format!("accounts.json: {error}"),
        })?;
        let pairs = said.available_accounts.into_iter().zip(said.private_keys);
        Ok(pairs.map(|(address, private_key)| DevAccount { address, private_key }).collect())
    }
}

/// Sees to it that anvil finds a state it can load, or none: the last one written, else the last one that was
/// complete. Both files are missing or torn only when the chain was younger than the first copy; then it begins anew.
fn choose_state(root: &Path) -> Result<(), EmbeddedError> {
    let state = root.join("state.json");
    let good = root.join("state.good.json");
    if read_complete(&state)?.is_some() {
        return keep_good_copy(root, None).map(drop);
    }
    if state.exists() {
        tracing::warn!(file = %state.display(), "chain state file is truncated; restoring the previous copy");
        let torn = root.join("state.torn.json");
        fs::rename(&state, &torn).map_err(EmbeddedError::file("move away", &state))?;
    }
    read_complete(&good)?.map_or(Ok(()), |content| replace(&state, &content))
}

/// Copies the state, if it is complete at this moment and not the one that was copied last (`known`). Returns the
/// fingerprint of the last copy.
fn keep_good_copy(root: &Path, known: Option<u64>) -> Result<Option<u64>, EmbeddedError> {
    let Some(content) = read_complete(&root.join("state.json"))? else { return Ok(known) };
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let fingerprint = hasher.finish();
    if known != Some(fingerprint) {
        replace(&root.join("state.good.json"), &content)?;
    }
    Ok(Some(fingerprint))
}

/// A state file's content, or `None` when there is none or it is cut off.
fn read_complete(path: &Path) -> Result<Option<Vec<u8>>, EmbeddedError> {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "they only have to be there")]
    struct State {
        block: IgnoredAny,
        accounts: IgnoredAny,
        best_block_number: IgnoredAny,
        blocks: Vec<IgnoredAny>,
        transactions: Vec<IgnoredAny>,
    }
    let content = EmbeddedError::if_there(fs::read(path), "read", path)?;
    Ok(content.filter(|content| serde_json::from_slice::<State>(content).is_ok()))
}

fn replace(path: &Path, content: &[u8]) -> Result<(), EmbeddedError> {
    write_durably(path, content, Readers::Owner)
}

/// The thread that keeps `state.good.json` young. Dropping it stops it.
#[derive(Debug)]
struct StateCopier {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StateCopier {
    fn start(root: &Path, every: Duration) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let root = root.to_owned();
        let thread = thread::spawn(move || {
            let mut known = None;
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                match keep_good_copy(&root, known) {
                    Ok(fingerprint) => known = fingerprint,
                    Err(error) => tracing::warn!(%error, "copying the chain state failed"),
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for StateCopier {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
