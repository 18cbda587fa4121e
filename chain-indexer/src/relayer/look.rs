//! Checks one command at one block: whether its goal is reached, and whether its own transaction would succeed.
//!
//! A payment that was ever signed fails only once a final block after its `notAfter` shows that it was not made. One for
//! a lock on another chain is not sent after its `notAfter` by the service's clock, either: its own chain's may be behind.
//!
//! Kept by `chain-indexer/tests/it/coin.rs::a_signed_payment_fails_only_at_a_final_block_after_its_last_second` and
//! `across.rs::a_payment_is_not_sent_after_its_last_second_when_the_chains_clock_is_behind`.

use super::action::{ContractCall, maker_of};
use super::outlook::{self, IntentState, Outlook};
use super::{RelayError, Relayer};
use crate::contracts::{payouts::Payouts, settler::IntentSettler};
use crate::rpc::{self, BlockHead, Simulated};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, Bytes};
use alloy::providers::{DynProvider, Provider as _};
use alloy::transports::{RpcError, TransportError};
use dvp_core::context as clock;
use dvp_domain::chain::{BlockNumber, ChainCommand, CommandKind};
use dvp_store::chain::{self as store, CommandRow};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The time limit of the other endpoints' answers. The relayer's turn waits for them.
const OTHERS_WITHIN: Duration = Duration::from_secs(2);

/// How many transactions of a lock may fail in blocks, if a contract pays: it may confirm its permit in simulations alone.
const REFUSED_MAX: i64 = 3;

/// A command whose outlook is looked for, and the block at which it was found.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) row: &'a CommandRow,
    pub(super) command: &'a ChainCommand,
    pub(super) action: &'a ContractCall,
    pub(super) head: &'a BlockHead,
}

const REFUSED: &str = "the wallet, a contract, lets the lock pass in simulations and fail in blocks";

/// A lock that has failed so often is in no batch any more.
pub(super) fn may_be_refused_in_blocks(row: &CommandRow) -> bool {
    matches!(row.kind, CommandKind::Create | CommandKind::Swap) && i64::from(row.tries) >= REFUSED_MAX
}

/// Whether the command releases or returns what a filled lock has.
const fn releases(command: &ChainCommand) -> bool {
    matches!(
        command,
        ChainCommand::Settle { .. } | ChainCommand::ReturnFilled { .. } | ChainCommand::Refund { .. }
    )
}

/// The last second, in Unix seconds, at which the contracts carry out what the order pays.
fn last_second(command: &ChainCommand) -> Option<u64> {
    match command {
        ChainCommand::Create(create) => Some(create.lock_by),
        ChainCommand::Swap(swap) => Some(swap.lock_by),
        ChainCommand::Transfer(transfer) => Some(transfer.not_after),
        ChainCommand::Fill { .. }
        | ChainCommand::Settle { .. }
        | ChainCommand::Anchor { .. }
        | ChainCommand::Cancel { .. }
        | ChainCommand::ReturnFilled { .. }
        | ChainCommand::Refund { .. } => None,
    }
}

/// The numbers of endpoints that agree with the one in use, itself included, and that contradict it.
#[derive(Debug, Clone, Copy)]
struct Tally {
    agree: usize,
    contradict: usize,
}

/// A refused payment, and a final block.
#[derive(Clone, Copy)]
struct Payment {
    id: B256,
    payouts: Address,
    /// Unix seconds, the last at which it may be made.
    not_after: u64,
    block: (BlockNumber, B256),
}

#[derive(Clone, Copy)]
enum PaymentState {
    /// The block is not after the payment's last second, or the endpoint does not have it.
    Open,
    Paid,
    NeverPaid,
}

impl Relayer {
    /// The outlook at the newest block; a final one must also hold at the confirmation depth.
    pub(super) async fn outlook(&self, question: Question<'_>) -> Result<Outlook, RelayError> {
        let Question { row, command, head, .. } = question;
        let mut now = self.outlook_at(self.provider(), question, BlockId::hash(head.hash)).await?;
        if let (Outlook::Possible, ChainCommand::Transfer(transfer), true) =
            (&now, command, row.is_locked_elsewhere)
            && clock::now().unix_secs() > transfer.not_after
        {
            // This chain's clock may be so far behind that it would still pay when the lock was returned.
            let message = format!("its last second, {}, is over by the service's clock", transfer.not_after);
            now = Outlook::Never { code: outlook::rejected(command), message };
        }
        let is_refused = self.is_refused_in_blocks(row, command).await?;
        if now == Outlook::Possible && is_refused {
            // A reorganization may include one of the failed transactions again, where it may succeed. So the command ends
            // as any other: after its last second.
            return Ok(Outlook::NotYet(REFUSED.to_owned()));
        }
        let deep = BlockId::number((head.number + 1).saturating_sub(self.config.confirmations.max(1)).0);
        if matches!(now, Outlook::NotYet(_) | Outlook::Blocked(_)) && releases(command) {
            return Ok(self.doubt(question, deep, now).await);
        }
        if !matches!(now, Outlook::Never { .. }) {
            return Ok(now);
        }
        // The money of a failed payment goes back at once, so no transaction with it may be included afterwards.
        if let (ChainCommand::Transfer(transfer), true) = (command, row.is_locked_elsewhere || row.was_signed)
        {
            return self.never_paid(row, transfer.not_after, now).await;
        }
        match self.outlook_at(self.provider(), question, deep).await? {
            Outlook::Never { .. } if releases(command) => Ok(self.put_to_the_vote(question, deep, now).await),
            Outlook::Never { .. } if is_refused => {
                Ok(Outlook::Never { code: "permit_refused", message: REFUSED.to_owned() })
            }
            Outlook::Never { .. } => Ok(now),
            Outlook::Reached
            | Outlook::Possible
            | Outlook::NotYet(_)
            | Outlook::Undeposited(_)
            | Outlook::Blocked(_) => Ok(Outlook::NotYet("a refusal that is not confirmed yet".to_owned())),
        }
    }

    /// Whether a contract pays, and the lock's transactions have failed often enough.
    async fn is_refused_in_blocks(
        &self,
        row: &CommandRow,
        command: &ChainCommand,
    ) -> Result<bool, RelayError> {
        let Some((maker, Some(_))) = maker_of(command).filter(|_| may_be_refused_in_blocks(row)) else {
            return Ok(false);
        };
        let failures = store::count_failures(&mut *self.pool.acquire().await?, row.id).await?;
        if failures < REFUSED_MAX {
            return Ok(false);
        }
        let code: Bytes = self.provider().raw_request("eth_getCode".into(), (maker, "latest")).await?;
        Ok(!code.is_empty())
    }

    /// A filled lock's funds are owed, so that it is given up only when more than half of the endpoints say that its
    /// command can never succeed. When more than half say otherwise, the relayer goes on with another endpoint.
    async fn put_to_the_vote(&self, question: Question<'_>, deep: BlockId, never: Outlook) -> Outlook {
        let asked = self.others().map(|provider| self.outlook_at(provider, question, deep));
        let tally = self.tally(asked, |outlook| matches!(outlook, Outlook::Never { .. })).await;
        if self.is_majority(tally.agree) {
            return never;
        }
        if self.is_majority(tally.contradict) {
            self.is_outvoted.store(true, Ordering::Relaxed);
            return Outlook::NotYet("the other endpoints contradict the refusal".to_owned());
        }
        Outlook::Blocked("too few endpoints show that it can never succeed".to_owned())
    }

    /// A release is ordered once its lock is filled in blocks that more than half of the endpoints have, so an endpoint
    /// that has a reason against it may be wrong. When more than half say that it is possible, the relayer goes on with
    /// another endpoint.
    async fn doubt(&self, question: Question<'_>, deep: BlockId, refused: Outlook) -> Outlook {
        let asked = self.others().map(|provider| self.outlook_at(provider, question, deep));
        let tally = self.tally(asked, |outlook| !matches!(outlook, Outlook::Possible)).await;
        if self.is_majority(tally.contradict) {
            self.is_outvoted.store(true, Ordering::Relaxed);
            return Outlook::NotYet("the other endpoints say that it is possible".to_owned());
        }
        match refused {
            Outlook::NotYet(why) if tally.contradict > 0 => {
                Outlook::Blocked(format!("{why}, says one endpoint; another one says that it is possible"))
            }
            refused => refused,
        }
    }

    /// How many transactions of the account are in blocks. `None`: the endpoint has more than were ever signed here, and
    /// no more than half of the endpoints have as many. Nonces that are taken from such a count could never be used.
    pub(super) async fn mined_count(&self, head: &BlockHead) -> Result<Option<u64>, RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let mined = rpc::mined_nonce(self.provider(), signer, BlockId::hash(head.hash)).await?;
        let mut conn = self.pool.acquire().await?;
        let known = store::find_stored_nonce(&mut conn, chain_id, signer).await?;
        drop(conn);
        if mined <= known.unwrap_or_default() {
            return Ok(Some(mined));
        }
        let asked = self.others().map(|provider| rpc::mined_nonce(provider, signer, BlockId::latest()));
        let tally = self.tally(asked, |count| *count >= mined).await;
        if self.is_majority(tally.agree) {
            return Ok(Some(mined));
        }
        if self.is_majority(tally.contradict) {
            self.is_outvoted.store(true, Ordering::Relaxed);
        }
        tracing::error!(%signer, mined, known, "the endpoint has more transactions of the account than were signed, and the others do not");
        Ok(None)
    }

    /// Whether a refused payment can never be made: what pays for it is returned then. It is proved by a final block
    /// after its last second, at which it was not made. The index has passed that block without completing the payment,
    /// and more than half of the endpoints say the same, because one alone could be wrong about the state and the time.
    async fn never_paid(
        &self,
        row: &CommandRow,
        not_after: u64,
        refused: Outlook,
    ) -> Result<Outlook, RelayError> {
        let not_yet = || Ok(Outlook::NotYet("a refusal that is not final yet".to_owned()));
        let chain_id = self.config.chain_id;
        let mut conn = self.pool.acquire().await?;
        let Some(cursor) = store::find_cursor(&mut conn, chain_id).await? else { return not_yet() };
        let number = cursor.final_number.min(cursor.facts_number);
        let Some(hash) = store::find_known_hash(&mut conn, chain_id, number).await? else { return not_yet() };
        drop(conn);
        let payouts = self.contracts_of(row)?.payouts;
        let payment = Payment { id: row.entity, payouts, not_after, block: (number, hash) };
        match self.payment_at(self.provider(), payment).await {
            Ok(PaymentState::Open) => not_yet(),
            Ok(PaymentState::Paid) => Ok(Outlook::Reached),
            Ok(PaymentState::NeverPaid) => {
                let asked = self.others().map(|provider| self.payment_at(provider, payment));
                let tally = self.tally(asked, |state| matches!(state, PaymentState::NeverPaid)).await;
                if self.is_majority(tally.agree) {
                    return Ok(refused);
                }
                let why = "too few endpoints show that the refused payment was not made";
                Ok(Outlook::Blocked(why.to_owned()))
            }
            // A node without the state of that block: the others need not wait for it.
            Err(error @ RpcError::ErrorResp(_)) => Ok(Outlook::Blocked(rpc::told(&error))),
            Err(error) => Err(error.into()),
        }
    }

    /// A command that the endpoint in use shows as done, without an event of it in the index. When the index has passed
    /// a block at which that endpoint shows it as done, one of the two is wrong: the relayer goes on with another
    /// endpoint if more than half contradict this one. `true`: an operator must look at it.
    pub(super) async fn is_done_in_doubt(
        &self,
        row: &CommandRow,
        command: &ChainCommand,
    ) -> Result<bool, RelayError> {
        if !releases(command) {
            return Ok(false);
        }
        let chain_id = self.config.chain_id;
        let mut conn = self.pool.acquire().await?;
        let Some(cursor) = store::find_cursor(&mut conn, chain_id).await? else { return Ok(false) };
        let hash = store::find_known_hash(&mut conn, chain_id, cursor.facts_number).await?;
        let is_indexed = store::has_goal_event(&mut conn, chain_id, row.id).await?;
        drop(conn);
        let Some(hash) = hash.filter(|_| !is_indexed) else { return Ok(false) };
        let at = BlockId::hash(hash);
        let shown = |provider| self.outlook_by_state(provider, row, command, at);
        // A node without the state of that block shows nothing.
        if !matches!(shown(self.provider()).await, Ok(Outlook::Reached)) {
            return Ok(false);
        }
        let tally = self.tally(self.others().map(shown), |outlook| *outlook == Outlook::Reached).await;
        let is_outvoted = self.is_majority(tally.contradict);
        if is_outvoted {
            self.is_outvoted.store(true, Ordering::Relaxed);
        }
        Ok(!is_outvoted)
    }

    fn others(&self) -> impl Iterator<Item = &DynProvider> {
        let others = self.endpoints.iter().enumerate().filter(|(at, _)| *at != self.at);
        others.map(|(_, endpoint)| &endpoint.provider)
    }

    /// Waits for the other endpoints' answers until more than half of all agree or contradict.
    async fn tally<T, E>(
        &self,
        asked: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
        agrees: impl Fn(&T) -> bool,
    ) -> Tally {
        let mut asked: FuturesUnordered<_> = asked.collect();
        let until = Instant::now() + OTHERS_WITHIN;
        // The endpoint in use.
        let mut tally = Tally { agree: 1, contradict: 0 };
        while !self.is_majority(tally.agree.max(tally.contradict))
            && let Ok(Some(answer)) = timeout_at(until, asked.next()).await
        {
            match answer {
                Ok(answer) if agrees(&answer) => tally.agree += 1,
                Ok(_) => tally.contradict += 1,
                Err(_) => {}
            }
        }
        tally
    }

    const fn is_majority(&self, endpoints: usize) -> bool {
        endpoints * 2 > self.endpoints.len()
    }

    async fn payment_at(
        &self,
        provider: &DynProvider,
        payment: Payment,
    ) -> Result<PaymentState, TransportError> {
        let Payment { id, payouts, not_after, block: (number, hash) } = payment;
        let block = rpc::block(provider, BlockId::number(number.0)).await?;
        if block.is_none_or(|block| block.hash != hash || block.timestamp <= not_after) {
            return Ok(PaymentState::Open);
        }
        let call = Payouts::paidAtCall { id };
        let paid_at = rpc::view(provider, payouts, &call, BlockId::hash(hash)).await?;
        Ok(if paid_at == 0 { PaymentState::NeverPaid } else { PaymentState::Paid })
    }

    async fn outlook_at(
        &self,
        provider: &DynProvider,
        Question { row, command, action, head }: Question<'_>,
        at: BlockId,
    ) -> Result<Outlook, RelayError> {
        let by_state = self.outlook_by_state(provider, row, command, at).await?;
        // An anchor is never refused.
        if by_state != Outlook::Possible || matches!(command, ChainCommand::Anchor { .. }) {
            return Ok(by_state);
        }
        let (from, gas) = (self.account.address(), super::plan::ceiling(head.gas_limit));
        let outlook = match rpc::simulate(provider, from, action.to, action.input.clone(), gas, at).await {
            Ok(Simulated::Succeeds(_)) => Outlook::Possible,
            Ok(Simulated::Reverts { data, message }) => {
                outlook::judge(command, self.contracts_of(row)?.permit, &data, &message)
            }
            // The node answered with an error for this one call: the others need not wait for it.
            Err(error @ RpcError::ErrorResp(_)) => Outlook::Blocked(rpc::told(&error)),
            Err(error) => return Err(error.into()),
        };
        let Some((last, refused)) = last_second(command).zip(outlook.refused()) else { return Ok(outlook) };
        // Not every node tells why a call reverts. After its last second the contracts carry it out no more.
        let block = if at == BlockId::hash(head.hash) { None } else { rpc::block(provider, at).await? };
        if block.as_ref().unwrap_or(head).timestamp <= last {
            return Ok(outlook);
        }
        let message = format!("its last second, {last}, is over: {refused}");
        Ok(Outlook::Never { code: outlook::rejected(command), message })
    }

    async fn outlook_by_state(
        &self,
        provider: &DynProvider,
        row: &CommandRow,
        command: &ChainCommand,
        at: BlockId,
    ) -> Result<Outlook, RelayError> {
        Ok(match command {
            // The contract stores no anchors: the indexer completes the command when it sees the event, and a second
            // event has no effect.
            ChainCommand::Anchor { .. } => Outlook::Possible,
            ChainCommand::Transfer(_) => {
                let call = Payouts::paidAtCall { id: row.entity };
                let payouts = self.contracts_of(row)?.payouts;
                outlook::paid_outlook(rpc::view(provider, payouts, &call, at).await?)
            }
            ChainCommand::Create(_)
            | ChainCommand::Fill { .. }
            | ChainCommand::Settle { .. }
            | ChainCommand::Swap(_)
            | ChainCommand::Cancel { .. }
            | ChainCommand::ReturnFilled { .. }
            | ChainCommand::Refund { .. } => {
                let call = IntentSettler::stateOfCall { intentId: row.entity };
                let settler = self.contracts_of(row)?.settler;
                let state = rpc::view(provider, settler, &call, at).await?;
                let state = IntentState::from_contract(state).ok_or(RelayError::UnknownState(state))?;
                outlook::settler_outlook(command, state, row.lock_given_up)
            }
        })
    }
}
