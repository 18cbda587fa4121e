//! Turns commands into signed transactions: by kind, as many in one as wait together and fit.

use super::action::{self, ContractCall};
use super::apart::{Failed, Part, REST};
use super::batch::{self, ShortOfGas};
use super::look::{Question, may_be_refused_in_blocks};
use super::outlook::Outlook;
use super::plan::{self, Room};
use super::{RelayError, Relayer, Turn};
use crate::rpc::{self, BlockHead};
use crate::signing::{SignError, Unsigned};
use alloy::primitives::{B256, Bytes, TxKind};
use alloy::transports::RpcError;
use dvp_core::secrets::Vault;
use dvp_core::trace;
use dvp_domain::asset::COIN;
use dvp_domain::chain::{ChainCommand, ChainFact, CommandKind, CreateCommand, PermitArgs};
use dvp_store::chain::{self as store, CommandRow, NewSlot, Share};
use dvp_store::database::lease::Lease;
use dvp_store::workers::{self, Step, Worker, set_aside_for};
use futures_util::future::join_all;
use metrics::counter;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::Instrument;
use tracing::field::Empty;

/// The number of commands of one kind checked alone in one turn. Each requires a few calls.
const LOOKS: usize = 8;
/// A new command that has to wait for another is checked again after this time; older ones at longer intervals.
const WAIT_MS: [(i64, i64); 3] = [(10_000, 250), (60_000, 1_000), (i64::MAX, 5_000)];
/// A command whose deposit was not there after all is checked again after this time at the earliest.
const DEPOSIT_MS: i64 = 3_000;
/// A command whose goal is reached waits for the indexer.
const REACHED_MS: i64 = 1_000;

/// What a receiver of the coin may use, `COIN_GAS` of the payout contract.
const COIN_GAS: u64 = 100_000;

/// What it costs more to write a word that is zero: 20,000 in place of 2,900 (EIP-2200, EIP-2929), rounded up.
const ZERO_WORD_GAS: u64 = 17_500;

pub(super) struct Item {
    pub(super) row: CommandRow,
    pub(super) command: ChainCommand,
    pub(super) lock: Option<Box<CreateCommand>>,
    /// The permit's nonce; commands of one wallet succeed in its order.
    pub(super) nonce: u128,
}

impl Item {
    /// A `settle` gets its preimage here, because no row contains it.
    pub(super) fn read(row: CommandRow, vault: &Vault) -> Result<Self, Box<(CommandRow, String)>> {
        let mut command: ChainCommand = match serde_json::from_value(row.payload.clone()) {
            Ok(command) => command,
            Err(error) => return Err(Box::new((row, format!("the command cannot be read: {error}")))),
        };
        let nonce = match checked_nonce(row.kind, &command) {
            Ok(nonce) => nonce,
            Err(why) => return Err(Box::new((row, why))),
        };
        let lock = match row.lock.clone().map(serde_json::from_value).transpose() {
            Ok(Some(ChainCommand::Create(create))) => Some(create),
            Ok(_) => None,
            Err(error) => return Err(Box::new((row, format!("its lock cannot be read: {error}")))),
        };
        if let (ChainCommand::Settle { preimage: preimage @ None, .. }, Some(create)) = (&mut command, &lock)
        {
            let hashlock = create.hashlock.parse::<B256>().ok();
            *preimage = hashlock
                .and_then(|hashlock| vault.preimage(&row.reference, &hashlock.0))
                .map(|preimage| B256::from(preimage).to_string());
            if preimage.is_none() {
                let why = "no master key that is listed made its hashlock (secrets.master_keys)";
                return Err(Box::new((row, why.to_owned())));
            }
        }
        Ok(Self { row, command, lock, nonce })
    }

    pub(super) fn terms(&self) -> action::Terms<'_> {
        (&self.command, self.lock.as_deref())
    }
}

/// A turn, and the account's next nonce at its block.
#[derive(Clone, Copy)]
struct Scene<'a> {
    turn: Turn<'a>,
    mined: u64,
    /// Whether signed transactions are broadcast immediately.
    send: bool,
}

enum Signing {
    Signed,
    /// The items need more gas than there is room for.
    TooMany,
    /// Another account has one of them, or there is no signature now.
    NotNow,
}

/// A command that was looked at, and its call with the gas limit, if there is room for it.
struct Looked {
    outlook: Outlook,
    call: ContractCall,
    gas: Option<u64>,
}

impl Relayer {
    /// Reserves nonces for due commands and commits their signed bytes. Nothing is broadcast here.
    pub async fn sign_ready(&self, lease: &Lease, head: &BlockHead) -> Result<(), RelayError> {
        let market = self.market(head).await;
        self.take_ready(Turn { lease, head: &self.counted(head), market }, false).await
    }

    /// `send`: what is signed is broadcast at once.
    pub(super) async fn take_ready(&self, turn: Turn<'_>, send: bool) -> Result<(), RelayError> {
        self.waiting.store(false, Ordering::Relaxed);
        if self.is_out_of_funds.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !self.can_sign().await {
            return Ok(());
        }
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let Some(mined) = self.mined_count(turn.head).await? else { return Ok(()) };
        let mut conn = self.pool.acquire().await?;
        let load = store::find_load(&mut conn, chain_id, signer).await?;
        if plan::room(CommandKind::Settle, &load, turn.head.gas_limit).is_none() {
            return Ok(());
        }
        let share = store::find_share(&mut conn, chain_id, signer).await?;
        let cursor = store::find_cursor(&mut conn, chain_id).await?;
        let is_halted = cursor.is_some_and(|cursor| cursor.halted.is_some());
        let due = store::list_due_kinds(&mut conn, chain_id, share).await?;
        drop(conn);
        let scene = Scene { turn, mined, send };
        for kind in plan::ORDER.into_iter().filter(|kind| due.contains(kind)) {
            if is_halted && plan::waits_while_halted(kind) {
                continue;
            }
            // Without a signer nothing more needs to be simulated.
            if self.failures.is_resting() {
                break;
            }
            self.with_part(Part::Items(kind.as_str()), async {
                while self.take_kind(scene, kind, share).await? {}
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// `true`: more commands of the kind may fit.
    async fn take_kind(&self, scene: Scene<'_>, kind: CommandKind, share: Share) -> Result<bool, RelayError> {
        let limit = plan::limits(kind).items.max(LOOKS);
        let mut conn = self.pool.acquire().await?;
        let rows = store::list_ready_commands(&mut conn, self.config.chain_id, kind, share, limit).await?;
        drop(conn);
        if rows.is_empty() {
            return Ok(false);
        }
        let Some(room) = self.room_for(kind, scene.turn.head).await? else { return Ok(false) };
        if rows.len() < room.at_least {
            self.waiting.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        let full = rows.len() == limit;
        let mut together = Vec::new();
        let mut alone = Vec::new();
        for row in rows.into_iter().filter(|row| !self.items.is_waiting(&self.command(row))) {
            match Item::read(row, &self.vault) {
                Ok(item) if self.contracts_of(&item.row).is_err() => {
                    let why = RelayError::UnknownContracts(item.row.escrow).to_string();
                    self.set_aside(&item.row, &Failed::of(why)).await?;
                }
                Ok(item) if batch::is_batchable(&item.command) => together.push(item),
                Ok(item) => alone.push(item),
                Err(unread) => self.set_aside(&unread.0, &Failed::of(unread.1)).await?,
            }
        }
        let mut signed = false;
        // A transaction calls one contract.
        for (n, items) in by_contracts(together).into_iter().enumerate() {
            let left = if n == 0 { Some(room) } else { self.room_for(kind, scene.turn.head).await? };
            let Some(left) = left else { break };
            signed |= self.take_together(scene, kind, items, left, &mut alone).await?;
        }
        alone.truncate(LOOKS);
        signed |= self.take_alone(scene, kind, &alone, room).await?;
        Ok(full && signed)
    }

    async fn room_for(&self, kind: CommandKind, head: &BlockHead) -> Result<Option<Room>, RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let load = store::find_load(&mut *self.pool.acquire().await?, chain_id, signer).await?;
        Ok(plan::room(kind, &load, head.gas_limit))
    }

    /// Signs one transaction for as many of the items as succeed together; the others are added to `alone`. When the
    /// transaction cannot be signed because of one of them, its halves are.
    async fn take_together(
        &self,
        scene: Scene<'_>,
        kind: CommandKind,
        mut items: Vec<Item>,
        room: Room,
        alone: &mut Vec<Item>,
    ) -> Result<bool, RelayError> {
        alone.extend(items.extract_if(.., |item| may_be_refused_in_blocks(&item.row)));
        items.sort_by_key(|item| item.nonce);
        items.truncate(room.items);
        let mut open = vec![self.sift(scene.turn.head, kind, items, room, alone).await?];
        let mut signed = false;
        while let Some(mut items) = open.pop() {
            if items.len() < 2 {
                alone.splice(0..0, items);
                continue;
            }
            match self.apart(self.sign_together(scene, kind, &items, room)).await? {
                Ok(Signing::Signed) => signed = true,
                Ok(Signing::NotNow) => break,
                Ok(Signing::TooMany) => {
                    items.truncate(items.len() / 2);
                    open.push(items);
                }
                Err(failed) => {
                    let (commands, reason) = (items.len(), failed.reason);
                    tracing::warn!(
                        kind = kind.as_str(),
                        commands,
                        reason,
                        "batch failed: its halves are tried"
                    );
                    let later = items.split_off(items.len().div_ceil(2));
                    open.extend([later, items]);
                }
            }
        }
        Ok(signed)
    }

    async fn sign_together(
        &self,
        scene: Scene<'_>,
        kind: CommandKind,
        items: &[Item],
        room: Room,
    ) -> Result<Signing, RelayError> {
        let Some(first) = items.first() else { return Ok(Signing::NotNow) };
        let terms: Vec<_> = items.iter().map(Item::terms).collect();
        let deployment = self.contracts_of(&first.row)?;
        let whole = batch::call(deployment, kind, &terms, ShortOfGas::Reverts)?;
        let Some(gas) = self.gas_for(scene.turn.head, &whole, items, room).await? else {
            return Ok(Signing::TooMany);
        };
        let call = batch::call(deployment, kind, &terms, ShortOfGas::Stops)?;
        let policy = &self.config.fees;
        let data = self.data_fee(&call.input);
        if !policy.takes(call.input.len(), gas, scene.turn.market.first(policy).max_fee, data) {
            return Ok(Signing::TooMany);
        }
        self.sign(scene, kind, items, call, gas).await
    }

    /// The transaction's gas limit: the node's estimate, what receivers of the coin may use beyond it, and a margin. `None`
    /// when that exceeds the room. A receiver may use more in the block than in the estimate, and a batch leaves out what
    /// it has no gas for.
    async fn gas_for(
        &self,
        head: &BlockHead,
        call: &ContractCall,
        items: &[Item],
        room: Room,
    ) -> Result<Option<u64>, RelayError> {
        let (from, ceiling) = (self.account.address(), plan::ceiling(head.gas_limit));
        let needed = rpc::estimate(self.provider(), from, call.to, call.input.clone(), ceiling).await;
        let needed = match needed {
            Ok(Ok(needed)) => needed,
            Ok(Err(_)) | Err(RpcError::ErrorResp(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let in_coin = items.iter().filter(|item| pays_in_coin(&item.command));
        let needed = needed.saturating_add(in_coin.map(|_| COIN_GAS).sum());
        Ok((needed <= room.gas).then(|| self.with_margin(needed, ceiling)))
    }

    /// The node's estimate of a transaction's gas, and the margin, which covers a word that is zero again when the
    /// transaction is included: a counter after a reorganization, a balance after its owner spent it.
    pub(super) fn with_margin(&self, needed: u64, ceiling: u64) -> u64 {
        let margin = (needed / 100 * self.config.fees.gas_margin_percent).max(ZERO_WORD_GAS);
        needed.saturating_add(margin).min(ceiling)
    }

    /// What the bytes cost on the chain's L1, in wei, as far as is known.
    pub(super) fn data_fee(&self, input: &Bytes) -> u128 {
        u128::try_from(input.len()).unwrap_or(u128::MAX).saturating_mul(*self.data_wei.lock())
    }

    /// Checks commands side by side and acts on each result; `true` when one was signed.
    async fn take_alone(
        &self,
        scene: Scene<'_>,
        kind: CommandKind,
        items: &[Item],
        room: Room,
    ) -> Result<bool, RelayError> {
        let looks = items.iter().map(|item| {
            self.with_command(&item.row, self.look(item, scene.turn.head, room))
                .instrument(span_of(&item.row))
        });
        let looked = join_all(looks).await;
        let mut signed = false;
        for (item, looked) in items.iter().zip(looked) {
            let Some(looked) = looked? else { continue };
            let acted = self.with_command(&item.row, self.act(scene, kind, item, looked));
            signed |= acted.instrument(span_of(&item.row)).await?.unwrap_or(false);
        }
        Ok(signed)
    }

    async fn look(&self, item: &Item, head: &BlockHead, room: Room) -> Result<Looked, RelayError> {
        workers::at(Step::CommandLook, &item.row.reference).await?;
        let (command, lock) = item.terms();
        let call = action::action(self.contracts_of(&item.row)?, command, lock)?;
        let outlook = self.outlook(Question { row: &item.row, command, action: &call, head }).await?;
        let gas = if outlook == Outlook::Possible {
            self.gas_for(head, &call, std::slice::from_ref(item), room).await?
        } else {
            None
        };
        Ok(Looked { outlook, call, gas })
    }

    /// `true`: it was signed.
    async fn act(
        &self,
        scene: Scene<'_>,
        kind: CommandKind,
        item: &Item,
        Looked { outlook, call, gas }: Looked,
    ) -> Result<bool, RelayError> {
        let Item { row, command, .. } = item;
        match outlook {
            Outlook::Possible => {
                let Some(gas) = gas else {
                    self.wait(std::slice::from_ref(row)).await?;
                    return Ok(false);
                };
                let only = std::slice::from_ref(item);
                let signing = self.sign(scene, kind, only, call, gas).await?;
                return Ok(matches!(signing, Signing::Signed));
            }
            Outlook::Reached => self.complete(row, command).await?,
            Outlook::NotYet(reason) => {
                tracing::debug!(kind = row.kind.as_str(), reason, "not yet");
                self.wait(std::slice::from_ref(row)).await?;
            }
            Outlook::Undeposited(reason) => self.await_deposit(row, command, &reason).await?,
            Outlook::Blocked(reason) => self.trouble(row, &reason).await?,
            Outlook::Never { code, message } => self.fail(scene.turn.lease, row, code, message).await?,
        }
        Ok(false)
    }

    /// Checks commands again soon: they wait for others.
    pub(super) async fn wait(&self, rows: &[CommandRow]) -> Result<(), RelayError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.waiting.store(true, Ordering::Relaxed);
        let mut conn = self.pool.acquire().await?;
        let mut from = i64::MIN;
        for (up_to, delay_ms) in WAIT_MS {
            let of_age = rows.iter().filter(|row| row.age_ms >= from && row.age_ms < up_to);
            let ids: Vec<i64> = of_age.map(|row| row.id).collect();
            if !ids.is_empty() {
                store::defer_commands(&mut conn, &ids, delay_ms).await?;
            }
            from = up_to;
        }
        Ok(())
    }

    /// The goal is reached: the indexer has stored the event before the command was inserted, or will soon.
    async fn complete(&self, row: &CommandRow, command: &ChainCommand) -> Result<(), RelayError> {
        let mut tx = self.pool.begin().await?;
        let chain_id = self.config.chain_id;
        let is_done = store::complete_command(&mut tx, chain_id, row.id).await?;
        if !is_done {
            store::defer_commands(&mut tx, &[row.id], REACHED_MS).await?;
        }
        tx.commit().await?;
        if !is_done && self.is_done_in_doubt(row, command).await? {
            return self.trouble(row, "an endpoint shows it as done, and the index has no event of it").await;
        }
        Ok(())
    }

    /// The command waits for the maker's deposit, and for nobody else: it is hidden until the indexer has seen one.
    async fn await_deposit(
        &self,
        row: &CommandRow,
        command: &ChainCommand,
        reason: &str,
    ) -> Result<(), RelayError> {
        let Some(until) = command.deposit_by() else { return self.trouble(row, reason).await };
        tracing::debug!(kind = row.kind.as_str(), reason, "waits for its deposit");
        let mut conn = self.pool.acquire().await?;
        Ok(store::await_deposit(&mut conn, row.id, until, DEPOSIT_MS).await?)
    }

    async fn trouble(&self, row: &CommandRow, reason: &str) -> Result<(), RelayError> {
        self.note_trouble(row, reason, &REST).await
    }

    /// The command is refused for a reason that is not final: it is retried, later each time within `rest`, and reported
    /// (`dvp chain command list`).
    pub(super) async fn note_trouble(
        &self,
        row: &CommandRow,
        reason: &str,
        rest: &RangeInclusive<Duration>,
    ) -> Result<(), RelayError> {
        let labels = [("chain", self.config.name.clone()), ("kind", row.kind.as_str().to_owned())];
        counter!("dvp_chain_command_refusals_total", &labels).increment(1);
        let (command, attempts) = (row.id.to_string(), row.tries.saturating_add(1));
        let wait = set_aside_for(Worker::Relayer, &command, &row.reference, reason, attempts);
        let wait = wait.clamp(*rest.start(), *rest.end());
        let mut conn = self.pool.acquire().await?;
        Ok(store::trouble_command(&mut conn, row.id, reason, wait).await?)
    }

    async fn fail(
        &self,
        lease: &Lease,
        row: &CommandRow,
        code: &str,
        message: String,
    ) -> Result<(), RelayError> {
        tracing::warn!(kind = row.kind.as_str(), code, message, "chain command failed for good");
        let fact = ChainFact::CommandFailed {
            command: row.kind.as_str().to_owned(),
            code: code.to_owned(),
            message,
        };
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        store::fail_command(&mut tx, self.config.chain_id, row, &fact).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Commits a transaction for all of the items, and broadcasts it if requested.
    async fn sign(
        &self,
        scene: Scene<'_>,
        kind: CommandKind,
        items: &[Item],
        call: ContractCall,
        gas_limit: u64,
    ) -> Result<Signing, RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let fees = scene.turn.market.first(&self.config.fees);
        let commands: Vec<i64> = items.iter().map(|item| item.row.id).collect();
        let data = self.data_fee(&call.input);
        let cost = u128::from(gas_limit).saturating_mul(fees.max_fee).saturating_add(data);
        let balance = *self.balance.lock();
        let mut conn = self.pool.acquire().await?;
        if cost > balance {
            // The other accounts take them; this one takes none before its balance was looked at again.
            tracing::error!(%signer, balance, cost, "relayer account cannot pay for a transaction: it takes none");
            self.is_out_of_funds.store(true, Ordering::Relaxed);
            store::note_unable(&mut conn, chain_id, signer).await?;
            return Ok(Signing::NotNow);
        }
        let nonce = store::find_next_nonce(&mut conn, chain_id, signer, scene.mined).await?;
        drop(conn);
        let to = TxKind::Call(call.to);
        let unsigned = Unsigned { chain_id, nonce, to, input: call.input, gas_limit, fees };
        let signed = match self.signed(unsigned).await {
            Ok(signed) => signed,
            // It concerns what is signed; any other failure is the signer's.
            Err(error @ SignError::Refused { .. }) => return Err(error.into()),
            Err(_) => return Ok(Signing::NotNow),
        };
        for item in items {
            workers::at(Step::CommandSign, &item.row.reference).await?;
        }
        let mut tx = self.pool.begin().await?;
        scene.turn.lease.guard(&mut tx).await?;
        if !store::lock_commands(&mut tx, &commands).await? {
            return Ok(Signing::NotNow);
        }
        if store::reserve_nonce(&mut tx, chain_id, signer, scene.mined).await? != nonce {
            tracing::warn!(%signer, nonce, "the account's next nonce changed while a transaction was signed, will sign it again");
            return Ok(Signing::NotNow);
        }
        let slot = NewSlot { nonce, kind: Some(kind), gas: gas_limit, commands: &commands };
        store::insert_slot(&mut tx, chain_id, signer, slot).await?;
        let attempt = self.kept(nonce, 0, &signed, fees, scene.turn.head)?;
        store::insert_attempt(&mut tx, chain_id, signer, &attempt).await?;
        tx.commit().await?;
        let count = commands.len();
        tracing::info!(kind = kind.as_str(), nonce, commands = count, tx = %attempt.hash, "transaction signed and stored");
        items.iter().for_each(|item| show_in_trace(&item.row, &attempt.hash));
        for row in
            items.iter().map(|item| &item.row).filter(|row| self.items.is_set_aside(&self.command(row)))
        {
            self.items.note(&self.command(row), &row.reference, Ok(())).await;
        }
        if scene.send {
            let sending = self.send(&attempt, scene.turn);
            self.with_part(
                Part::Slot(signer, nonce, items.first().map_or("", |item| &item.row.reference)),
                sending,
            )
            .await?;
        }
        Ok(Signing::Signed)
    }
}

/// The items by the contracts that they are for, in the order in which these come first.
fn by_contracts(items: Vec<Item>) -> Vec<Vec<Item>> {
    let mut groups: Vec<Vec<Item>> = Vec::new();
    for item in items {
        let is_theirs = |group: &&mut Vec<Item>| group[0].row.escrow == item.row.escrow;
        match groups.iter_mut().find(is_theirs) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    groups
}

fn span_of(row: &CommandRow) -> tracing::Span {
    let span = tracing::info_span!(
        "relay",
        intent_id = row.intent_id,
        reference = row.reference,
        kind = row.kind.as_str(),
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
    );
    trace::mark(&span, trace::child(row.trace), row.trace);
    span
}

/// A span in the order's trace: a batch of commands is a transaction of several traces.
fn show_in_trace(row: &CommandRow, hash: &B256) {
    let span = tracing::debug_span!(
        target: trace::SPANS,
        "transaction",
        intent_id = row.intent_id,
        reference = row.reference,
        kind = row.kind.as_str(),
        tx = %hash,
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
    );
    trace::mark(&span, trace::child(row.trace), row.trace);
}

/// Whether the command sends the chain's coin to a receiver, which may be a contract.
fn pays_in_coin(command: &ChainCommand) -> bool {
    let token = match command {
        ChainCommand::Transfer(payment) => &payment.token,
        ChainCommand::Swap(swap) => &swap.output.token,
        ChainCommand::Create(_)
        | ChainCommand::Fill { .. }
        | ChainCommand::Settle { .. }
        | ChainCommand::Cancel { .. }
        | ChainCommand::ReturnFilled { .. }
        | ChainCommand::Refund { .. }
        | ChainCommand::Anchor { .. } => return false,
    };
    token.eq_ignore_ascii_case(COIN)
}

/// The nonce of the permit, 0 without one; the row and its payload are of one kind.
fn checked_nonce(kind: CommandKind, command: &ChainCommand) -> Result<u128, String> {
    if command.kind() != kind {
        return Err(format!("its payload is a command of the kind {}", command.kind().as_str()));
    }
    let Some((_, Some(PermitArgs { nonce, .. }))) = action::maker_of(command) else { return Ok(0) };
    nonce.parse().map_err(|_| format!("the nonce {nonce} of its permit is no number below 2^128"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_another_kind_than_its_row_is_not_carried_out() {
        let anchor = ChainCommand::Anchor { content_hash: B256::ZERO.to_string() };
        assert_eq!(checked_nonce(CommandKind::Anchor, &anchor), Ok(0));
        let why = checked_nonce(CommandKind::Refund, &anchor).unwrap_err();
        assert!(why.contains("of the kind anchor"), "{why}");
    }
}
