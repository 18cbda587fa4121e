//! Two chains that keep what happened on them, whatever the database has forgotten, and their indexer. They follow the
//! contracts' rules: each step once, and only after the one before.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use dvp_core::chain::expected::goal;
use dvp_core::chain::{
    ChainAnswer, ChainHead, Confirmation, SignedHash, WalletFacts, WalletKey, WalletReader, WalletReading,
};
use dvp_domain::chain::{BlockNumber, ChainCommand, ChainFact};
use dvp_store::chain::{publish_events, publish_late_events};
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};

use crate::chain::report;
use crate::dice::Dice;
use crate::market::{BASE_ID, CHAIN_ID};

/// What the contracts of the two chains have of an order.
#[derive(Debug, Default)]
pub(super) struct Settlement {
    created: bool,
    filled: bool,
    released: bool,
    pub gone: bool,
    /// The output that was paid on a chain.
    pub paid: Option<String>,
    anchored: bool,
    deposited: u128,
    /// The user has no funds, or deposits nothing.
    refuses: bool,
}

impl Settlement {
    pub(super) const fn is_locked(&self) -> bool {
        self.created && !self.gone && !self.released
    }

    pub(super) const fn is_filled(&self) -> bool {
        self.filled
    }

    /// The user's input is gone for good.
    pub(super) const fn is_taken(&self) -> bool {
        self.released
    }
}

enum Log {
    Fact(ChainFact),
    /// Of the gate: its depositor, and the total after it.
    Deposit(String, u128),
}

struct Event {
    chain: u64,
    entity: Vec<u8>,
    log: Log,
    at: DateTime<Utc>,
}

/// The wallets as the service reads them: each has enough money, and the nonce that its only permit leaves.
#[derive(Debug, Default)]
pub(super) struct Wallets(Mutex<HashSet<(u64, String)>>);

impl WalletReader for Wallets {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(async { Ok(HEAD) })
    }

    fn confirm<'a>(&'a self, _: &'a str, _: &'a SignedHash) -> ChainAnswer<'a, Confirmation> {
        Box::pin(async { Ok(Confirmation::NoContract) })
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        let used = self.0.lock().unwrap();
        let is_used = |key: &WalletKey| used.contains(&(key.chain_id.unsigned_abs(), key.owner.clone()));
        let facts =
            |key| WalletFacts { nonce: is_used(key).into(), balance: u128::MAX, allowance: u128::MAX };
        let facts = wallets.iter().map(facts).collect();
        Box::pin(async { Ok(WalletReading { head: HEAD, facts }) })
    }
}

const HEAD: ChainHead = ChainHead { number: BlockNumber(1), hash: [1; 32] };

impl Event {
    /// Stores it as read, of the block with this number.
    async fn insert(&self, conn: &mut PgConnection, number: usize) {
        let (fact, deposit) = match &self.log {
            Log::Fact(fact) => (Some(Json(fact)), None),
            Log::Deposit(depositor, total) => (None, Some((depositor, total.to_string()))),
        };
        sqlx::query(
            "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                    entity, seq, fact, deposit) \
             select $1, hash, 0, $2, $3, hash, decode(repeat('dd', 20), 'hex'), 'Event', $4, $2, $5, \
                    case when $6::text is not null then jsonb_build_object('depositor', $6, 'total', $7::text) end \
             from (select sha256(convert_to($2::text, 'utf8'))) h (hash)",
        )
        .bind(i64::try_from(self.chain).unwrap())
        .bind(i64::try_from(number).unwrap())
        .bind(self.at)
        .bind(&self.entity)
        .bind(fact)
        .bind(deposit.as_ref().map(|(depositor, _)| *depositor))
        .bind(deposit.as_ref().map(|(_, total)| total))
        .execute(conn)
        .await
        .unwrap();
    }
}

pub(super) struct World {
    dice: Dice,
    pub wallets: Arc<Wallets>,
    settlements: HashMap<Vec<u8>, Settlement>,
    /// All events. The number of an event's block is its position here.
    events: Vec<Event>,
    /// A chain whose indexer stands still for so many turns.
    halted: Option<(u64, u64)>,
}

/// A command that waits.
type Row = (i64, i64, Vec<u8>, Json<ChainCommand>);

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let (wallets, settlements) = (Arc::default(), HashMap::new());
        Self { dice: Dice::new(!seed), wallets, settlements, events: Vec::new(), halted: None }
    }

    /// The first blocks, before any order.
    pub(super) async fn begin(&self, pool: &PgPool) {
        for chain in [CHAIN_ID, BASE_ID] {
            sqlx::query(
                "with block as ( \
                     insert into chain_block (chain_id, hash, number, parent, block_time, verified_by) \
                     values ($1, sha256(''), 0, sha256(''), now(), 'test')) \
                 insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number) \
                 values ($1, 0, sha256(''), 0, 0)",
            )
            .bind(i64::try_from(chain).unwrap())
            .execute(pool)
            .await
            .unwrap();
        }
    }

    pub(super) fn of(&self, entity: &[u8]) -> Option<&Settlement> {
        self.settlements.get(entity)
    }

    /// Whether the database has all events.
    pub(super) async fn is_read(&self, pool: &PgPool) -> bool {
        let head = i64::try_from(self.events.len()).unwrap();
        let behind = "select count(*) from chain_cursor where facts_number < $1";
        let behind: i64 = sqlx::query_scalar(behind).bind(head).fetch_one(pool).await.unwrap();
        behind == 0
    }

    /// Users deposit, some commands are carried out, and the indexer reads some blocks. Returns whether anything was
    /// left to do.
    pub(super) async fn turn(&mut self, pool: &PgPool) -> bool {
        self.deposit(pool).await;
        let commands: Vec<Row> = sqlx::query_as(
            "select id, chain_id, entity, payload from chain_command where state in ('pending', 'sent') order by id",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        let before = self.events.len();
        for (id, chain, entity, Json(command)) in &commands {
            if self.dice.throw(3) != 0 {
                continue;
            }
            if let Err(code) = self.carry_out(u64::try_from(*chain).unwrap(), entity, command) {
                fail(pool, *id, entity, command, code).await;
            }
        }
        for chain in [CHAIN_ID, BASE_ID] {
            self.read(pool, chain).await;
        }
        self.events.len() > before || !self.is_read(pool).await
    }

    /// Users deposit the coin that their orders wait for, but for some.
    async fn deposit(&mut self, pool: &PgPool) {
        let waiting: Vec<(Vec<u8>, String, String)> = sqlx::query_as(
            "select entity, lower(terms #>> '{request,user}'), terms #>> '{input,amount}' from execution \
             where state_name = 'resting' and terms #>> '{plan,funding,from}' = 'deposit'",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        for (entity, user, amount) in waiting {
            let throw = self.dice.throw(20);
            let one = self.settlements.entry(entity.clone()).or_default();
            if one.deposited == 0 && !one.created && !one.released && !one.refuses {
                one.refuses = throw == 0;
                if throw > 9 {
                    one.deposited = amount.parse().unwrap();
                    let log = Log::Deposit(user, one.deposited);
                    self.events.push(Event { chain: CHAIN_ID, entity, log, at: Utc::now() });
                }
            }
        }
    }

    /// The indexer reads up to a block, as the service's does.
    async fn read(&mut self, pool: &PgPool, chain: u64) {
        let head = self.events.len();
        self.halted = match self.halted {
            Some((_, 0)) => None,
            Some((halted, left)) => Some((halted, left - u64::from(halted == chain))),
            None if self.dice.throw(200) == 0 => Some((chain, self.dice.throw(100))),
            None => None,
        };
        let is_halted = self.halted.is_some_and(|(halted, _)| halted == chain);
        if is_halted || self.dice.throw(3) != 0 {
            return;
        }
        let up_to = head - self.dice.index(5).min(head);
        let id = i64::try_from(chain).unwrap();
        let mut tx = pool.begin().await.unwrap();
        let read: i64 =
            sqlx::query_scalar("select facts_number from chain_cursor where chain_id = $1 for update")
                .bind(id)
                .fetch_one(&mut *tx)
                .await
                .unwrap();
        let from = usize::try_from(read).unwrap();
        for (n, event) in self.events.iter().enumerate().take(up_to).skip(from) {
            if event.chain == chain {
                event.insert(&mut tx, n + 1).await;
            }
        }
        if up_to > from {
            sqlx::query(
                "with moved as (update chain_cursor set facts_number = $2, final_number = $2, head_number = $2, \
                                       version = version + 1 where chain_id = $1) \
                 insert into chain_block (chain_id, hash, number, parent, block_time, verified_by) \
                 values ($1, sha256(convert_to($2::text, 'utf8')), $2, sha256(''), $3, 'test') on conflict do nothing",
            )
            .bind(id)
            .bind(i64::try_from(up_to).unwrap())
            .bind(self.events[up_to - 1].at)
            .execute(&mut *tx)
            .await
            .unwrap();
            let [after, up_to] = [from, up_to].map(|number| BlockNumber(number as u64));
            publish_events(&mut tx, chain, after, up_to).await.unwrap();
        }
        publish_late_events(&mut tx, chain).await.unwrap();
        // All blocks are as deep as the payout gate requires.
        sqlx::query("update chain_fact set gate = null where gate is not null")
            .execute(&mut *tx)
            .await
            .unwrap();
        sqlx::query(
            "insert into chain_status (chain_id, name, state, node_head, node_final) values ($1, $1::text, 'following', $2, $2) \
             on conflict on constraint chain_status_pkey do update set node_head = excluded.node_head, updated_at = clock_timestamp()",
        )
        .bind(id)
        .bind(i64::try_from(head).unwrap())
        .execute(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
    }

    /// `Err`: the relayer finds that it can never be carried out, each time it looks.
    fn carry_out(&mut self, chain: u64, entity: &[u8], command: &ChainCommand) -> Result<(), &'static str> {
        let (at, throw) = (Utc::now(), self.dice.throw(40));
        let now = u64::try_from(at.timestamp()).unwrap();
        let one = self.settlements.entry(entity.to_vec()).or_default();
        let is_held = one.is_locked();
        let mut events = Vec::new();
        let mut first = |is_done: &mut bool| {
            if !std::mem::replace(is_done, true) {
                events.push(goal(command));
            }
        };
        match command {
            ChainCommand::Create(_) if one.created => {}
            ChainCommand::Swap(_) if one.released => {}
            ChainCommand::Create(_) | ChainCommand::Swap(_) => {
                let (lock_by, amount) = match command {
                    ChainCommand::Create(create) => (create.lock_by, &create.amount),
                    ChainCommand::Swap(swap) => (swap.lock_by, &swap.amount),
                    _ => return Ok(()),
                };
                one.refuses |= throw == 0;
                if one.refuses || now > lock_by {
                    return Err("lock_rejected");
                }
                if command.deposit_by().is_some() {
                    let Some(left) = one.deposited.checked_sub(amount.parse().unwrap()) else {
                        return Ok(());
                    };
                    one.deposited = left;
                }
                if let ChainCommand::Swap(swap) = command {
                    one.paid = Some(swap.output.amount.clone());
                    first(&mut one.released);
                } else {
                    first(&mut one.created);
                }
            }
            ChainCommand::Fill { .. } if is_held => first(&mut one.filled),
            ChainCommand::Settle { .. } if is_held && one.filled => first(&mut one.released),
            ChainCommand::Cancel { .. } if is_held && !one.filled => first(&mut one.gone),
            ChainCommand::Transfer(transfer) if one.paid.is_none() => {
                if now > transfer.not_after {
                    return Err("transfer_rejected");
                }
                one.paid = Some(transfer.amount.clone());
                events.push(goal(command));
            }
            ChainCommand::Anchor { .. } => first(&mut one.anchored),
            ChainCommand::Fill { .. }
            | ChainCommand::Settle { .. }
            | ChainCommand::Cancel { .. }
            | ChainCommand::Transfer(_)
            | ChainCommand::ReturnFilled { .. }
            | ChainCommand::Refund { .. } => {}
        }
        // A deposit that is claimed is an event of the gate, too.
        let maker = command.deposit_by().map(|_| payer(command));
        if let (ChainCommand::Create(_) | ChainCommand::Swap(_), None, false) =
            (command, &maker, events.is_empty())
        {
            self.wallets.0.lock().unwrap().insert((chain, payer(command)));
        }
        let left = one.deposited;
        let claimed = maker.filter(|_| !events.is_empty()).map(|maker| Log::Deposit(maker, left));
        for log in claimed.into_iter().chain(events.into_iter().map(Log::Fact)) {
            self.events.push(Event { chain, entity: entity.to_vec(), log, at });
        }
        Ok(())
    }
}

/// The wallet that a lock or a swap takes from.
fn payer(command: &ChainCommand) -> String {
    match command {
        ChainCommand::Create(create) => create.maker.to_lowercase(),
        ChainCommand::Swap(swap) => swap.maker.to_lowercase(),
        _ => String::new(),
    }
}

async fn fail(pool: &PgPool, id: i64, entity: &[u8], command: &ChainCommand, code: &str) {
    let failed =
        "update chain_command set state = 'failed', done_at = now() where id = $1 and state = 'pending'";
    let failed = sqlx::query(failed).bind(id).execute(pool).await.unwrap();
    if failed.rows_affected() > 0 {
        let (command, code) = (command.kind().as_str().to_owned(), code.to_owned());
        report(pool, entity, &ChainFact::CommandFailed { command, code, message: "reverted".into() }).await;
    }
}
