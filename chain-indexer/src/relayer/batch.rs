//! Several commands of one kind as one call. Pure.

use super::action;
use super::plan;
use crate::contracts::{anchor::ReceiptAnchor, payouts::Payouts, settler::IntentSettler};
use crate::deploy::Deployment;
use crate::orders::{Malformed, word};
use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::{SolCall, SolError};
use dvp_domain::chain::{ChainCommand, CommandKind, CreateCommand};

/// One command, with the terms that its call takes from its `create`.
pub(super) type Terms<'a> = (&'a ChainCommand, Option<&'a CreateCommand>);

/// Whether the command may share a transaction with others.
pub(super) const fn is_batchable(command: &ChainCommand) -> bool {
    match command {
        ChainCommand::Create(_)
        | ChainCommand::Swap(_)
        | ChainCommand::Fill { .. }
        | ChainCommand::Settle { .. }
        | ChainCommand::Anchor { .. }
        | ChainCommand::Transfer(_) => true,
        ChainCommand::Cancel { .. } | ChainCommand::ReturnFilled { .. } | ChainCommand::Refund { .. } => {
            false
        }
    }
}

/// The call for all of them, which are of one kind.
pub(super) fn call(
    deployment: &Deployment,
    kind: CommandKind,
    items: &[Terms<'_>],
) -> Result<(Address, Bytes), Malformed> {
    let item_gas = U256::from(plan::limits(kind).item_gas);
    let settler = deployment.settler;
    Ok(match kind {
        CommandKind::Create => {
            let items = each(items, action::create_params)?;
            (settler, IntentSettler::createManyCall { items, itemGas: item_gas }.abi_encode().into())
        }
        CommandKind::Swap => {
            let items = each(items, action::swap_params)?;
            (settler, IntentSettler::swapManyCall { items, itemGas: item_gas }.abi_encode().into())
        }
        CommandKind::Fill => {
            let items = each(items, action::fill_params)?;
            (settler, IntentSettler::fillManyCall { items, itemGas: item_gas }.abi_encode().into())
        }
        CommandKind::Settle => {
            let items = each(items, action::settle_params)?;
            (settler, IntentSettler::settleManyCall { items, itemGas: item_gas }.abi_encode().into())
        }
        CommandKind::Transfer => {
            let items = each(items, action::pay_params)?;
            (deployment.payouts, Payouts::payManyCall { items, itemGas: item_gas }.abi_encode().into())
        }
        CommandKind::Anchor => {
            let hashes = each(items, |(command, _)| match command {
                ChainCommand::Anchor { content_hash } => word("content_hash", content_hash),
                _ => Err(OTHER_KIND),
            })?;
            let call = ReceiptAnchor::anchorManyCall { contentHashes: hashes };
            (deployment.anchor, call.abi_encode().into())
        }
        CommandKind::Cancel | CommandKind::ReturnFilled | CommandKind::Refund => return Err(OTHER_KIND),
    })
}

/// A command in a batch of another kind.
pub(super) const OTHER_KIND: Malformed = Malformed { field: "kind" };

fn each<'a, T>(
    items: &[Terms<'a>],
    params: impl Fn(Terms<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    items.iter().map(|item| params(*item)).collect()
}

/// The revert data of each item; empty for those that succeed, and for those that run out of gas. `None` when the
/// answer is not that of a batch call.
pub(super) fn reasons(kind: CommandKind, answer: &Bytes, items: usize) -> Option<Vec<Bytes>> {
    let reasons = match kind {
        CommandKind::Anchor => Some(vec![Bytes::new(); items]),
        CommandKind::Create => IntentSettler::createManyCall::abi_decode_returns(answer).ok(),
        CommandKind::Swap => IntentSettler::swapManyCall::abi_decode_returns(answer).ok(),
        CommandKind::Fill => IntentSettler::fillManyCall::abi_decode_returns(answer).ok(),
        CommandKind::Settle => IntentSettler::settleManyCall::abi_decode_returns(answer).ok(),
        CommandKind::Transfer => Payouts::payManyCall::abi_decode_returns(answer).ok(),
        CommandKind::Cancel | CommandKind::ReturnFilled | CommandKind::Refund => None,
    };
    reasons.filter(|reasons| reasons.len() == items)
}

/// Whether a batch was refused because it needs more gas than its limit.
pub(super) fn is_out_of_gas(data: &[u8]) -> bool {
    IntentSettler::BatchOutOfGas::abi_decode(data).is_ok()
}
