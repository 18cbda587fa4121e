//! One seed: a node, accounts, orders of all kinds, and relayers under every kind of disturbance.

use super::super::Broken;
use super::super::rng::Rng;
use super::super::run::{SimDatabase, polled};
use super::node::Node;
use super::world::{Block, World};
use crate::config::{ChainConfig, FeePolicy};
use crate::deploy::Deployment;
use crate::relayer::{RelayError, Relayer};
use alloy::primitives::{Address, B256, keccak256};
use alloy::signers::local::PrivateKeySigner;
use dvp_core::secrets::Vault;
use dvp_domain::chain::BlockNumber;
use dvp_domain::chain::{ChainCommand, CreateCommand, OutputArgs, PermitArgs, SwapCommand, TransferCommand};
use dvp_store::chain::commands::NewChainCommand;
use dvp_store::chain::{self as store, BlockRow, Cursor, LogRow};
use dvp_store::database::lease::Lease;
use dvp_store::insert_batch::{self, InsertBatch};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The relayer's fee cap: below some of the fee spikes.
const CAP: u128 = 30_000_000_000;
/// Rounds after the last disturbance, within which everything must be done.
const ROUNDS_TO_THE_END: u32 = 400;
/// The part of the waiting facts that the endpoints agree on by the next time.
const LIFTED_PER_MILLE: u64 = 400;

#[derive(Debug, Clone, Default)]
pub struct RelayOutcome {
    pub steps: u32,
    pub calls: u64,
    pub commands: u64,
    pub transactions: u64,
    pub reorgs: u32,
    /// Turns that ended with an error.
    pub errors: u32,
    /// Relayers killed, statements failed, accounts taken out of service.
    pub disturbed: u32,
}

/// Runs one seed.
///
/// # Errors
/// The violated condition, as text.
pub async fn run_relay_seed(database: &SimDatabase, seed: u64) -> Result<RelayOutcome, String> {
    let mut run = Run::new(database, seed).await.map_err(|error| error.to_string())?;
    match run.live().await {
        Ok(()) => Ok(run.outcome),
        Err(broken) => Err(format!("{broken}\n  {:?}", run.outcome)),
    }
}

struct Account {
    signer: PrivateKeySigner,
    relayer: Relayer,
    lease: Option<Lease>,
}

/// The commands of an order, one after the other.
struct Order {
    id: B256,
    maker: Address,
    script: Vec<ChainCommand>,
    /// The number of the script's commands that were inserted.
    left: usize,
}

pub(super) struct Run<'a> {
    pub(super) database: &'a SimDatabase,
    pub(super) config: ChainConfig,
    node: Node,
    rng: Rng,
    /// Decides when gates are lifted: the other choices of a seed stay as they are.
    pub(super) gate_rng: Rng,
    accounts: Vec<Account>,
    orders: Vec<Order>,
    /// Receipts whose anchoring was abandoned with an account and taken over by another one.
    pub(super) abandoned_anchors: BTreeSet<B256>,
    outcome: RelayOutcome,
}

impl<'a> Run<'a> {
    async fn new(database: &'a SimDatabase, seed: u64) -> Result<Self, Broken> {
        database.empty().await?;
        let mut rng = Rng::new(seed ^ 0x7e1a);
        let signers: Vec<PrivateKeySigner> = (0..rng.between(1, 3))
            .map(|at| PrivateKeySigner::from_bytes(&digest(seed, "account", at)))
            .collect::<Result<_, _>>()?;
        let deployment = deployment(seed, &signers);
        let config = ChainConfig {
            name: format!("sim {seed}"),
            confirmations: rng.between(1, 3),
            poll_interval: Duration::ZERO,
            resend_after: Duration::ZERO,
            fees: FeePolicy { cap_wei: CAP, bump_blocks: 2, ..FeePolicy::default() },
            ..ChainConfig::development("http://simulated", deployment.clone())
        };
        let world = World::new(seed, deployment, Rng::new(seed ^ 0x51));
        let node = Node { world: Arc::new(Mutex::new(world)) };
        let mut run = Self {
            database,
            config,
            node,
            orders: orders(seed, &mut rng),
            rng,
            gate_rng: Rng::new(seed ^ 0x6a7e),
            accounts: Vec::new(),
            abandoned_anchors: BTreeSet::new(),
            outcome: RelayOutcome::default(),
        };
        for signer in signers {
            let (relayer, lease) = (run.relayer(&signer)?, Some(run.lease(&signer).await?));
            run.accounts.push(Account { signer, relayer, lease });
        }
        run.begin().await?;
        Ok(run)
    }

    fn relayer(&self, signer: &PrivateKeySigner) -> Result<Relayer, Broken> {
        let (pool, vault) = (self.database.pool.clone(), Arc::new(Vault::new([7; 32])));
        let providers = vec![self.node.provider()];
        Ok(Relayer::over(pool, self.config.clone(), providers, signer.clone().into(), vault)?)
    }

    async fn lease(&self, signer: &PrivateKeySigner) -> Result<Lease, Broken> {
        self.database.lease(&format!("relayer:{}:{}", self.config.chain_id, signer.address())).await
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.node.world()
    }

    async fn live(&mut self) -> Result<(), Broken> {
        for _ in 0..self.rng.between(40, 110) {
            self.outcome.steps += 1;
            self.note_abandoned().await?;
            self.chain_goes_on();
            match self.rng.between(0, 9) {
                0..=2 => {
                    self.index().await?;
                    self.lift_gates(LIFTED_PER_MILLE).await?;
                }
                3 => self.leave_commands().await?,
                4 => self.make_due().await?,
                5 => self.change_service().await?,
                _ => self.relay().await?,
            }
        }
        self.settle_down().await?;
        let world_counts = {
            let world = self.world();
            (world.calls, world.reorgs)
        };
        (self.outcome.calls, self.outcome.reorgs) = world_counts;
        let (commands, transactions) = self.judge().await?;
        (self.outcome.commands, self.outcome.transactions) = (commands, transactions);
        Ok(())
    }

    fn chain_goes_on(&mut self) {
        let what = self.rng.between(0, 99);
        let maker = self.rng.pick(&self.orders).maker;
        let lonely = self.orders.iter().filter(|order| order.maker == maker).count() == 1;
        let mut world = self.world();
        match what {
            0..=34 => world.mine(false),
            35..=39 => world.reorg(),
            40..=43 => world.spike(),
            44..=47 => world.evict(),
            48..=49 if lonely => world.impoverish(maker),
            _ => {}
        }
    }

    /// A turn of some account: undisturbed, killed at an await, or with a failing statement.
    async fn relay(&mut self) -> Result<(), Broken> {
        let at = usize::try_from(self.rng.next() % 97).unwrap_or(0) % self.accounts.len();
        let (what, polls, statement) =
            (self.rng.between(0, 99), self.rng.between(1, 60), self.rng.between(1, 6));
        let Some(lease) = self.accounts[at].lease.clone() else { return Ok(()) };
        let gated = self.gated().await?;
        let result = match what {
            0..=54 => Some(self.accounts[at].relayer.turn(&lease).await),
            55..=84 => {
                self.outcome.disturbed += 1;
                let killed = polled(pin!(self.accounts[at].relayer.turn(&lease)), polls).await;
                self.accounts[at].relayer = self.relayer(&self.accounts[at].signer)?;
                killed
            }
            _ => {
                self.outcome.disturbed += 1;
                self.database.fail_at(statement).await?;
                let result = self.accounts[at].relayer.turn(&lease).await;
                self.database.fail_at(0).await?;
                Some(result)
            }
        };
        if let Some(Err(error)) = result {
            self.outcome.errors += 1;
            if let RelayError::Undecodable { .. } | RelayError::UnknownState(_) = error {
                return Err(error.into());
            }
        }
        self.check_gated(&gated).await
    }

    /// Takes an account out of service, permanently as far as the others know, or back into service.
    async fn change_service(&mut self) -> Result<(), Broken> {
        let at = usize::try_from(self.rng.next() % 97).unwrap_or(0) % self.accounts.len();
        let in_service = self.accounts.iter().filter(|account| account.lease.is_some()).count();
        let signer = self.accounts[at].signer.clone();
        match self.accounts[at].lease.take() {
            None => self.accounts[at].lease = Some(self.lease(&signer).await?),
            Some(held) if in_service > 1 && self.rng.chance(400) => {
                self.outcome.disturbed += 1;
                let gone = "delete from lease where name = $1";
                sqlx::query(gone).bind(&held.name).execute(&self.database.admin).await?;
                let aged =
                    "update tx_attempt set created_at = created_at - interval '1 hour' where signer = $1";
                sqlx::query(aged).bind(signer.address().as_slice()).execute(&self.database.admin).await?;
                self.make_due().await?;
            }
            held => self.accounts[at].lease = held,
        }
        Ok(())
    }

    /// Simulates passing time: postponed commands are due, and accounts that could sign long ago may not be able to
    /// now.
    async fn make_due(&self) -> Result<(), Broken> {
        let sql = "update chain_command set not_before = now() where state = 'pending';
                   update relayer_account set able_at = null";
        sqlx::raw_sql(sql).execute(&self.database.admin).await?;
        Ok(())
    }

    /// An account that is back in service may rebuild a transaction that was abandoned.
    async fn note_abandoned(&mut self) -> Result<(), Broken> {
        let given_up: Vec<Vec<u8>> = sqlx::query_scalar(
            "select command.entity
             from nonce_slot slot
             join slot_command carried using (chain_id, signer, nonce)
             join chain_command command on command.id = carried.command_id
             where slot.state = 'abandoned' and slot.kind = 'anchor'",
        )
        .fetch_all(&self.database.admin)
        .await?;
        self.abandoned_anchors.extend(given_up.iter().map(|entity| B256::from_slice(entity)));
        Ok(())
    }

    /// Acts as the engine: inserts an order's next command once the one before is done.
    async fn leave_commands(&mut self) -> Result<(), Broken> {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "select reference, count(*) filter (where state = 'done'), count(*) filter (where state = 'failed')
             from chain_command group by reference",
        )
        .fetch_all(&self.database.admin)
        .await?;
        let states: BTreeMap<String, (i64, i64)> =
            rows.into_iter().map(|(reference, done, failed)| (reference, (done, failed))).collect();
        let mut new = Vec::new();
        for order in &mut self.orders {
            let reference = order.id.to_string();
            let (done, failed) = states.get(&reference).copied().unwrap_or_default();
            if failed == 0
                && usize::try_from(done).is_ok_and(|done| done == order.left)
                && let Some(command) = order.script.get(order.left)
            {
                order.left += 1;
                new.push(NewChainCommand {
                    chain_id: self.config.chain_id.cast_signed(),
                    intent_id: reference.clone(),
                    reference,
                    entity: entity_of(command).to_owned(),
                    escrow: self.config.deployment.escrow.to_string(),
                    command: command.clone(),
                    trace: None,
                });
            }
        }
        let mut tx = self.database.admin.begin().await?;
        insert_batch::insert(&mut tx, &InsertBatch { commands: &new, ..InsertBatch::default() }).await?;
        Ok(tx.commit().await?)
    }

    /// Ends all disturbances: everything must be completed.
    async fn settle_down(&mut self) -> Result<(), Broken> {
        self.world().failing = 0;
        for at in 0..self.accounts.len() {
            if self.accounts[at].lease.is_none() {
                self.accounts[at].lease = Some(self.lease(&self.accounts[at].signer).await?);
            }
        }
        let mut last = String::new();
        for _ in 0..ROUNDS_TO_THE_END {
            self.note_abandoned().await?;
            self.leave_commands().await?;
            self.make_due().await?;
            for account in &mut self.accounts {
                let Some(lease) = account.lease.clone() else { continue };
                if let Err(error) = account.relayer.turn(&lease).await {
                    last = error.to_string();
                }
            }
            self.world().mine(true);
            self.index().await?;
            self.lift_gates(1_000).await?;
            if self.is_done().await? {
                return Ok(());
            }
        }
        let stuck = self.stuck().await?;
        Err(format!("not at the end after {ROUNDS_TO_THE_END} rounds: {stuck}; the last error: {last}")
            .into())
    }

    async fn is_done(&self) -> Result<bool, Broken> {
        let open: i64 = sqlx::query_scalar(
            "select (select count(*) from chain_command where state in ('pending', 'sent'))
                  + (select count(*) from nonce_slot where state in ('signed', 'broadcast'))
                  + (select count(*) from nonce_slot where state = 'mined' and not judged)",
        )
        .fetch_one(&self.database.admin)
        .await?;
        let failed: Vec<String> =
            sqlx::query_scalar("select reference from chain_command where state = 'failed'")
                .fetch_all(&self.database.admin)
                .await?;
        let all_left =
            |order: &Order| order.left == order.script.len() || failed.contains(&order.id.to_string());
        let none_waits = self.world().waiting.is_empty();
        Ok(open == 0 && none_waits && self.orders.iter().all(all_left))
    }

    /// The first block, as the indexer begins with it.
    async fn begin(&self) -> Result<(), Broken> {
        let (number, hash) = {
            let world = self.world();
            (BlockNumber(world.head().number), world.head().hash)
        };
        let cursor = Cursor {
            chain_id: self.config.chain_id,
            head_number: number,
            head_hash: hash,
            final_number: number,
            facts_number: number,
            version: 0,
            halted: None,
        };
        let row = BlockRow { number, hash, parent: B256::ZERO, timestamp: 0, verified_by: "sim" };
        let mut tx = self.database.admin.begin().await?;
        store::insert_cursor(&mut tx, &cursor, &row).await?;
        Ok(tx.commit().await?)
    }

    /// Acts as the indexer: goes back to the fork, then reads some blocks.
    async fn index(&self) -> Result<(), Broken> {
        let chain_id = self.config.chain_id;
        let mut conn = self.database.admin.acquire().await?;
        let cursor = store::find_cursor(&mut conn, chain_id).await?;
        let Some(mut cursor) = cursor else { return Err("the cursor is gone".into()) };
        let known = store::known_hashes_below(&mut conn, chain_id, cursor.head_number + 1, 200).await?;
        drop(conn);
        let fork = {
            let world = self.world();
            known
                .iter()
                .find(|(number, hash)| world.by_number(number.0).is_some_and(|b| b.hash == *hash))
                .copied()
        };
        let Some((number, hash)) = fork else { return Err("no block is shared with the chain".into()) };
        if number < cursor.head_number {
            let mut tx = self.database.admin.begin().await?;
            store::unwind_to(&mut tx, &cursor, number, hash).await?;
            tx.commit().await?;
            let (version, facts_number) = (cursor.version + 1, cursor.facts_number.min(number));
            cursor = Cursor { head_number: number, head_hash: hash, facts_number, version, ..cursor };
        }
        let (blocks, head, finalized): (Vec<Block>, u64, u64) = {
            let world = self.world();
            let from = usize::try_from(cursor.head_number.0 + 1).unwrap_or(usize::MAX);
            let blocks = world.blocks.get(from..).unwrap_or_default().to_vec();
            (blocks, world.head().number, world.finalized)
        };
        for block in blocks {
            cursor = self.read(cursor, &block, head, finalized).await?;
        }
        Ok(())
    }

    async fn read(&self, from: Cursor, block: &Block, head: u64, finalized: u64) -> Result<Cursor, Broken> {
        let deep = (head + 1).saturating_sub(self.config.confirmations);
        let to = Cursor {
            head_number: BlockNumber(block.number),
            head_hash: block.hash,
            final_number: BlockNumber(finalized.min(block.number)).max(from.final_number),
            facts_number: BlockNumber(deep.min(block.number)).max(from.facts_number),
            ..from.clone()
        };
        let (number, hash) = (block.number, block.hash);
        let parent = block.parent;
        let row =
            BlockRow { number: BlockNumber(number), hash, parent, timestamp: number, verified_by: "sim" };
        let logs: Vec<LogRow> =
            block.effects.iter().zip(0..).map(|(reported, index)| log(block, reported, index)).collect();
        let mut tx = self.database.admin.begin().await?;
        store::record_blocks(&mut tx, &from, &to, &[row], &logs).await?;
        store::publish_events(&mut tx, from.chain_id, from.facts_number, to.facts_number).await?;
        tx.commit().await?;
        Ok(Cursor { version: from.version + 1, ..to })
    }
}

fn log(
    block: &Block,
    (effect, seq, tx_hash): &(super::contracts::Effect, u64, B256),
    log_index: u64,
) -> LogRow {
    LogRow {
        block_hash: block.hash,
        log_index,
        block_number: BlockNumber(block.number),
        timestamp: block.number,
        tx_hash: *tx_hash,
        contract: effect.contract,
        event: effect.event,
        entity: effect.entity,
        seq: *seq,
        fact: effect.kind.map(
            |kind| json!({"kind": kind, "timelock": 1, "amount": "1", "payout_ref": "0x", "receiver": "0x"}),
        ),
        deposit: None,
    }
}

fn digest(seed: u64, what: &str, at: u64) -> B256 {
    keccak256([what.as_bytes(), &seed.to_be_bytes(), &at.to_be_bytes()].concat())
}

fn account(seed: u64, what: &str, at: u64) -> Address {
    Address::from_word(digest(seed, what, at))
}

fn deployment(seed: u64, signers: &[PrivateKeySigner]) -> Deployment {
    let at = |what| account(seed, what, 0);
    Deployment {
        chain_id: 1 + seed % 1_000_000_000,
        permit: at("permit"),
        escrow: at("escrow"),
        settler: at("settler"),
        anchor: at("anchor"),
        payouts: at("payouts"),
        relayers: signers.iter().map(PrivateKeySigner::address).collect(),
        ..Deployment::default()
    }
}

pub fn entity_of(command: &ChainCommand) -> &str {
    match command {
        ChainCommand::Create(create) => &create.entity,
        ChainCommand::Swap(swap) => &swap.entity,
        ChainCommand::Transfer(transfer) => &transfer.entity,
        ChainCommand::Anchor { content_hash } => content_hash,
        ChainCommand::Fill { entity, .. }
        | ChainCommand::Settle { entity, .. }
        | ChainCommand::Cancel { entity }
        | ChainCommand::ReturnFilled { entity, .. }
        | ChainCommand::Refund { entity } => entity,
    }
}

/// Orders of some makers with consecutive permits, payouts and anchors.
fn orders(seed: u64, rng: &mut Rng) -> Vec<Order> {
    let makers = rng.between(2, 6);
    let mut permits: BTreeMap<Address, u64> = BTreeMap::new();
    let mut orders = Vec::new();
    for at in 0..rng.between(8, 30) {
        let maker = account(seed, "maker", rng.between(0, makers));
        let id = digest(seed, "order", at);
        let kind = rng.between(0, 9);
        let script = match kind {
            0..=5 => {
                let nonce = permits.entry(maker).or_default();
                *nonce += 1;
                pulling(seed, id, maker, *nonce - 1, kind)
            }
            6 => vec![ChainCommand::Transfer(Box::new(transfer(seed, id)))],
            _ => vec![ChainCommand::Anchor { content_hash: id.to_string() }],
        };
        let maker = if kind <= 5 { maker } else { Address::ZERO };
        orders.push(Order { id, maker, script, left: 0 });
    }
    orders
}

fn pulling(seed: u64, id: B256, maker: Address, nonce: u64, kind: u64) -> Vec<ChainCommand> {
    let (entity, word) = (id.to_string(), B256::repeat_byte(7).to_string());
    let [solver, token, receiver] =
        ["solver", "token", "receiver"].map(|what| account(seed, what, 0).to_string());
    let (maker, amount) = (maker.to_string(), "1".to_owned());
    let permit = Some(PermitArgs {
        amount: amount.clone(),
        nonce: nonce.to_string(),
        deadline: u64::MAX,
        signature: format!("0x{}", "11".repeat(65)),
    });
    if kind == 5 {
        let output = OutputArgs { token: token.clone(), receiver, amount: amount.clone() };
        let (lock_by, terms) = (u64::MAX, word);
        let swap = SwapCommand { entity, maker, solver, token, amount, lock_by, terms, output, permit };
        return vec![ChainCommand::Swap(Box::new(swap))];
    }
    let create = CreateCommand {
        entity: entity.clone(),
        maker,
        solver,
        token,
        amount,
        lock_by: u64::MAX,
        fill_deadline: u64::MAX - 1,
        timelock: u64::MAX,
        hashlock: word.clone(),
        terms: word.clone(),
        permit,
    };
    let create = ChainCommand::Create(Box::new(create));
    if kind == 4 {
        return vec![create, ChainCommand::Cancel { entity }];
    }
    let fill = ChainCommand::Fill { entity: entity.clone(), payout_ref: word.clone() };
    vec![create, fill, ChainCommand::Settle { entity, preimage: Some(word) }]
}

fn transfer(seed: u64, id: B256) -> TransferCommand {
    let [payer, receiver, token] =
        ["solver", "receiver", "token"].map(|what| account(seed, what, 0).to_string());
    TransferCommand {
        entity: id.to_string(),
        payer,
        receiver,
        token,
        amount: "1".into(),
        not_after: u64::MAX,
    }
}
