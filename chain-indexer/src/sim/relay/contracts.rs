//! The contracts as the relayer uses them: states, permits, batches with reasons.

use crate::contracts::anchor::ReceiptAnchor::ReceiptAnchorCalls;
use crate::contracts::escrow::Escrow;
use crate::contracts::payouts::Payouts::{self, PayoutsCalls};
use crate::contracts::permit::Permit;
use crate::contracts::settler::IntentSettler::{self, IntentSettlerCalls};
use crate::contracts::token::TestToken;
use crate::deploy::Deployment;
use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolCall, SolError, SolInterface, SolValue};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Of the relayer's accounts.
    pub(super) nonces: BTreeMap<Address, u64>,
    /// `IntentSettler.State` of each order.
    orders: BTreeMap<B256, u8>,
    paid: BTreeSet<B256>,
    permits: BTreeMap<Address, U256>,
    /// Makers whose wallets are empty.
    pub(super) poor: BTreeSet<Address>,
    pub(super) seqs: BTreeMap<Address, u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) contract: Address,
    pub(super) event: &'static str,
    pub(super) entity: B256,
    /// The kind of the fact that it leads to, if any.
    pub(super) kind: Option<&'static str>,
}

/// The return data and events of a call, or its revert data.
type Outcome = Result<(Bytes, Vec<Effect>), Bytes>;

const ITEM_GAS: u64 = 60_000;

pub(super) fn gas_of(input: &Bytes) -> u64 {
    21_000 + ITEM_GAS + u64::try_from(input.len()).unwrap_or(0) / 320 * ITEM_GAS
}

impl State {
    /// Executes a call; a revert changes nothing.
    pub(super) fn call(&mut self, deployment: &Deployment, to: Address, input: &Bytes) -> Outcome {
        let before = self.clone();
        let outcome = if to == deployment.settler {
            self.settler(to, input)
        } else if to == deployment.payouts {
            self.payouts(to, input)
        } else if to == deployment.anchor {
            Self::anchors(to, input)
        } else {
            Ok((Bytes::new(), Vec::new()))
        };
        if outcome.is_err() {
            *self = before;
        }
        outcome
    }

    fn settler(&mut self, at: Address, input: &Bytes) -> Outcome {
        use IntentSettlerCalls as C;
        let none = |reported: Vec<Effect>| (Bytes::new(), reported);
        match C::abi_decode(input).map_err(|_| Bytes::new())? {
            C::stateOf(call) => Ok((U256::from(self.order(call.intentId)).abi_encode().into(), Vec::new())),
            C::create(call) => self.create(at, &call.params).map(none),
            C::createMany(call) => {
                self.many(at, &call.items, |state, item| state.create(at, item), |i| i.intentId)
            }
            C::swap(call) => self.swap(at, &call.params).map(none),
            C::swapMany(call) => {
                self.many(at, &call.items, |state, item| state.swap(at, item), |i| i.intentId)
            }
            C::fill(call) => self.step(at, call.intentId, 1, 2, ("Filled", "filled")).map(none),
            C::fillMany(call) => self.many(
                at,
                &call.items,
                |state, item| state.step(at, item.intentId, 1, 2, ("Filled", "filled")),
                |i| i.intentId,
            ),
            C::settle(call) => self.step(at, call.intentId, 2, 3, ("Settled", "settled")).map(none),
            C::settleMany(call) => self.many(
                at,
                &call.items,
                |state, item| state.step(at, item.intentId, 2, 3, ("Settled", "settled")),
                |i| i.intentId,
            ),
            C::cancel(call) => self.step(at, call.intentId, 1, 4, ("Cancelled", "cancelled")).map(none),
            _ => Err(Bytes::new()),
        }
    }

    fn payouts(&mut self, at: Address, input: &Bytes) -> Outcome {
        use PayoutsCalls as C;
        match C::abi_decode(input).map_err(|_| Bytes::new())? {
            C::paidAt(call) => Ok((u64::from(self.paid.contains(&call.id)).abi_encode().into(), Vec::new())),
            C::pay(call) => self.pay(at, call.payment.id).map(|reported| (Bytes::new(), reported)),
            C::payMany(call) => {
                self.many(at, &call.items, |state, item| state.pay(at, item.payment.id), |i| i.payment.id)
            }
            _ => Err(Bytes::new()),
        }
    }

    fn anchors(at: Address, input: &Bytes) -> Outcome {
        let hashes = match ReceiptAnchorCalls::abi_decode(input).map_err(|_| Bytes::new())? {
            ReceiptAnchorCalls::anchor(call) => vec![call.contentHash],
            ReceiptAnchorCalls::anchorMany(call) => call.contentHashes,
            ReceiptAnchorCalls::seq(_) => return Err(Bytes::new()),
        };
        Ok((
            Bytes::new(),
            hashes.into_iter().map(|hash| effect(at, "Anchored", hash, Some("anchored"))).collect(),
        ))
    }

    /// Executes each item separately; the call returns the outcomes, and the reasons of those that changed nothing.
    fn many<T>(
        &mut self,
        at: Address,
        items: &[T],
        one: impl Fn(&mut Self, &T) -> Result<Vec<Effect>, Bytes>,
        id: impl Fn(&T) -> B256,
    ) -> Outcome {
        let (mut outcomes, mut reasons, mut reported) = (Vec::new(), Vec::new(), Vec::new());
        for item in items {
            let before = self.clone();
            match one(self, item) {
                Ok(effects) => {
                    reported.extend(effects);
                    outcomes.push(2);
                    reasons.push(Bytes::new());
                }
                Err(reason) => {
                    *self = before;
                    reported.push(effect(at, "ItemFailed", id(item), None));
                    outcomes.push(1);
                    reasons.push(reason);
                }
            }
        }
        let returned = IntentSettler::createManyReturn { outcomes, reasons };
        Ok((IntentSettler::createManyCall::abi_encode_returns(&returned).into(), reported))
    }

    fn order(&self, id: B256) -> u8 {
        self.orders.get(&id).copied().unwrap_or(0)
    }

    fn step(
        &mut self,
        at: Address,
        id: B256,
        from: u8,
        to: u8,
        (event, kind): (&'static str, &'static str),
    ) -> Result<Vec<Effect>, Bytes> {
        self.must_be(id, from)?;
        self.orders.insert(id, to);
        Ok(vec![effect(at, event, id, Some(kind))])
    }

    fn must_be(&self, id: B256, state: u8) -> Result<(), Bytes> {
        if self.order(id) == state {
            return Ok(());
        }
        // The relayer ignores which slot it names.
        Err(Escrow::WrongState { id, slot: self.order(id) }.abi_encode().into())
    }

    fn pull(&mut self, maker: Address, given: U256) -> Result<(), Bytes> {
        let expected = self.permits.get(&maker).copied().unwrap_or_default();
        if given != expected {
            return Err(Permit::InvalidNonce { expected, given }.abi_encode().into());
        }
        if self.poor.contains(&maker) {
            let (balance, needed) = (U256::ZERO, U256::from(1));
            return Err(TestToken::ERC20InsufficientBalance { sender: maker, balance, needed }
                .abi_encode()
                .into());
        }
        self.permits.insert(maker, expected + U256::from(1));
        Ok(())
    }

    fn create(&mut self, at: Address, item: &IntentSettler::CreateParams) -> Result<Vec<Effect>, Bytes> {
        self.must_be(item.intentId, 0)?;
        self.pull(item.order.maker, item.permit.nonce)?;
        self.step(at, item.intentId, 0, 1, ("Created", "created"))
    }

    fn swap(&mut self, at: Address, item: &IntentSettler::SwapParams) -> Result<Vec<Effect>, Bytes> {
        self.must_be(item.intentId, 0)?;
        self.pull(item.maker, item.permit.nonce)?;
        self.step(at, item.intentId, 0, 3, ("Settled", "settled"))
    }

    fn pay(&mut self, at: Address, id: B256) -> Result<Vec<Effect>, Bytes> {
        if !self.paid.insert(id) {
            return Err(Payouts::AlreadyPaid { id }.abi_encode().into());
        }
        Ok(vec![effect(at, "Paid", id, Some("transferred"))])
    }
}

const fn effect(contract: Address, event: &'static str, entity: B256, kind: Option<&'static str>) -> Effect {
    Effect { contract, event, entity, kind }
}
