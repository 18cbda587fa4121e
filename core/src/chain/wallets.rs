//! The wallet cache: permit nonce, balance and allowance of the wallets that pay for orders.
//!
//! ```text
//! order ──known and fresh──> decided at once
//!       └─unknown or stale─> individual look-up (limited by partner and in total) ──> decided, and cached
//! every second: the newest block; after a new one, all cached wallets in batches
//! ```
//!
//! Each chain has a cache of its own, with its own limits: a chain whose node does not answer delays no other chain's
//! orders. An order waits for the node only when its wallet is unknown. A look-up of an account's data is requested only
//! after its signature on the order's permit was verified. When the node does not answer, cached data expires at
//! [`AGE_MAX`], and orders that need it are refused after [`LOOK_UP_WITHIN`].
//!
//! A signature that is not the account's may be a contract's: then the look-up asks the contract first, with each order.
//! Its answer is as old as the order may wait after it, [`AGE_MAX`] at most, and the lock asks again.
//!
//! Kept by `core/tests/it/wallets.rs::an_order_of_a_known_wallet_is_decided_while_the_node_is_frozen` and
//! `core/tests/it/wallets.rs::the_data_of_unsigned_wallets_is_not_read`.

pub(crate) mod pending;
mod table;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_store::PgPool;
use dvp_store::workers::{self, ItemError, Items, Step, Worker, guarded, supervise};
use futures_util::future::{BoxFuture, FutureExt as _, Shared, join_all};
use futures_util::stream::{StreamExt as _, iter};
use metrics::{counter, gauge};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tracing::{info, warn};

pub use self::table::AGE_MAX;
use self::table::{Dated, Table, WALLETS_MAX};
use crate::chain::{
    ChainUnavailable, Confirmation, SignedHash, WalletFacts, WalletKey, WalletReader, WalletReaders,
};

/// The polling interval of the latest block.
const ROUND_EVERY: Duration = Duration::from_secs(1);
const _: () = assert!(ROUND_EVERY.as_secs() * 3 < AGE_MAX.as_secs(), "a few failed rounds cost nothing");
/// Wallets read by one request: three calls each and two for the block; many nodes accept no more than a hundred calls
/// in a batch.
pub(crate) const BATCH_WALLETS: usize = 32;
const _: () = assert!(BATCH_WALLETS * 3 + 2 <= 100, "many nodes take at most a hundred calls in a batch");
/// Concurrent batches of a round.
const BATCHES_AT_ONCE: usize = 4;
/// Wallets of a batch that fails that are read by themselves at once, and the time limit of a batch or a wallet.
const SINGLES_AT_ONCE: usize = 8;
const READ_WITHIN: Duration = Duration::from_secs(4);
/// The time limit of an order's look-up, including the wait for its turn.
pub const LOOK_UP_WITHIN: Duration = Duration::from_secs(8);
/// Concurrent look-ups of one partner.
const PARTNER_AT_ONCE: usize = 8;
/// Concurrent look-ups of all partners.
const ALL_AT_ONCE: usize = 64;
const _: () = assert!(PARTNER_AT_ONCE < ALL_AT_ONCE, "one partner does not occupy all look-ups");
/// Look-ups of one partner in progress or waiting; further orders are refused immediately.
const PARTNER_WAITING_MAX: usize = 1024;

/// What an order needs to know of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    pub wallet: WalletKey,
    /// The wallet has to confirm this first.
    pub signed: Option<SignedHash>,
}

impl From<&WalletKey> for Question {
    fn from(wallet: &WalletKey) -> Self {
        Self { wallet: wallet.clone(), signed: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookedUp {
    Facts(WalletFacts),
    /// The wallet did not confirm the signature.
    Unconfirmed {
        is_contract: bool,
    },
}

/// A look-up in progress, shared by all tasks that wait for the same answer. It continues even if no task waits.
pub type LookUp = Shared<BoxFuture<'static, Result<LookedUp, ChainUnavailable>>>;

/// The wallet caches of all chains. Cheap to clone.
#[derive(Clone)]
pub struct Wallets {
    chains: Arc<BTreeMap<i64, Arc<Inner>>>,
}

struct Inner {
    reader: Arc<dyn WalletReader>,
    table: Mutex<Table>,
    places: Semaphore,
    under_way: Mutex<HashMap<String, PartnerLookUps>>,
}

struct PartnerLookUps {
    places: Arc<Semaphore>,
    waiting: HashMap<Question, LookUp>,
}

impl Wallets {
    pub fn new(readers: WalletReaders) -> Self {
        let inner = |reader| Inner {
            reader,
            table: Mutex::new(Table::new(WALLETS_MAX)),
            places: Semaphore::new(ALL_AT_ONCE),
            under_way: Mutex::default(),
        };
        let chains = readers.into_iter().map(|(id, reader)| (id, Arc::new(inner(reader))));
        Self { chains: Arc::new(chains.collect()) }
    }

    /// Fresh data from memory.
    pub fn find(&self, partner_id: &str, wallet: &WalletKey) -> Option<WalletFacts> {
        self.chains.get(&wallet.chain_id)?.table.lock().find(partner_id, wallet, Instant::now())
    }

    /// Queries the chain about a wallet, or joins the partner's query in progress.
    pub fn look_up(&self, partner_id: &str, question: &Question) -> LookUp {
        let chain_id = question.wallet.chain_id;
        let Some(inner) = self.chains.get(&chain_id) else {
            let unknown = Err(ChainUnavailable(format!("no chain {chain_id} is configured")));
            return std::future::ready(unknown).boxed().shared();
        };
        let mut under_way = inner.under_way.lock();
        let of_partner = under_way.entry(partner_id.to_owned()).or_insert_with(|| PartnerLookUps {
            places: Arc::new(Semaphore::new(PARTNER_AT_ONCE)),
            waiting: HashMap::new(),
        });
        if let Some(look_up) = of_partner.waiting.get(question) {
            return look_up.clone();
        }
        if of_partner.waiting.len() >= PARTNER_WAITING_MAX {
            count("refused");
            let refused =
                Err(ChainUnavailable("too many look-ups of this partner's wallets wait".to_owned()));
            return std::future::ready(refused).boxed().shared();
        }
        let places = Arc::clone(&of_partner.places);
        let inner = Arc::clone(inner);
        let task = Task { inner, partner_id: partner_id.to_owned(), question: question.clone() };
        gauge!("dvp_wallet_look_ups_waiting").increment(1.0);
        // A separate task, so that a caller that stops waiting does not cancel it for the others.
        let requested = tokio::spawn(async move { task.run(&places).await });
        let lost = |_| Err(ChainUnavailable("the look-up ended without an answer".to_owned()));
        let look_up = requested.map(move |done| done.unwrap_or_else(lost)).boxed().shared();
        of_partner.waiting.insert(question.clone(), look_up.clone());
        look_up
    }

    /// Refreshes the cached wallets until `stop` turns true.
    pub async fn run(self, pool: PgPool, stop: watch::Receiver<bool>) {
        let items = Items::new(pool, Worker::Wallets, READ_WITHIN);
        let follow = |inner| {
            let (this, items, stop) = (&self, &items, stop.clone());
            async move {
                supervise(Worker::Wallets, stop.clone(), || this.follow(inner, items, stop.clone())).await;
            }
        };
        join_all(self.chains.values().map(follow)).await;
    }

    async fn follow(&self, inner: &Arc<Inner>, items: &Items, mut stop: watch::Receiver<bool>) {
        let mut is_answering = true;
        while !*stop.borrow() {
            tokio::select! {
                () = tokio::time::sleep(ROUND_EVERY) => {}
                _ = stop.changed() => continue,
            }
            items.refresh().await;
            let done = inner.round(items).await;
            match &done {
                Err(error) if is_answering => {
                    warn!(%error, "refreshing wallets failed; orders of wallets with stale data look them up individually");
                }
                Ok(()) if !is_answering => info!("refreshing wallets recovered"),
                Ok(()) | Err(_) => {}
            }
            is_answering = done.is_ok();
            self.show();
        }
    }

    fn show(&self) {
        let (mut known, mut oldest) = (0_usize, Duration::ZERO);
        for inner in self.chains.values() {
            let table = inner.table.lock();
            known = known.saturating_add(table.len());
            oldest = oldest.max(table.oldest(Instant::now()));
        }
        gauge!("dvp_wallets_known").set(u32::try_from(known).unwrap_or(u32::MAX));
        gauge!("dvp_wallet_facts_age_seconds").set(oldest.as_secs_f64());
    }
}

impl Inner {
    /// Reads the cached wallets again if the chain has a new block, without those that are set aside.
    async fn round(&self, items: &Items) -> Result<(), ChainUnavailable> {
        self.table.lock().drop_idle(Instant::now());
        if self.table.lock().len() == 0 {
            return Ok(());
        }
        let requested_at = Instant::now();
        let head = self.reader.head().await?;
        let due = {
            let mut table = self.table.lock();
            table.confirm(head, requested_at);
            table.due(head)
        };
        let due: Vec<WalletKey> =
            due.into_iter().filter(|wallet| !items.is_waiting(&item_of(wallet))).collect();
        let batches: Vec<Vec<WalletKey>> = due.chunks(BATCH_WALLETS).map(<[WalletKey]>::to_vec).collect();
        let read_again = |batch: Vec<WalletKey>| self.read_again(batch, items);
        let mut batches = iter(batches).map(read_again).buffer_unordered(BATCHES_AT_ONCE);
        let mut failed = None;
        // A batch that fails takes no other along.
        while let Some(done) = batches.next().await {
            failed = failed.or(done.err());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Reads a batch, and each of its wallets by itself if that fails. One that fails alone is set aside.
    async fn read_again(&self, batch: Vec<WalletKey>, items: &Items) -> Result<(), ChainUnavailable> {
        let unavailable = |error: ItemError<ChainUnavailable>| ChainUnavailable(error.to_string());
        let Err(error) = guarded(READ_WITHIN, self.refresh(&batch)).await.map_err(unavailable) else {
            for wallet in batch.iter().map(item_of).filter(|wallet| items.is_set_aside(wallet)) {
                items.note(&wallet, &wallet, Ok(())).await;
            }
            return Ok(());
        };
        let alone = |wallet: WalletKey| async move {
            let read = guarded(READ_WITHIN, self.refresh(std::slice::from_ref(&wallet))).await;
            (item_of(&wallet), read.map_err(|error| error.to_string()))
        };
        let count = batch.len();
        let read: Vec<_> = iter(batch).map(alone).buffer_unordered(SINGLES_AT_ONCE).collect().await;
        let failed = read.iter().filter(|(_, read)| read.is_err()).count();
        if count > 1 && failed == count {
            return Err(error);
        }
        for (wallet, read) in read {
            items.note(&wallet, &wallet, read).await;
        }
        Ok(())
    }

    async fn refresh(&self, wallets: &[WalletKey]) -> Result<(), ChainUnavailable> {
        let requested_at = Instant::now();
        for wallet in wallets {
            let injected = workers::at(Step::WalletRead, item_of(wallet)).await;
            injected.map_err(|error| ChainUnavailable(error.to_string()))?;
        }
        let reading = self.reader.read(wallets).await?;
        let now = Instant::now();
        let mut table = self.table.lock();
        for (wallet, facts) in wallets.iter().zip(reading.facts) {
            table.refresh(wallet, Dated { facts, head: reading.head, requested_at }, now);
        }
        Ok(())
    }
}

/// What identifies a wallet in the list of what is set aside.
fn item_of(WalletKey { chain_id, owner, token }: &WalletKey) -> String {
    format!("{chain_id} {owner} {token}")
}

/// One look-up; removed from the list when dropped.
struct Task {
    inner: Arc<Inner>,
    partner_id: String,
    question: Question,
}

impl Task {
    async fn run(self, places: &Semaphore) -> Result<LookedUp, ChainUnavailable> {
        let found = tokio::time::timeout(LOOK_UP_WITHIN, self.ask(places)).await;
        let found = found.unwrap_or_else(|_| Err(ChainUnavailable("no answer in time".to_owned())));
        match &found {
            Ok(LookedUp::Facts(_)) => count("found"),
            Ok(LookedUp::Unconfirmed { .. }) => count("unconfirmed"),
            Err(error) => {
                warn!(%error, wallet = self.question.wallet.owner, partner = self.partner_id, "wallet look-up failed");
                count("unavailable");
            }
        }
        found
    }

    async fn ask(&self, places: &Semaphore) -> Result<LookedUp, ChainUnavailable> {
        let closed = |_| ChainUnavailable("the service is stopping".to_owned());
        let _of_partner = places.acquire().await.map_err(closed)?;
        let _of_all = self.inner.places.acquire().await.map_err(closed)?;
        let Question { wallet, signed } = &self.question;
        if let Some(signed) = signed {
            match self.inner.reader.confirm(&wallet.owner, signed).await? {
                Confirmation::Confirmed => {}
                Confirmation::Refused => return Ok(LookedUp::Unconfirmed { is_contract: true }),
                Confirmation::NoContract => return Ok(LookedUp::Unconfirmed { is_contract: false }),
            }
        }
        let requested_at = Instant::now();
        let reading = self.inner.reader.read(std::slice::from_ref(wallet)).await?;
        let facts = reading.facts.first().copied();
        let facts = facts.ok_or_else(|| ChainUnavailable("an answer without the wallet".to_owned()))?;
        let dated = Dated { facts, head: reading.head, requested_at };
        self.inner.table.lock().insert(&self.partner_id, wallet.clone(), dated, Instant::now());
        Ok(LookedUp::Facts(facts))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        gauge!("dvp_wallet_look_ups_waiting").decrement(1.0);
        let mut under_way = self.inner.under_way.lock();
        if let Entry::Occupied(mut of_partner) = under_way.entry(std::mem::take(&mut self.partner_id)) {
            of_partner.get_mut().waiting.remove(&self.question);
            if of_partner.get().waiting.is_empty() {
                of_partner.remove();
            }
        }
    }
}

fn count(result: &'static str) {
    counter!("dvp_wallet_look_ups_total", "result" => result).increment(1);
}
