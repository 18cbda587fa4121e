//! One seed: a chain, its endpoints, an indexer under every kind of disturbance, and the checks at the end.

use super::Broken;
use super::chain::{ENTITIES, LOCKED_AMOUNT, LOCKED_TOKEN, SimChain};
use super::node::{Sim, SimNode, Weaknesses};
use super::oracle::{self, Consumed};
use super::rng::Rng;
use crate::config::ChainConfig;
use crate::gate::{PayoutGate, Wait};
use crate::indexer::{IndexError, Indexer, Step};
use alloy::primitives::B256;
use dvp_sandbox::embedded::{EmbeddedError, TestDatabase};
use dvp_store::PgPool;
use dvp_store::StoreError;
use dvp_store::chain::Cursor;
use dvp_store::database::lease::Lease;
use dvp_store::database::pool::pool_options;
use parking_lot::Mutex;
use sqlx::Connection as _;
use std::collections::{HashSet, VecDeque};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use uuid::Uuid;

/// The service's own schema, and a trigger that makes a chosen writing statement fail.
const SABOTAGE: &str = "
create function fail_at() returns trigger language plpgsql as $$
declare left_over int := coalesce(nullif(current_setting('dvp_sim.fail_at', true), ''), '0')::int;
begin
    if left_over > 0 then
        perform set_config('dvp_sim.fail_at', (left_over - 1)::text, false);
        if left_over = 1 then raise exception 'sabotage'; end if;
    end if;
    return null;
end $$;
create trigger sabotage after insert or update or delete on chain_cursor execute function fail_at();
create trigger sabotage after insert or update or delete on chain_block execute function fail_at();
create trigger sabotage after insert or update or delete on chain_log execute function fail_at();
create trigger sabotage after insert or update or delete on chain_fact execute function fail_at();
create trigger sabotage after insert or update or delete on chain_command execute function fail_at();
";
const LEASE: Duration = Duration::from_secs(3_600);
/// The number of anchors that the engine may wait for: the first ones.
const ANCHORS: u64 = 24;
/// Steps after the last change, within which the indexer must be at the head.
const STEPS_TO_THE_HEAD: u32 = 3_000;
/// Steps at the head, after which every fill that may pass the gate has passed.
const STEPS_TO_THE_GATE: u32 = 20;

/// A database for simulated chains, one after the other. Several of these may run at once.
pub struct SimDatabase {
    /// The indexer's pool: one connection, so that the failing statement can be chosen.
    pub(super) pool: PgPool,
    /// The simulator's own pool.
    pub(super) admin: PgPool,
    name: String,
    _database: TestDatabase,
}

#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub steps: u32,
    pub calls: u64,
    pub blocks: u64,
    pub reorgs: u32,
    pub events: usize,
    /// Steps that ended with an error.
    pub errors: u32,
    /// Steps dropped at an await, connections cut, statements failed, owners replaced.
    pub disturbed: u32,
    pub unwound: u32,
    pub repaired: u32,
    /// The chain violated its finality and was halted.
    pub halted: bool,
}

impl SimDatabase {
    pub async fn create() -> Result<Self, EmbeddedError> {
        let database = TestDatabase::try_create().await?;
        let name = format!("sim-{}", Uuid::new_v4().simple());
        let admin = database.pool().clone();
        sqlx::raw_sql(SABOTAGE).execute(&admin).await?;
        let options = database.connect_options().application_name(&name);
        let pool = pool_options().max_connections(1).connect_with(options).await?;
        Ok(Self { pool, admin, name, _database: database })
    }

    /// The pool takes a connection that was just used without a ping: one that an earlier step lost fails here first.
    pub(super) async fn fail_at(&self, statement: u64) -> Result<(), sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        while let Err(lost) = connection.ping().await {
            tracing::debug!(%lost, "a connection was cut");
            drop(connection);
            connection = self.pool.acquire().await?;
        }
        sqlx::query("select set_config('dvp_sim.fail_at', $1, false)")
            .bind(statement.to_string())
            .execute(&mut *connection)
            .await?;
        Ok(())
    }

    /// Returns when the connections' backends have ended: later statements see it at once, not at random.
    async fn cut_connections(&self) {
        let cut = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = $1";
        let _cut = sqlx::query(cut).bind(&self.name).execute(&self.admin).await;
    }

    pub(super) async fn lease(&self, name: &str) -> Result<Lease, Broken> {
        let lease = Lease::acquire(&self.admin, name, Uuid::new_v4(), LEASE).await?;
        Ok(lease.ok_or("the lease is taken")?)
    }

    pub(super) async fn empty(&self) -> Result<(), sqlx::Error> {
        let empty = "truncate chain_cursor, chain_block, chain_log, chain_fact, chain_command, relayer_account, nonce_slot,
                     slot_command, tx_attempt, lease cascade";
        sqlx::query(empty).execute(&self.admin).await?;
        Ok(())
    }
}

/// Runs one seed.
///
/// # Errors
/// The violated condition, as text.
pub async fn run_seed(database: &SimDatabase, seed: u64) -> Result<Outcome, String> {
    let mut run = Run::new(database, seed).await.map_err(|error| error.to_string())?;
    match Box::pin(run.live()).await {
        Ok(()) => Ok(run.outcome),
        Err(broken) => Err(format!("{broken}\n  {}", run.scene())),
    }
}

struct Run<'a> {
    database: &'a SimDatabase,
    rng: Rng,
    sim: Arc<Mutex<Sim>>,
    config: ChainConfig,
    endpoints: usize,
    indexer: Indexer<SimNode>,
    lease: Lease,
    consumed: Consumed,
    /// The finality that fills require.
    wait: Wait,
    /// Entities with commands.
    ours: HashSet<B256>,
    /// Entities without commands, so far.
    foreign: VecDeque<Entity>,
    violates: bool,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    async fn new(database: &'a SimDatabase, seed: u64) -> Result<Self, Broken> {
        database.empty().await?;
        let mut rng = Rng::new(seed);
        let chain_id = 1 + seed % 1_000_000_000;
        let blocks = if rng.chance(300) { rng.between(80, 320) } else { rng.between(6, 14) };
        let chain = SimChain::new(seed, chain_id, blocks);
        let endpoints = usize::try_from(rng.between(1, 3)).unwrap_or(1);
        let weaknesses = (0..endpoints).map(|_| Weaknesses::draw(&mut rng)).collect();
        let wait =
            *Rng::new(seed ^ 0x6a7e).pick(&[Wait::Depth(1), Wait::Depth(4), Wait::Safe, Wait::Finalized]);
        let config = ChainConfig {
            name: format!("sim {seed}"),
            confirmations: rng.between(1, 4),
            finality_margin: *rng.pick(&[0, 0, 3]),
            range_margin: 32,
            finality_depth: rng.chance(50).then_some(64),
            payout_gate: PayoutGate::always(wait),
            poll_interval: Duration::ZERO,
            ..ChainConfig::development("http://simulated", chain.deployment.clone())
        };
        let (mut ours, mut foreign) = (HashSet::new(), VecDeque::new());
        let mut known = Rng::new(seed ^ 0xc0de);
        for entity in entities(&chain) {
            if known.chance(800) {
                entity.insert_commands(&database.admin, chain_id).await?;
                ours.insert(entity.id);
            } else {
                foreign.push_back(entity);
            }
        }
        let sim = Arc::new(Mutex::new(Sim::new(chain, weaknesses, Rng::new(seed ^ 0x51))));
        let lease = database.lease(&format!("indexer:{chain_id}")).await?;
        let indexer = indexer(database, &config, &sim, endpoints)?;
        let violates = rng.chance(40);
        let (consumed, outcome) = (Consumed::default(), Outcome::default());
        Ok(Self {
            database,
            rng,
            sim,
            config,
            endpoints,
            indexer,
            lease,
            consumed,
            wait,
            ours,
            foreign,
            violates,
            outcome,
        })
    }

    async fn live(&mut self) -> Result<(), Broken> {
        let disturbed_steps = self.rng.between(50, 140);
        for _ in 0..disturbed_steps {
            self.disturbed_step().await?;
            if self.outcome.halted {
                break;
            }
        }
        self.reach_the_head().await?;
        self.final_questions().await
    }

    /// A description of the scene, to understand a failure.
    fn scene(&self) -> String {
        let sim = self.sim.lock();
        let now = sim.chain.now();
        let (tip, finalized, violated) = (now.tip().head.number.0, now.finalized, sim.chain.violated);
        let ChainConfig { confirmations, finality_margin, finality_depth, .. } = &self.config;
        let endpoints = sim.weaknesses();
        format!(
            "tip {tip}, finalized {finalized}, violated {violated}, confirmations {confirmations}, margin \
             {finality_margin}, depth {finality_depth:?}, {endpoints:?}, {:?}",
            self.outcome
        )
    }

    async fn cursor(&self) -> Result<Option<Cursor>, Broken> {
        oracle::cursor(&self.database.admin, self.config.chain_id).await
    }

    /// A step that is undisturbed, dropped, deprived of its connection or its lease, or whose database fails.
    async fn disturbed_step(&mut self) -> Result<(), Broken> {
        if self.violates && self.rng.chance(30) {
            self.sim.lock().chain.violate();
            self.violates = false;
        }
        if self.rng.chance(40) {
            self.indexer = indexer(self.database, &self.config, &self.sim, self.endpoints)?;
        }
        if self.rng.chance(30) {
            self.a_foreign_entity_becomes_ours().await?;
        }
        let what = self.rng.between(0, 99);
        let polls = self.rng.between(1, 70);
        let result = match what {
            0..=54 => Some(self.indexer.step(&self.lease).await),
            55..=82 => self.interrupted(polls, what < 75).await,
            83..=95 => Some(self.failing_statement().await?),
            _ => Some(self.another_owner().await?),
        };
        self.outcome.disturbed += u32::from(what > 54);
        self.take(result)?;
        if self.rng.chance(300) {
            self.consume().await?;
        }
        if self.rng.chance(300) {
            self.questions(false).await?;
        }
        Ok(())
    }

    /// Runs a step until it was polled this often; then it is dropped, or continues without its connection.
    async fn interrupted(&mut self, polls: u64, is_dropped: bool) -> Option<Result<Step, IndexError>> {
        let mut step = pin!(self.indexer.step(&self.lease));
        let ended = polled(step.as_mut(), polls).await;
        if ended.is_some() || is_dropped {
            return ended;
        }
        self.database.cut_connections().await;
        Some(step.await)
    }

    /// Commands are restored from a backup, and the service is started again.
    async fn a_foreign_entity_becomes_ours(&mut self) -> Result<(), Broken> {
        let Some(entity) = self.foreign.pop_front() else { return Ok(()) };
        entity.insert_commands(&self.database.admin, self.config.chain_id).await?;
        self.ours.insert(entity.id);
        self.indexer = indexer(self.database, &self.config, &self.sim, self.endpoints)?;
        Ok(())
    }

    async fn failing_statement(&mut self) -> Result<Result<Step, IndexError>, Broken> {
        let at = self.rng.between(1, 7);
        self.database.fail_at(at).await?;
        let result = self.indexer.step(&self.lease).await;
        self.database.fail_at(0).await?;
        Ok(result)
    }

    /// Another owner acquires the lease: from then on the indexer's writes must be refused.
    async fn another_owner(&mut self) -> Result<Result<Step, IndexError>, Broken> {
        // Waits for the commit of a dropped step: it holds the lease's row.
        self.lease.release(&self.database.admin).await?;
        let next = self.database.lease(&format!("indexer:{}", self.config.chain_id)).await?;
        let before = self.cursor().await?;
        let result = self.indexer.step(&self.lease).await;
        let wrote = matches!(result, Ok(Step::Advanced | Step::Unwound | Step::Repaired));
        let after = self.cursor().await?;
        // A range that must be shorter counts as progress; the first cursor needs no lease.
        if before.is_some() && before != after {
            return Err(format!("wrote without the lease: {result:?}, {before:?} became {after:?}").into());
        }
        self.lease = next;
        Ok(if wrote { Ok(Step::Idle) } else { result })
    }

    fn take(&mut self, result: Option<Result<Step, IndexError>>) -> Result<(), Broken> {
        self.outcome.steps += 1;
        match result {
            Some(Ok(Step::Unwound)) => self.outcome.unwound += 1,
            Some(Ok(Step::Repaired)) => self.outcome.repaired += 1,
            Some(Ok(Step::Advanced | Step::Idle)) | None => {}
            Some(Err(IndexError::Halted(halted))) => {
                if !self.sim.lock().chain.violated {
                    return Err(format!("halted without a reason: {halted:?}").into());
                }
                self.outcome.halted = true;
            }
            Some(Err(IndexError::Store(StoreError::Corrupt { table, reason }))) => {
                return Err(format!("table {table}: {reason}").into());
            }
            Some(Err(_)) => self.outcome.errors += 1,
        }
        Ok(())
    }

    /// The quiet phase: the indexer must reach the head.
    async fn reach_the_head(&mut self) -> Result<(), Broken> {
        let highest = self.cursor().await?.map_or(0, |cursor| cursor.head_number.0);
        {
            let mut sim = self.sim.lock();
            sim.quiet = true;
            let tip = sim.chain.now().tip().head.number.0;
            let more = highest.saturating_sub(tip) + 4;
            sim.chain.extend(more);
        }
        let tip = self.sim.lock().chain.now().tip().head.hash;
        let mut last = String::new();
        for _ in 0..STEPS_TO_THE_HEAD {
            if self.outcome.halted {
                return Ok(());
            }
            let result = self.indexer.step(&self.lease).await;
            if let Err(error) = &result {
                last = error.to_string();
            }
            let idle = matches!(result, Ok(Step::Idle));
            self.take(Some(result))?;
            if idle && self.cursor().await?.is_some_and(|cursor| cursor.head_hash == tip) {
                return self.reach_the_gate().await;
            }
        }
        Err(format!("not at the head after {STEPS_TO_THE_HEAD} steps; the last error: {last}").into())
    }

    /// Endpoints that disagreed are queried again after some steps.
    async fn reach_the_gate(&mut self) -> Result<(), Broken> {
        for _ in 0..STEPS_TO_THE_GATE {
            let result = self.indexer.step(&self.lease).await;
            self.take(Some(result))?;
        }
        Ok(())
    }

    async fn consume(&mut self) -> Result<(), Broken> {
        let about = (self.config.chain_id, self.wait);
        oracle::consume(&self.database.admin, &self.sim, about, &mut self.consumed).await
    }

    async fn questions(&self, whole: bool) -> Result<(), Broken> {
        let snapshot = oracle::snapshot(&self.database.admin, self.config.chain_id).await?;
        let Some(snapshot) = snapshot else { return Ok(()) };
        oracle::rows_are_of_one_branch(&self.sim, &snapshot, whole)?;
        oracle::final_is_final(&self.sim.lock().chain, &snapshot.cursor)
    }

    async fn final_questions(&mut self) -> Result<(), Broken> {
        let Some(cursor) = self.cursor().await? else { return Err("nothing was read".into()) };
        self.consume().await?;
        let pool = &self.database.admin;
        if self.outcome.halted {
            self.questions(false).await?;
            let gone = oracle::final_is_gone(&self.sim.lock().chain, &cursor);
            return if gone { Ok(()) } else { Err("halted though its final block is there".into()) };
        }
        self.questions(true).await?;
        let (consumed, ours) = (&self.consumed, &self.ours);
        oracle::facts_are_final_or_retracted(pool, &self.sim, &cursor, consumed, ours).await?;
        oracle::gates_are_lifted(pool, &cursor, self.wait).await?;
        oracle::commands_follow_events(pool, &cursor).await?;
        let sim = self.sim.lock();
        let (calls, blocks, reorgs) = (sim.calls, sim.chain.now().tip().head.number.0, sim.chain.reorgs);
        let events = sim.chain.logs_up_to(cursor.head_hash).map_or(0, |logs| logs.len());
        drop(sim);
        self.outcome = Outcome { calls, blocks, reorgs, events, ..self.outcome.clone() };
        Ok(())
    }
}

/// Runs a step until it was polled this often.
pub(super) async fn polled<F: Future>(mut step: Pin<&mut F>, polls: u64) -> Option<F::Output> {
    let mut polled = 0;
    std::future::poll_fn(|context| {
        polled += 1;
        if polled > polls { Poll::Ready(None) } else { step.as_mut().poll(context).map(Some) }
    })
    .await
}

fn indexer(
    database: &SimDatabase,
    config: &ChainConfig,
    sim: &Arc<Mutex<Sim>>,
    endpoints: usize,
) -> Result<Indexer<SimNode>, Broken> {
    let nodes = (0..endpoints).map(|at| SimNode { sim: Arc::clone(sim), at }).collect();
    Ok(Indexer::over(database.pool.clone(), config.clone(), nodes)?)
}

/// An entity that the engine may wait for.
struct Entity {
    id: B256,
    name: String,
    kinds: &'static [&'static str],
}

/// All settlements and payouts, and some anchors.
fn entities(chain: &SimChain) -> Vec<Entity> {
    let entity = |kind: &str, at: u64, kinds| Entity {
        id: chain.entity(kind, at),
        name: format!("{kind} {at}"),
        kinds,
    };
    let mut all = Vec::new();
    for at in (0_u64..).take(ENTITIES) {
        all.push(entity("settlement", at, &["create", "fill", "settle"]));
        all.push(entity("payout", at, &["transfer"]));
    }
    all.extend((0..ANCHORS).map(|at| entity("anchor", at, &["anchor"])));
    all
}

impl Entity {
    /// Inserts every command that may follow for the entity, as the engine does.
    async fn insert_commands(&self, pool: &PgPool, chain_id: u64) -> Result<(), sqlx::Error> {
        sqlx::query(
            "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload)
             select $1, $2, $2, $3, decode(repeat('22', 20), 'hex'), kind, case kind when 'create' then $5 else '{}' end
             from unnest($4::text[]) as kind",
        )
        .bind(chain_id.cast_signed())
        .bind(&self.name)
        .bind(self.id.as_slice())
        .bind(self.kinds)
        .bind(serde_json::json!({"token": LOCKED_TOKEN, "amount": LOCKED_AMOUNT.to_string()}))
        .execute(pool)
        .await?;
        Ok(())
    }
}
