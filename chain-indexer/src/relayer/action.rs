//! The contract call of a command. Pure.

use crate::contracts::{anchor::ReceiptAnchor, escrow, payouts::Payouts, settler};
use crate::deploy::Deployment;
use crate::orders::{self, Malformed, address, amount, word};
use crate::relayer::returns;
use alloy::primitives::{Address, B256, Bytes, Signature, U256};
use alloy::sol_types::SolCall;
use dvp_domain::chain::{ChainCommand, CreateCommand, PermitArgs};
use escrow::Escrow;
use settler::{Escrow as SettlerEscrow, IntentSettler};

/// A call to one of the service's contracts.
#[derive(Debug, Clone)]
pub(super) struct ContractCall {
    pub(super) to: Address,
    pub(super) input: Bytes,
}

/// One command, with the terms that its call takes from its `create`.
pub(super) type Terms<'a> = (&'a ChainCommand, Option<&'a CreateCommand>);

/// A command in a batch of another kind.
pub(super) const OTHER_KIND: Malformed = Malformed { field: "kind" };

/// One command as a separate call. `lock`: the `create` of its settlement, if there is one.
pub(super) fn action(
    deployment: &Deployment,
    command: &ChainCommand,
    lock: Option<&CreateCommand>,
) -> Result<ContractCall, Malformed> {
    let terms = (command, lock);
    let settler = |call: Vec<u8>| ContractCall { to: deployment.settler, input: call.into() };
    Ok(match command {
        ChainCommand::Create(_) => {
            settler(IntentSettler::createCall { params: create_params(terms)? }.abi_encode())
        }
        ChainCommand::Swap(_) => {
            settler(IntentSettler::swapCall { params: swap_params(terms)? }.abi_encode())
        }
        ChainCommand::Fill { .. } => {
            let IntentSettler::FillParams { intentId, order, payoutRef } = fill_params(terms)?;
            settler(IntentSettler::fillCall { intentId, order, payoutRef }.abi_encode())
        }
        ChainCommand::Settle { .. } => {
            let IntentSettler::SettleParams { intentId, order, preimage } = settle_params(terms)?;
            settler(IntentSettler::settleCall { intentId, order, preimage }.abi_encode())
        }
        ChainCommand::Anchor { content_hash } => {
            let call = ReceiptAnchor::anchorCall { contentHash: word("content_hash", content_hash)? };
            ContractCall { to: deployment.anchor, input: call.abi_encode().into() }
        }
        ChainCommand::Transfer(_) => {
            let Payouts::PayParams { payment, authorization } = pay_params(terms)?;
            let call = Payouts::payCall { payment, authorization };
            ContractCall { to: deployment.payouts, input: call.abi_encode().into() }
        }
        ChainCommand::Cancel { entity } => {
            let call = IntentSettler::cancelCall {
                intentId: word("entity", entity)?,
                order: orders::order(locked(lock)?)?,
            };
            settler(call.abi_encode())
        }
        ChainCommand::Refund { entity } => {
            let call = Escrow::refundCall {
                id: word("entity", entity)?,
                order: escrow_order(orders::order(locked(lock)?)?),
            };
            ContractCall { to: deployment.escrow, input: call.abi_encode().into() }
        }
        ChainCommand::ReturnFilled { entity, deadline, signatures } => {
            let id = word("entity", entity)?;
            let [first, second] = by_signer(deployment, id, *deadline, signatures)?;
            let call = IntentSettler::returnFilledCall {
                intentId: id,
                order: orders::order(locked(lock)?)?,
                deadline: U256::from(*deadline),
                first,
                second,
            };
            settler(call.abi_encode())
        }
    })
}

/// The same terms as the escrow's interface names them.
fn escrow_order(order: settler::Orders::Order) -> escrow::Orders::Order {
    let settler::Orders::Order { maker, solver, token, amount, fillDeadline, timelock, hashlock, terms } =
        order;
    escrow::Orders::Order { maker, solver, token, amount, fillDeadline, timelock, hashlock, terms }
}

/// The maker whose tokens the command takes, and the permit for them.
pub(super) fn maker_of(command: &ChainCommand) -> Option<(&String, Option<&PermitArgs>)> {
    match command {
        ChainCommand::Create(create) => Some((&create.maker, create.permit.as_ref())),
        ChainCommand::Swap(swap) => Some((&swap.maker, swap.permit.as_ref())),
        ChainCommand::Fill { .. }
        | ChainCommand::Settle { .. }
        | ChainCommand::Anchor { .. }
        | ChainCommand::Transfer(_)
        | ChainCommand::Cancel { .. }
        | ChainCommand::ReturnFilled { .. }
        | ChainCommand::Refund { .. } => None,
    }
}

fn locked(lock: Option<&CreateCommand>) -> Result<&CreateCommand, Malformed> {
    lock.ok_or(Malformed { field: "lock" })
}

/// The signatures in the order that the contract requires: ascending by the signer's address.
fn by_signer(
    deployment: &Deployment,
    id: B256,
    deadline: u64,
    signatures: &[String; 2],
) -> Result<[Bytes; 2], Malformed> {
    const FIELD: Malformed = Malformed { field: "signatures" };
    let digest = returns::digest(deployment, id, deadline);
    let signed = |text: &String| -> Result<(Address, Bytes), Malformed> {
        let bytes: Bytes = text.parse().map_err(|_| FIELD)?;
        let signature = Signature::from_raw(&bytes).map_err(|_| FIELD)?;
        Ok((signature.recover_address_from_prehash(&digest).map_err(|_| FIELD)?, bytes))
    };
    let [one, two] = signatures;
    let (one, two) = (signed(one)?, signed(two)?);
    Ok(if one.0 < two.0 { [one.1, two.1] } else { [two.1, one.1] })
}

pub(super) fn create_params((command, _): Terms<'_>) -> Result<IntentSettler::CreateParams, Malformed> {
    let ChainCommand::Create(create) = command else { return Err(OTHER_KIND) };
    Ok(IntentSettler::CreateParams {
        intentId: word("entity", &create.entity)?,
        order: orders::order(create)?,
        lockBy: create.lock_by,
        permit: permit(create.permit.as_ref())?,
    })
}

pub(super) fn swap_params((command, _): Terms<'_>) -> Result<IntentSettler::SwapParams, Malformed> {
    let ChainCommand::Swap(swap) = command else { return Err(OTHER_KIND) };
    Ok(IntentSettler::SwapParams {
        intentId: word("entity", &swap.entity)?,
        maker: address("maker", &swap.maker)?,
        solver: address("solver", &swap.solver)?,
        token: address("token", &swap.token)?,
        amount: amount("amount", &swap.amount)?,
        lockBy: swap.lock_by,
        output: orders::output(&swap.terms, &swap.output)?,
        permit: permit(swap.permit.as_ref())?,
    })
}

pub(super) fn fill_params((command, lock): Terms<'_>) -> Result<IntentSettler::FillParams, Malformed> {
    let ChainCommand::Fill { entity, payout_ref } = command else { return Err(OTHER_KIND) };
    Ok(IntentSettler::FillParams {
        intentId: word("entity", entity)?,
        order: orders::order(locked(lock)?)?,
        payoutRef: word("payout_ref", payout_ref)?,
    })
}

pub(super) fn settle_params((command, lock): Terms<'_>) -> Result<IntentSettler::SettleParams, Malformed> {
    let ChainCommand::Settle { entity, preimage } = command else { return Err(OTHER_KIND) };
    Ok(IntentSettler::SettleParams {
        intentId: word("entity", entity)?,
        order: orders::order(locked(lock)?)?,
        preimage: word("preimage", preimage.as_deref().ok_or(Malformed { field: "preimage" })?)?,
    })
}

pub(super) fn pay_params((command, _): Terms<'_>) -> Result<Payouts::PayParams, Malformed> {
    let ChainCommand::Transfer(transfer) = command else { return Err(OTHER_KIND) };
    Ok(Payouts::PayParams {
        payment: Payouts::Payment {
            id: word("entity", &transfer.entity)?,
            payer: address("payer", &transfer.payer)?,
            receiver: address("receiver", &transfer.receiver)?,
            token: address("token", &transfer.token)?,
            amount: amount("amount", &transfer.amount)?,
            notAfter: transfer.not_after,
        },
        authorization: Bytes::new(),
    })
}

/// Without a signature the escrow claims a deposit of the coin.
fn permit(permit: Option<&PermitArgs>) -> Result<SettlerEscrow::PermitInput, Malformed> {
    let Some(permit) = permit else {
        return Ok(SettlerEscrow::PermitInput {
            amount: U256::ZERO,
            nonce: U256::ZERO,
            deadline: U256::ZERO,
            signature: Bytes::new(),
        });
    };
    let signature: Bytes = permit.signature.parse().map_err(|_| Malformed { field: "permit.signature" })?;
    if signature.is_empty() {
        return Err(Malformed { field: "permit.signature" });
    }
    Ok(SettlerEscrow::PermitInput {
        amount: amount("permit.amount", &permit.amount)?,
        nonce: amount("permit.nonce", &permit.nonce)?,
        deadline: U256::from(permit.deadline),
        signature,
    })
}
