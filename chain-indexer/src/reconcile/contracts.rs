//! What the contracts answer at one block, many ids in one exchange.

use crate::contracts::token::TestToken;
use crate::contracts::{anchor::ReceiptAnchor, escrow::Escrow, payouts::Payouts, settler::IntentSettler};
use crate::deploy::Deployment;
use crate::rpc;
use alloy::eips::BlockId;
use alloy::network::TransactionBuilder;
use alloy::primitives::{Address, B256, Bytes};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::client::{BatchRequest, Waiter};
use alloy::rpc::types::TransactionRequest;
use alloy::sol_types::SolCall;
use alloy::transports::{TransportError, TransportErrorKind};
use dvp_domain::money::Minor;
use dvp_domain::reconcile::{Contracts, EscrowState, OnChain, SettlerState};

/// Ids asked about in one exchange, three calls each.
const BATCH: usize = 30;

/// The contracts at a block, by its hash: a node that has left that block refuses.
pub(super) struct ContractsAt<'a> {
    provider: &'a DynProvider,
    deployment: &'a Deployment,
    block: BlockId,
}

impl<'a> ContractsAt<'a> {
    pub(super) const fn new(provider: &'a DynProvider, deployment: &'a Deployment, block: B256) -> Self {
        Self { provider, deployment, block: BlockId::hash(block) }
    }

    pub(super) const fn numbered(&self) -> [Address; 4] {
        let deployment = self.deployment;
        [deployment.settler, deployment.escrow, deployment.anchor, deployment.payouts]
    }

    pub(super) async fn seq(&self, contract: Address) -> Result<u64, TransportError> {
        rpc::view(self.provider, contract, &ReceiptAnchor::seqCall {}, self.block).await
    }

    pub(super) async fn escrow_balance(&self, token: &str) -> Result<u128, TransportError> {
        let token: Address = token.parse().map_err(TransportErrorKind::custom)?;
        let call = TestToken::balanceOfCall { account: self.deployment.escrow };
        let held = rpc::view(self.provider, token, &call, self.block).await?;
        Ok(held.saturating_to())
    }

    /// In the order asked for.
    pub(super) async fn read(&self, ids: &[B256]) -> Result<Vec<Contracts>, TransportError> {
        let mut read = Vec::with_capacity(ids.len());
        for part in ids.chunks(BATCH) {
            let mut batch = BatchRequest::new(self.provider.client());
            let mut answers = Vec::with_capacity(part.len());
            for &id in part {
                let intent = IntentSettler::intentsCall { intentId: id };
                let slot = Escrow::slotsCall { id };
                let paid = Payouts::paidAtCall { id };
                answers.push((
                    self.call(&mut batch, self.deployment.settler, &intent)?,
                    self.call(&mut batch, self.deployment.escrow, &slot)?,
                    self.call(&mut batch, self.deployment.payouts, &paid)?,
                ));
            }
            batch.send().await?;
            for (intent, slot, paid) in answers {
                let intent = decode::<IntentSettler::intentsCall>(&intent.await?)?;
                let slot = decode::<Escrow::slotsCall>(&slot.await?)?;
                let paid = decode::<Payouts::paidAtCall>(&paid.await?)?;
                read.push(contracts(&intent, &slot, paid)?);
            }
        }
        Ok(read)
    }

    fn call<C: SolCall>(
        &self,
        batch: &mut BatchRequest<'_>,
        to: Address,
        call: &C,
    ) -> Result<Waiter<Bytes>, TransportError> {
        let request = TransactionRequest::default().with_to(to).with_input(call.abi_encode());
        batch.add_call("eth_call", &(request, self.block))
    }
}

fn decode<C: SolCall>(answer: &Bytes) -> Result<C::Return, TransportError> {
    C::abi_decode_returns(answer).map_err(TransportErrorKind::custom)
}

fn contracts(
    intent: &IntentSettler::Intent,
    slot: &Escrow::Slot,
    paid_at: u64,
) -> Result<Contracts, TransportError> {
    let state = OnChain {
        settler: match intent.state {
            0 => SettlerState::None,
            1 => SettlerState::Created,
            2 => SettlerState::Filled,
            3 => SettlerState::Settled,
            4 => SettlerState::Cancelled,
            other => return Err(unknown("settler", other)),
        },
        escrow: match slot.state {
            0 => EscrowState::None,
            1 => EscrowState::Locked,
            2 => EscrowState::Released,
            3 => EscrowState::Refunded,
            other => return Err(unknown("escrow", other)),
        },
        paid_out: paid_at != 0,
    };
    Ok(Contracts {
        state,
        amount: Minor::new(slot.amount.saturating_to()),
        token: format!("{:#x}", slot.token),
        fill_deadline: intent.fillDeadline,
        timelock: slot.timelock,
    })
}

fn unknown(contract: &str, state: u8) -> TransportError {
    TransportErrorKind::custom_str(&format!("the {contract} answers with state {state}"))
}
