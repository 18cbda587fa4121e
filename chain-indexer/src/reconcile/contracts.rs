//! The contracts' state at one block, for many ids in one exchange.

use crate::contracts::settler::Orders::Order;
use crate::contracts::token::TestToken;
use crate::contracts::{anchor::ReceiptAnchor, escrow::Escrow, payouts::Payouts};
use crate::deploy::Deployment;
use crate::rpc::BatchedView;
use crate::{orders, rpc};
use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, U256};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::client::BatchRequest;
use alloy::transports::{TransportError, TransportErrorKind};
use dvp_domain::money::Minor;
use dvp_domain::reconcile::{Contracts, EscrowState, OnChain, ProvenLock, SettlerState};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit of the question whether the endpoint answers at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Ids queried in one exchange, two calls each.
const BATCH: usize = 30;

/// The contracts at a block, by its hash: a node that has abandoned that block refuses.
#[derive(Clone)]
pub(super) struct ContractsAt<'a> {
    provider: &'a DynProvider,
    pub(super) deployment: &'a Deployment,
    block: BlockId,
}

impl<'a> ContractsAt<'a> {
    pub(super) const fn new(provider: &'a DynProvider, deployment: &'a Deployment, block: B256) -> Self {
        Self { provider, deployment, block: BlockId::hash(block) }
    }

    pub(super) async fn seq(&self, contract: Address) -> Result<u64, TransportError> {
        rpc::view(self.provider, contract, &ReceiptAnchor::seqCall {}, self.block).await
    }

    /// Whether the endpoint answers at all, and has the block.
    pub(super) async fn answers(&self) -> bool {
        matches!(timeout(ANSWER_WITHIN, rpc::block(self.provider, self.block)).await, Ok(Ok(Some(_))))
    }

    /// What an account holds of a token.
    pub(super) async fn balance(&self, token: &str, account: Address) -> Result<u128, TransportError> {
        let token: Address = token.parse().map_err(TransportErrorKind::custom)?;
        let call = TestToken::balanceOfCall { account };
        let held = rpc::view(self.provider, token, &call, self.block).await?;
        units(held)
    }

    /// In the order of the request, each by itself, with the escrow of the contracts that have it. `reported` has the terms
    /// in the events of an id.
    pub(super) async fn read(
        &self,
        ids: &[B256],
        reported: &HashMap<B256, Order>,
    ) -> Result<Vec<Result<(Address, Contracts), TransportError>>, TransportError> {
        let mut read = Vec::with_capacity(ids.len());
        for part in ids.chunks((BATCH / self.deployment.sets().count()).max(1)) {
            let mut batch = BatchRequest::new(self.provider.client());
            let mut answers = Vec::with_capacity(part.len());
            for &id in part {
                let of_sets = self.deployment.sets().map(|set| {
                    let (slot, paid) = (Escrow::slotOfCall { id }, Payouts::paidAtCall { id });
                    let slot = BatchedView::add(&mut batch, set.escrow, slot, self.block)?;
                    let paid = BatchedView::add(&mut batch, set.payouts, paid, self.block)?;
                    Ok((set.escrow, slot, paid))
                });
                answers.push((id, of_sets.collect::<Result<Vec<_>, TransportError>>()?));
            }
            batch.send().await?;
            for (id, of_sets) in answers {
                let one = async {
                    let mut found = Vec::with_capacity(of_sets.len());
                    for (escrow, slot, paid) in of_sets {
                        let slot = slot.answer(self.provider).await?;
                        let paid = paid.answer(self.provider).await?;
                        found.push((escrow, contracts(&slot, paid, reported.get(&id))?));
                    }
                    that_has_it(found)
                };
                read.push(one.await);
            }
        }
        Ok(read)
    }
}

/// The contracts that know an id; when none do, those that take new orders.
fn that_has_it(found: Vec<(Address, Contracts)>) -> Result<(Address, Contracts), TransportError> {
    let is_known = |one: &&(Address, Contracts)| one.1.state != OnChain::default();
    let mut known = found.iter().filter(is_known);
    match (known.next(), known.next()) {
        (Some((one, _)), Some((other, _))) => {
            let both = format!("the contracts of the escrows {one} and {other} both know it");
            Err(TransportErrorKind::custom_str(&both))
        }
        (one, _) => {
            one.or(found.first()).cloned().ok_or_else(|| TransportErrorKind::custom_str("no contracts"))
        }
    }
}

/// `Escrow.Slot`.
fn contracts(
    slot: &Escrow::slotOfReturn,
    paid_at: u64,
    reported: Option<&Order>,
) -> Result<Contracts, TransportError> {
    use {EscrowState as E, SettlerState as S};
    let (settler, escrow, swapped) = match slot.slot {
        0 => (S::None, E::None, false),
        1 => (S::Created, E::Locked, false),
        2 => (S::Filled, E::Locked, false),
        3 => (S::Filled, E::Released, false),
        4 => (S::Settled, E::Released, false),
        5 => (S::Created, E::Refunded, false),
        6 => (S::Filled, E::Refunded, false),
        7 => (S::Cancelled, E::Refunded, false),
        8 => (S::Settled, E::None, true),
        other => {
            let unknown = format!("the escrow answers with slot {other}");
            return Err(TransportErrorKind::custom_str(&unknown));
        }
    };
    let state = OnChain { settler, escrow, paid_out: paid_at != 0 || swapped };
    let proven = reported.filter(|order| orders::commitment(order)[..31] == slot.commitment[..]);
    Ok(Contracts {
        state,
        lock: proven.filter(|_| escrow != E::None).map(lock).transpose()?,
        terms_differ: reported.is_some() && proven.is_none(),
    })
}

fn lock(order: &Order) -> Result<ProvenLock, TransportError> {
    Ok(ProvenLock {
        amount: Minor::new(units(order.amount)?),
        token: format!("{:#x}", order.token),
        fill_deadline: order.fillDeadline,
        timelock: order.timelock,
    })
}

/// An amount of a token as the service counts it.
fn units(amount: U256) -> Result<u128, TransportError> {
    let beyond = |_| TransportErrorKind::custom_str(&format!("the amount {amount} is above 2^128 - 1"));
    u128::try_from(amount).map_err(beyond)
}
