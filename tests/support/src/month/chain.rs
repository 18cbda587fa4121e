//! The chain: wallets, the escrow, and the contracts' rules about locks.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use dvp_core::chain::expected::goal;
use dvp_core::ledger::reconciliation::wallets::TokenBalances;
use dvp_domain::chain::{ChainCommand, ChainFact};
use dvp_domain::reconcile::{EscrowState, OnChain, SettlerState};
use dvp_store::StoreError;
use sqlx::PgPool;
use sqlx::types::Json;

use crate::chain::report_all;
use crate::dice::Dice;
use crate::market::{CHAIN_ID, ESCROW, TOKEN, WETH};

/// The contract of an asset, if it is a token.
pub(super) fn token(asset: &str) -> Option<&'static str> {
    match asset {
        "USDC" => Some(TOKEN),
        "WETH" => Some(WETH),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Created,
    Filled,
    Ended,
}

#[derive(Debug)]
struct Lock {
    phase: Phase,
    maker: String,
    solver: String,
    token: String,
    amount: i128,
    fill_deadline: u64,
    timelock: u64,
}

#[derive(Debug, Default)]
pub(super) struct Chain {
    /// By wallet and token, lowercase. A user's wallet begins at zero, and goes below.
    held: HashMap<(String, String), i128>,
    locks: HashMap<Vec<u8>, Lock>,
    /// The contracts' state by id.
    states: HashMap<Vec<u8>, OnChain>,
    /// Output that an execution's recipient was given.
    paid: HashMap<String, i128>,
    last_command: i64,
    pub(super) commands: u64,
}

type Row = (i64, String, Vec<u8>, Json<ChainCommand>);

impl Chain {
    pub(super) fn fund(&mut self, wallet: &str, token: &str, amount: u128) {
        *self.held.entry((wallet.to_lowercase(), token.to_lowercase())).or_default() +=
            i128::try_from(amount).unwrap();
    }

    pub(super) fn transfer(&mut self, from: &str, to: &str, token: &str, amount: i128) {
        for (wallet, amount) in [(from, -amount), (to, amount)] {
            *self.held.entry((wallet.to_lowercase(), token.to_lowercase())).or_default() += amount;
        }
    }

    pub(super) fn balance(&self, wallet: &str, token: &str) -> i128 {
        self.held.get(&(wallet.to_lowercase(), token.to_lowercase())).copied().unwrap_or(0)
    }

    pub(super) fn wallets(&self) -> impl Iterator<Item = (&str, &str, i128)> {
        self.held.iter().map(|((wallet, token), amount)| (wallet.as_str(), token.as_str(), *amount))
    }

    pub(super) const fn paid(&self) -> &HashMap<String, i128> {
        &self.paid
    }

    /// The contracts' state of an id.
    pub(super) fn state(&self, entity: &[u8]) -> OnChain {
        self.states.get(entity).copied().unwrap_or_default()
    }

    /// Locks that are neither released nor given back.
    pub(super) fn locked(&self) -> usize {
        self.locks.values().filter(|lock| lock.phase != Phase::Ended).count()
    }

    /// Carries out the commands that are new. Returns how many.
    pub(super) async fn turn(&mut self, pool: &PgPool, now: DateTime<Utc>, dice: &mut Dice) -> usize {
        let rows: Vec<Row> = sqlx::query_as(
            "select id, reference, entity, payload from chain_command where id > $1 order by id limit 1000",
        )
        .bind(self.last_command)
        .fetch_all(pool)
        .await
        .unwrap();
        let now = u64::try_from(now.timestamp()).unwrap();
        let mut facts = Vec::new();
        for (id, reference, entity, Json(command)) in &rows {
            self.last_command = *id;
            self.commands += 1;
            let done = self.carry_out(reference, entity, command, now, dice);
            let fact = done.map_or_else(
                |code| ChainFact::CommandFailed {
                    command: command.kind().as_str().to_owned(),
                    code: code.to_owned(),
                    message: "reverted".into(),
                },
                |()| goal(command),
            );
            facts.push((entity.as_slice(), fact));
        }
        report_all(pool, &facts).await;
        rows.len()
    }

    fn carry_out(
        &mut self,
        reference: &str,
        entity: &[u8],
        command: &ChainCommand,
        now: u64,
        dice: &mut Dice,
    ) -> Result<(), &'static str> {
        let amount = |text: &str| text.parse::<i128>().unwrap();
        let mut state = self.state(entity);
        match command {
            ChainCommand::Create(create) => {
                if now > create.lock_by || dice.throw(40) == 0 {
                    return Err("lock_rejected");
                }
                let lock = Lock {
                    phase: Phase::Created,
                    maker: create.maker.clone(),
                    solver: create.solver.clone(),
                    token: create.token.clone(),
                    amount: amount(&create.amount),
                    fill_deadline: create.fill_deadline,
                    timelock: create.timelock,
                };
                self.transfer(&lock.maker, ESCROW, &lock.token, lock.amount);
                assert!(self.locks.insert(entity.to_vec(), lock).is_none(), "{reference} is locked twice");
                (state.settler, state.escrow) = (SettlerState::Created, EscrowState::Locked);
            }
            ChainCommand::Fill { .. } => {
                let lock = self.locks.get_mut(entity).unwrap();
                if lock.phase != Phase::Created || now >= lock.fill_deadline || dice.throw(60) == 0 {
                    return Err("fill_rejected");
                }
                lock.phase = Phase::Filled;
                state.settler = SettlerState::Filled;
            }
            ChainCommand::Settle { .. } => {
                let lock = self.locks.get_mut(entity).unwrap();
                if lock.phase != Phase::Filled || now >= lock.timelock {
                    return Err("settle_rejected");
                }
                lock.phase = Phase::Ended;
                let (to, token, amount) = (lock.solver.clone(), lock.token.clone(), lock.amount);
                self.transfer(ESCROW, &to, &token, amount);
                (state.settler, state.escrow) = (SettlerState::Settled, EscrowState::Released);
            }
            ChainCommand::Cancel { .. } => {
                self.give_back(entity, |lock| lock.phase == Phase::Created)?;
                (state.settler, state.escrow) = (SettlerState::Cancelled, EscrowState::Refunded);
            }
            ChainCommand::ReturnFilled { .. } => {
                self.give_back(entity, |lock| lock.phase == Phase::Filled)?;
                state.escrow = EscrowState::Refunded;
            }
            ChainCommand::Refund { .. } => {
                self.give_back(entity, |lock| now >= lock.timelock)?;
                state.escrow = EscrowState::Refunded;
            }
            ChainCommand::Swap(swap) => {
                if now > swap.lock_by || dice.throw(40) == 0 {
                    return Err("swap_rejected");
                }
                self.transfer(&swap.maker, &swap.solver, &swap.token, amount(&swap.amount));
                let output = amount(&swap.output.amount);
                self.pay(reference, &swap.solver, &swap.output.receiver, &swap.output.token, output);
                (state.settler, state.paid_out) = (SettlerState::Settled, true);
            }
            ChainCommand::Transfer(transfer) => {
                if now > transfer.not_after || dice.throw(40) == 0 {
                    return Err("insufficient_funds");
                }
                let output = amount(&transfer.amount);
                self.pay(reference, &transfer.payer, &transfer.receiver, &transfer.token, output);
                state.paid_out = true;
            }
            ChainCommand::Anchor { .. } => return Ok(()),
        }
        self.states.insert(entity.to_vec(), state);
        Ok(())
    }

    /// Outputs go to accounts of their own, so that a wallet that is paid does not look like one that paid.
    fn pay(&mut self, reference: &str, payer: &str, _receiver: &str, token: &str, amount: i128) {
        self.transfer(payer, &format!("recipient of {reference}"), token, amount);
        assert!(self.paid.insert(reference.to_owned(), amount).is_none(), "{reference} is paid twice");
    }

    fn give_back(&mut self, entity: &[u8], may: impl Fn(&Lock) -> bool) -> Result<(), &'static str> {
        let lock = self.locks.get_mut(entity).unwrap();
        if lock.phase == Phase::Ended || !may(lock) {
            return Err("not_refundable");
        }
        lock.phase = Phase::Ended;
        let (to, token, amount) = (lock.maker.clone(), lock.token.clone(), lock.amount);
        self.transfer(ESCROW, &to, &token, amount);
        Ok(())
    }
}

impl TokenBalances for Chain {
    type Error = StoreError;

    fn chain_id(&self) -> i64 {
        i64::try_from(CHAIN_ID).unwrap()
    }

    fn escrows(&self) -> BTreeSet<String> {
        BTreeSet::from([ESCROW.to_lowercase()])
    }

    async fn balance(&self, token: &str, address: &str) -> Result<i128, StoreError> {
        Ok(Self::balance(self, address, token))
    }
}
