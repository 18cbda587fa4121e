//! Compares the service's books with the chain at one final block: events with contracts, executions with both.
//!
//! Reads one snapshot of the database and queries one endpoint by the block's hash; [`dvp_domain::reconcile`]
//! classifies the differences, which are stored as a run and never acted on.
//!
//! A run reads the events since the last point up to which everything was read and the stored events agreed with the
//! contracts' own numbers, and what was open there: its cost does not grow with history. The whole history is read once a
//! day, on request, and after a block below the point changed.
//!
//! A token, wallet, order, contract or block that cannot be read ends no run: the run says what it could not read, keeps
//! the breaks that it found there before, and the next one reads from the same point again.

mod contracts;
mod wallets;

use crate::config::ChainConfig;
use crate::contracts::settler::Orders::Order;
use crate::lease_guard;
use crate::{orders, rpc};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256};
use alloy::providers::DynProvider;
use alloy::transports::{RpcError, TransportError};
use contracts::ContractsAt;
use dvp_core::context::now;
use dvp_core::ledger::reconciliation::wallets::InFlight;
use dvp_domain::chain::BlockNumber;
use dvp_domain::reconcile::{self as rules, Break, Contracts, Moment, Patience, Subject};
use dvp_domain::time::Timestamp;
use dvp_store::chain::{self as chain_store, Cursor};
use dvp_store::reconcile::closed::without_closed;
use dvp_store::reconcile::wallets::{NewWalletBalance, replace_balances};
use dvp_store::reconcile::{
    self as store, AtBlock, KeptBreak, NewPoint, NewRun, OpenKind, Point, Scope, SubjectPage,
};
use dvp_store::workers::{self, ItemError, Items, Step, Worker, guarded};
use dvp_store::{PgConnection, PgPool, StoreError};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr as _;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const PAGE: i64 = 256;
/// The number of ended settlements of a page that the contracts are queried about as a sample.
const SAMPLE: usize = 32;
/// The number of stored final blocks whose hash is compared.
const BLOCKS: i64 = 64;
/// How long comparisons go on from a point before the whole history is read again.
const FULL_EVERY: Duration = Duration::from_secs(24 * 3600);
const RUNS: i64 = 200;
/// The time limit of one token, wallet, order, contract or block, and of a run.
const ITEM_WITHIN: Duration = Duration::from_secs(3);
const RUN_WITHIN: Duration = Duration::from_secs(3_600);

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error("chain call failed: {}", rpc::told(.0))]
    Rpc(#[from] TransportError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("nothing of chain {chain_id} was read yet")]
    NotIndexed { chain_id: u64 },
    #[error("no block that was read is final yet")]
    NothingFinal,
    #[error("the node is on chain {found}, not {expected}")]
    WrongChain { expected: u64, found: u64 },
    #[error("the open locks sum to more than 2^128 - 1")]
    Sum,
    #[error("entity {0} is not a 32-byte hash")]
    Entity(String),
}

impl From<sqlx::Error> for ReconcileError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The period to compare, and the limits of durations.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub patience: Patience,
    /// Executions that ended earlier are compared again only if the chain has something open for them.
    pub ended_within: Duration,
    /// The whole history is read.
    pub full: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { patience: Patience::default(), ended_within: Duration::from_secs(24 * 3600), full: false }
    }
}

#[derive(Debug, Clone)]
pub struct Report {
    pub run_id: i64,
    pub chain_id: u64,
    pub block_number: BlockNumber,
    pub block_hash: B256,
    /// Events after this block were read. `None`: all.
    pub since: Option<BlockNumber>,
    /// The number of compared ids.
    pub subjects: u64,
    /// The number of ids that the contracts were queried about.
    pub queries: u64,
    pub breaks: Vec<Break>,
    /// What could not be read, and why. Breaks that were found there before stay open.
    pub unread: Vec<(String, String)>,
}

/// Compares once and stores the run. Endpoints are tried in turn, from any of them on, until one answers every query.
pub async fn reconcile(
    pool: &PgPool,
    config: &ChainConfig,
    options: &Options,
) -> Result<Report, ReconcileError> {
    let first = usize::try_from(now().millis()).unwrap_or_default();
    reconcile_from(pool, config, options, first).await
}

/// As [`reconcile`], beginning with the endpoint at `first` modulo their number: from run to run another one is asked, so
/// that none of them alone hides a break for long. What no endpoint has answered as a whole is stored as far as one has.
pub async fn reconcile_from(
    pool: &PgPool,
    config: &ChainConfig,
    options: &Options,
    first: usize,
) -> Result<Report, ReconcileError> {
    let (mut failed, mut partial) = (None, None::<Compared>);
    let urls: Vec<&str> = config.rpc_urls().collect();
    let skipped = first % urls.len().max(1);
    for url in urls.iter().cycle().skip(skipped).take(urls.len()) {
        let provider = rpc::connect(url)?;
        match Comparison::run(pool, config, options, &provider).await {
            Err(ReconcileError::Rpc(error)) => {
                tracing::warn!(chain = config.name, %error, "endpoint could not be queried for the comparison");
                failed = Some(ReconcileError::Rpc(error));
            }
            Err(error) => return Err(error),
            Ok(compared) if compared.report.unread.is_empty() => return compared.keep(pool).await,
            Ok(compared) => {
                let unread = compared.report.unread.len();
                let least = partial.as_ref().map_or(usize::MAX, |compared| compared.report.unread.len());
                partial = if unread < least { Some(compared) } else { partial };
            }
        }
    }
    match partial {
        Some(compared) => compared.keep(pool).await,
        None => Err(failed.unwrap_or(ReconcileError::NothingFinal)),
    }
}

/// Compares repeatedly until cancelled; one process at a time does so for each chain.
pub async fn run_reconciler(
    pool: PgPool,
    config: ChainConfig,
    options: Options,
    every: Duration,
    shutdown: CancellationToken,
) {
    let name = format!("reconcile:{}", config.chain_id);
    let mut runs = 0_usize;
    let items = Items::new(pool.clone(), Worker::ChainComparison, RUN_WITHIN);
    while let Some(mut guard) = lease_guard::acquire(&pool, &name, &shutdown).await {
        let mut due = tokio::time::Instant::now() + every;
        while !shutdown.is_cancelled() && matches!(guard.keep(&pool).await, Ok(true)) {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep_until(due.min(tokio::time::Instant::now() + LOOK)) => {}
            }
            if shutdown.is_cancelled() || tokio::time::Instant::now() < due {
                continue;
            }
            due = tokio::time::Instant::now() + every;
            let compared =
                Box::pin(guarded(RUN_WITHIN, reconcile_from(&pool, &config, &options, runs))).await;
            note(&items, &config.name, compared.as_ref()).await;
            tell(&config, compared);
            runs = runs.wrapping_add(1);
        }
        guard.release(&pool).await;
    }
}

/// The interval of lease renewals between runs.
const LOOK: Duration = Duration::from_secs(2);

/// Sets aside what could not be read, or the chain as a whole.
async fn note(items: &Items, chain: &str, compared: Result<&Report, &ItemError<ReconcileError>>) {
    let about = "chain comparison";
    let (whole, unread) = match compared {
        Ok(report) => (Ok(()), report.unread.as_slice()),
        Err(error) => (Err(error.to_string()), [].as_slice()),
    };
    let item = |what: &str| format!("{chain}: {what}");
    if compared.is_ok() {
        let is_read = |name: &str| !unread.iter().any(|(what, _)| item(what) == name);
        for name in items.failing().into_iter().filter(|name| name.starts_with(&item("")) && is_read(name)) {
            items.note(&name, about, Ok(())).await;
        }
    }
    items.note(chain, about, whole).await;
    for (what, why) in unread {
        items.note(&item(what), about, Err(why.clone())).await;
    }
}

fn tell(config: &ChainConfig, result: Result<Report, ItemError<ReconcileError>>) {
    let chain = &config.name;
    match result {
        Ok(report) => {
            for found in &report.breaks {
                let (kind, action) = (found.kind.as_str(), found.action.as_str());
                let (reference, entity) = (found.reference.as_deref(), found.entity.as_deref());
                tracing::error!(chain, kind, action, reference, entity, detail = found.detail, "break");
            }
            dvp_core::ledger::reconciliation::count_breaks(chain, &report.breaks);
            let Report { run_id, block_number, subjects, queries, breaks, unread, .. } = &report;
            let (breaks, unread) = (breaks.len(), unread.len());
            tracing::info!(chain, run_id, %block_number, subjects, queries, breaks, unread, "reconciliation completed");
        }
        Err(error) => tracing::warn!(chain, %error, "reconciliation failed, will retry"),
    }
}

/// A comparison that is not stored yet.
struct Compared {
    report: Report,
    run: NewRun,
    balances: Vec<NewWalletBalance>,
    point: Option<NewPoint>,
}

impl Compared {
    async fn keep(self, pool: &PgPool) -> Result<Report, ReconcileError> {
        let Self { mut report, run, balances, point } = self;
        let unread = &report.unread;
        let mut tx = pool.begin().await?;
        let chain_id = run.at.as_ref().map(|at| at.chain_id);
        let last = if unread.is_empty() { None } else { store::find_last_run(&mut tx, chain_id).await? };
        let id = store::insert_run(&mut tx, &run).await?;
        if let Some(last) = last {
            let before = store::list_breaks(&mut tx, last.id).await?;
            let about = |one: &KeptBreak| {
                let named = [&one.reference, &one.entity, &one.account, &one.asset];
                let is_in = |what: &str| named.into_iter().flatten().any(|name| what.contains(name.as_str()));
                let is_about = |what: &str| {
                    is_in(what) || what.rsplit(' ').next().is_some_and(|key| one.detail.contains(key))
                };
                unread.iter().any(|(what, _)| is_about(what))
            };
            let ordinals: Vec<i64> = before.iter().filter(|one| about(one)).map(|one| one.ordinal).collect();
            store::keep_breaks(&mut tx, last.id, id, &ordinals).await?;
        }
        match (&point, &run.at) {
            // What was not read is read from the same point again.
            _ if !unread.is_empty() => {}
            (Some(point), _) => store::set_point(&mut tx, point).await?,
            // What does not agree is read again as a whole until it does.
            (None, Some(at)) => store::forget_above(&mut tx, at.chain_id, -1).await?,
            (None, None) => {}
        }
        if let Some(at) = &run.at {
            replace_balances(&mut tx, (at.chain_id, at.number, &at.hash), &balances).await?;
        }
        store::delete_old_runs(&mut tx, run.at.as_ref().map(|at| at.chain_id), RUNS).await?;
        tx.commit().await?;
        report.run_id = id;
        Ok(report)
    }
}

struct Comparison<'a> {
    conn: &'a mut PgConnection,
    at: Option<ContractsAt<'a>>,
    scope: Scope,
    moment: Moment,
    /// The open funds in the escrows at the block, by id, each with its escrow.
    open: BTreeMap<String, (Address, Contracts)>,
    /// The beginning of the sample in a page.
    salt: usize,
    subjects: u64,
    queries: u64,
    breaks: Vec<Break>,
    /// Where the next comparison goes on. `None`: where this one did.
    point: Option<NewPoint>,
    in_flight: InFlight,
    /// What was read of wallets and the escrow.
    balances: Vec<NewWalletBalance>,
    unread: BTreeMap<String, String>,
}

impl<'a> Comparison<'a> {
    async fn run(
        pool: &PgPool,
        config: &'a ChainConfig,
        options: &Options,
        provider: &'a DynProvider,
    ) -> Result<Compared, ReconcileError> {
        let chain_id = config.chain_id;
        let started_at = now();
        let mut snapshot = store::snapshot(pool).await?;
        let cursor = chain_store::find_cursor(&mut snapshot, chain_id).await?;
        let cursor = cursor.ok_or(ReconcileError::NotIndexed { chain_id })?;
        let (block, ours) = final_block(&mut snapshot, provider, config, &cursor).await?;
        let ended_within = i64::try_from(options.ended_within.as_millis()).unwrap_or(i64::MAX);
        let block_number = block.number.0.cast_signed();
        let from =
            find_start(&mut snapshot, chain_id.cast_signed(), block_number, options, started_at).await?;
        let scope = Scope {
            chain_id: chain_id.cast_signed(),
            facts_number: cursor.facts_number.0.cast_signed(),
            block_number,
            since: from.as_ref().map(|point| point.block_number),
            ended_since: started_at.plus_millis(ended_within.saturating_neg()).to_utc(),
        };
        let moment = Moment { now: started_at, block_secs: block.timestamp, patience: options.patience };
        let differs = rules::judge_block(block.number.0, &ours.to_string(), Some(&block.hash.to_string()));
        let at = differs.is_none().then(|| ContractsAt::new(provider, &config.deployment, block.hash));
        let full_at = from.as_ref().map_or_else(|| started_at.to_utc(), |point| point.full_at);
        let point = Point { block_number, block_hash: ours.to_vec(), full_at };
        let salt = usize::try_from(started_at.millis()).unwrap_or_default();
        let mut comparison = Comparison {
            conn: &mut snapshot,
            at,
            scope,
            moment,
            open: BTreeMap::new(),
            salt,
            subjects: 0,
            queries: 0,
            point: differs.is_none().then(|| NewPoint::new(chain_id.cast_signed(), point)),
            breaks: differs.into_iter().collect(),
            in_flight: InFlight::default(),
            balances: Vec::new(),
            unread: BTreeMap::new(),
        };
        comparison.compare(provider).await?;
        let Comparison { subjects, queries, breaks, balances, point, unread, .. } = comparison;
        let breaks = without_closed(&mut snapshot, breaks).await?;
        snapshot.rollback().await?;
        let run = NewRun {
            at: Some(AtBlock {
                chain_id: chain_id.cast_signed(),
                number: block.number.0.cast_signed(),
                hash: ours.to_vec(),
                secs: block.timestamp.cast_signed(),
            }),
            subjects: subjects.cast_signed(),
            queries: queries.cast_signed(),
            started_at: started_at.to_utc(),
            breaks,
        };
        let report = Report {
            run_id: 0,
            chain_id,
            block_number: block.number,
            block_hash: ours,
            since: scope.since.map(|number| BlockNumber(number.cast_unsigned())),
            subjects,
            queries,
            breaks: run.breaks.clone(),
            unread: unread.into_iter().collect(),
        };
        Ok(Compared { report, run, balances, point })
    }

    async fn compare(&mut self, provider: &DynProvider) -> Result<(), ReconcileError> {
        self.blocks(provider).await?;
        self.counts().await?;
        self.balances().await?;
        self.executions().await?;
        self.foreign().await?;
        self.wallets().await
    }

    async fn blocks(&mut self, provider: &DynProvider) -> Result<(), ReconcileError> {
        let kept = store::list_final_blocks(self.conn, &self.scope, BLOCKS).await?;
        for (number, ours) in kept.into_iter().skip(1) {
            let number = number.cast_unsigned();
            let read = async { Ok(rpc::block(provider, BlockId::number(number)).await?) };
            let Some(theirs) = self.apart(&format!("block {number}"), read).await? else { continue };
            let theirs = theirs.map(|block| block.hash.to_string());
            self.breaks.extend(rules::judge_block(number, &ours, theirs.as_deref()));
        }
        Ok(())
    }

    async fn counts(&mut self) -> Result<(), ReconcileError> {
        let Some(at) = self.at.clone() else { return Ok(()) };
        let contracts: Vec<Vec<u8>> = at.deployment.numbered().iter().map(|one| one.to_vec()).collect();
        let counts = store::count_events(self.conn, &self.scope, &contracts).await?;
        let mut agrees = true;
        for count in &counts {
            let contract = Address::from_slice(&count.contract);
            let read = async { Ok(at.seq(contract).await?) };
            let Some(emitted) = self.apart(&format!("contract {contract:#x}"), read).await? else { continue };
            let found = rules::judge_count(&contract.to_string(), emitted, count.last, count.kept);
            agrees &= found.is_none();
            self.breaks.extend(found);
        }
        match &mut self.point {
            Some(point) if agrees => point.counts = counts,
            Some(_) | None => self.point = None,
        }
        Ok(())
    }

    /// Reads the open funds in the escrows, and checks that the balances of each cover them.
    async fn balances(&mut self) -> Result<(), ReconcileError> {
        let Some(at) = self.at.clone() else { return Ok(()) };
        let mut after = Vec::new();
        loop {
            let page = store::list_open_entities(self.conn, &self.scope, &after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after.clone_from(last);
            leave_open(&mut self.point, OpenKind::Funds, &page);
            let ids: Vec<B256> = page.iter().map(|id| B256::from_slice(id)).collect();
            let read = self.read(&ids).await?;
            self.open.extend(read.into_iter().map(|(id, contracts)| (id.to_string(), contracts)));
        }
        let mut owed: BTreeMap<(Address, String), Option<u128>> = BTreeMap::new();
        let held =
            self.open.values().filter_map(|(escrow, contracts)| Some((escrow, contracts.lock.as_ref()?)));
        for (escrow, held) in held {
            let total = owed.entry((*escrow, held.token.clone())).or_insert(Some(0));
            *total = total.and_then(|total| total.checked_add(held.amount.get()));
        }
        for ((escrow, token), open) in owed {
            let read = async {
                let open = open.ok_or(ReconcileError::Sum)?;
                Ok(rules::judge_balance(&token, at.balance(&token, escrow).await?, open))
            };
            let found = self.apart(&format!("token {token}"), read).await?;
            self.breaks.extend(found.flatten());
        }
        Ok(())
    }

    async fn executions(&mut self) -> Result<(), ReconcileError> {
        let mut after = String::new();
        let open = self.open.keys().filter_map(|id| Some(B256::from_str(id).ok()?.to_vec()));
        let open: Vec<Vec<u8>> = open.collect();
        loop {
            let page = store::list_booked(self.conn, &self.scope, &open, &after, PAGE).await?;
            let SubjectPage { subjects, unread, last } = page;
            self.unread.extend(unread);
            let Some(last) = last else { return Ok(()) };
            after = last;
            self.judge(subjects).await?;
        }
    }

    async fn foreign(&mut self) -> Result<(), ReconcileError> {
        let mut after = Vec::new();
        loop {
            let page = store::list_lone_entities(self.conn, &self.scope, &after, PAGE).await?;
            let SubjectPage { subjects, unread, last } = page;
            self.unread.extend(unread);
            let Some(last) = last else { break };
            after = last;
            let ids = subjects.iter().map(|one| Ok(entity_of(one)?.to_vec()));
            let ids: Vec<Vec<u8>> = ids.collect::<Result<_, ReconcileError>>()?;
            leave_open(&mut self.point, OpenKind::Entity, &ids);
            self.judge(subjects).await?;
        }
        let mut after = Vec::new();
        loop {
            let page = store::list_lone_anchors(self.conn, &self.scope, &after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after.clone_from(last);
            leave_open(&mut self.point, OpenKind::Anchor, &page);
            let hashes = page.iter().map(|hash| format!("0x{}", hex::encode(hash)));
            self.breaks.extend(hashes.map(|hash| rules::anchor_without_receipt(&hash)));
        }
    }

    async fn judge(&mut self, mut page: Vec<Subject>) -> Result<(), ReconcileError> {
        self.ask(&mut page).await?;
        let booked =
            page.iter().filter_map(|subject| Some((&subject.booked.as_ref()?.terms, subject.kept.at_block)));
        self.in_flight.add(self.conn, booked).await?;
        let moment = self.moment;
        for subject in &page {
            let judged = async { Ok(rules::judge(subject, &moment)) };
            let Some(found) = self.apart(&name_of(subject), judged).await? else { continue };
            self.subjects += 1;
            self.queries += u64::from(subject.contracts.is_some());
            self.breaks.extend(found);
        }
        Ok(())
    }

    /// Queries the contracts about everything that is open, every live execution, and some that have ended.
    async fn ask(&mut self, page: &mut [Subject]) -> Result<(), ReconcileError> {
        for subject in page.iter_mut() {
            subject.contracts = self.open.remove(&subject.entity).map(|(_, contracts)| contracts);
        }
        let live =
            |subject: &Subject| subject.booked.as_ref().is_some_and(|booked| !booked.state.is_terminal());
        let count = page.len();
        let sampled = |index: usize| (index + self.salt) % count.max(1) < SAMPLE;
        let wanted: Vec<usize> = (0..count)
            .filter(|&index| page[index].contracts.is_none() && (live(&page[index]) || sampled(index)))
            .collect();
        let ids = wanted.iter().map(|&index| entity_of(&page[index])).collect::<Result<Vec<_>, _>>()?;
        let mut read = self.read(&ids).await?;
        for (index, id) in wanted.into_iter().zip(ids) {
            page[index].contracts = read.remove(&id).map(|(_, contracts)| contracts);
        }
        Ok(())
    }

    /// What the contracts say of these ids, without those that cannot be read.
    async fn read(&mut self, ids: &[B256]) -> Result<HashMap<B256, (Address, Contracts)>, ReconcileError> {
        let Some(at) = self.at.clone() else { return Ok(HashMap::new()) };
        let (reported, unreadable) = reported(self.conn, &self.scope, ids).await?;
        for id in &unreadable {
            self.unread.insert(id.to_string(), "its lock's terms cannot be read".to_owned());
        }
        let ids: Vec<B256> = ids.iter().copied().filter(|id| !unreadable.contains(id)).collect();
        let mut read = HashMap::with_capacity(ids.len());
        for (id, contracts) in ids.iter().zip(at.read(&ids, &reported).await?) {
            let one = async { Ok(contracts?) };
            if let Some(contracts) = self.apart(&id.to_string(), one).await? {
                read.insert(*id, contracts);
            }
        }
        Ok(read)
    }

    /// What is read or judged of an item; `None`: that alone fails, and the run says so.
    async fn apart<T>(
        &mut self,
        item: &str,
        work: impl Future<Output = Result<T, ReconcileError>>,
    ) -> Result<Option<T>, ReconcileError> {
        let work = async {
            workers::at(Step::ChainCompare, item).await?;
            work.await
        };
        let error = match guarded(ITEM_WITHIN, work).await {
            Ok(done) => return Ok(Some(done)),
            Err(error) => error,
        };
        let has_endpoint = match &self.at {
            Some(at) => at.answers().await,
            None => !matches!(error, ItemError::Failed(ReconcileError::Rpc(_))),
        };
        match error {
            ItemError::Failed(error) if !has_endpoint => Err(error),
            error => {
                self.unread.insert(item.to_owned(), error.to_string());
                Ok(None)
            }
        }
    }
}

/// An order's reference, or the id that the chain has.
fn name_of(subject: &Subject) -> String {
    let booked = subject.booked.as_ref();
    booked.map_or_else(|| subject.entity.clone(), |booked| booked.terms.reference.to_string())
}

fn entity_of(subject: &Subject) -> Result<B256, ReconcileError> {
    subject.entity.parse().map_err(|_| ReconcileError::Entity(subject.entity.clone()))
}

fn leave_open(point: &mut Option<NewPoint>, kind: OpenKind, ids: &[Vec<u8>]) {
    if let Some(point) = point {
        point.keep(kind, ids);
    }
}

/// The point from which a comparison at a block goes on. `None`: from the beginning.
async fn find_start(
    conn: &mut PgConnection,
    chain_id: i64,
    block_number: i64,
    options: &Options,
    now: Timestamp,
) -> Result<Option<Point>, ReconcileError> {
    if options.full {
        return Ok(None);
    }
    let full_every = i64::try_from(FULL_EVERY.as_millis()).unwrap_or(i64::MAX);
    let oldest = now.plus_millis(full_every.saturating_neg()).to_utc();
    let found = store::find_point(conn, chain_id).await?;
    Ok(found.filter(|point| point.block_number <= block_number && point.full_at > oldest))
}

/// The newest block that is final for the node and whose events are published, with its indexed hash. A node that is
/// behind the last comparison is asked about the block of that one: it would be read as a whole again.
async fn final_block(
    conn: &mut PgConnection,
    provider: &DynProvider,
    config: &ChainConfig,
    cursor: &Cursor,
) -> Result<(rpc::BlockHead, B256), ReconcileError> {
    let found = alloy::providers::Provider::get_chain_id(provider).await?;
    if found != config.chain_id {
        return Err(ReconcileError::WrongChain { expected: config.chain_id, found });
    }
    let finalized = match rpc::block(provider, BlockId::finalized()).await {
        Ok(Some(block)) => block.number,
        Ok(None) | Err(RpcError::ErrorResp(_)) => {
            let depth = config.finality_depth.ok_or(ReconcileError::NothingFinal)?;
            rpc::head(provider).await?.number.saturating_sub(depth)
        }
        Err(error) => return Err(error.into()),
    };
    let compared = store::find_point(conn, config.chain_id.cast_signed()).await?;
    let compared = compared.map_or(0, |point| point.block_number.cast_unsigned());
    let highest = finalized.max(BlockNumber(compared)).min(cursor.facts_number);
    let known = chain_store::known_hashes_below(conn, config.chain_id, highest + 1, 1).await?;
    let &(number, ours) = known.first().ok_or(ReconcileError::NothingFinal)?;
    let block = rpc::block(provider, BlockId::number(number.0)).await?.ok_or(RpcError::NullResp)?;
    Ok((block, ours))
}

/// The terms in the events of these ids, and the ids of which they cannot be read. The escrow stores only their hash.
async fn reported(
    conn: &mut PgConnection,
    scope: &Scope,
    ids: &[B256],
) -> Result<(HashMap<B256, Order>, HashSet<B256>), ReconcileError> {
    let ids: Vec<Vec<u8>> = ids.iter().map(|id| id.to_vec()).collect();
    let facts = store::list_lock_facts(conn, scope, &ids).await?;
    let id = |id: &Vec<u8>| B256::from_slice(id);
    let reported = facts.iter().filter_map(|(of, fact)| Some((id(of), orders::reported(fact.as_ref()?)?)));
    let unreadable = facts.iter().filter(|(_, fact)| fact.is_none()).map(|(of, _)| id(of));
    Ok((reported.collect(), unreadable.collect()))
}
