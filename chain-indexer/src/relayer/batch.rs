//! Several commands of one kind as one call. Pure.

use super::action::{self, ContractCall, OTHER_KIND, Terms};
use super::plan;
use crate::contracts::{anchor::ReceiptAnchor, payouts::Payouts, settler::IntentSettler};
use crate::deploy::Deployment;
use crate::orders::{Malformed, word};
use alloy::primitives::{Bytes, U256};
use alloy::sol_types::{SolCall, SolError};
use dvp_domain::chain::{ChainCommand, CommandKind};

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

/// What a batch does when its gas may not suffice for the next item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShortOfGas {
    /// It reverts: for simulations and estimates.
    Reverts,
    /// It ends after the items before, one at least.
    Stops,
}

/// The call for all of them, which are of one kind.
pub(super) fn call(
    deployment: &Deployment,
    kind: CommandKind,
    items: &[Terms<'_>],
    short: ShortOfGas,
) -> Result<ContractCall, Malformed> {
    let gas = U256::from(plan::limits(kind).item_gas);
    let least = match short {
        ShortOfGas::Reverts => U256::from(items.len()),
        ShortOfGas::Stops => U256::from(1),
    };
    let settler = deployment.settler;
    let (to, input) = match kind {
        CommandKind::Create => {
            let items = each(items, action::create_params)?;
            (settler, IntentSettler::createManyCall { items, itemGas: gas, atLeast: least }.abi_encode())
        }
        CommandKind::Swap => {
            let items = each(items, action::swap_params)?;
            (settler, IntentSettler::swapManyCall { items, itemGas: gas, atLeast: least }.abi_encode())
        }
        CommandKind::Fill => {
            let items = each(items, action::fill_params)?;
            (settler, IntentSettler::fillManyCall { items, itemGas: gas, atLeast: least }.abi_encode())
        }
        CommandKind::Settle => {
            let items = each(items, action::settle_params)?;
            (settler, IntentSettler::settleManyCall { items, itemGas: gas, atLeast: least }.abi_encode())
        }
        CommandKind::Transfer => {
            let items = each(items, action::pay_params)?;
            let call = Payouts::payManyCall { items, itemGas: gas, atLeast: least };
            (deployment.payouts, call.abi_encode())
        }
        CommandKind::Anchor => {
            let hashes = each(items, |(command, _)| match command {
                ChainCommand::Anchor { content_hash } => word("content_hash", content_hash),
                _ => Err(OTHER_KIND),
            })?;
            let call = ReceiptAnchor::anchorManyCall { contentHashes: hashes };
            (deployment.anchor, call.abi_encode())
        }
        CommandKind::Cancel | CommandKind::ReturnFilled | CommandKind::Refund => return Err(OTHER_KIND),
    };
    Ok(ContractCall { to, input: input.into() })
}

fn each<'a, T>(
    items: &[Terms<'a>],
    params: impl Fn(Terms<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    items.iter().map(|item| params(*item)).collect()
}

/// What became of an item of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    NotTried,
    /// Its revert data, empty when it gave none or ran out of gas.
    Failed(Bytes),
    Done,
}

/// `None` when the answer is not that of a batch call.
pub(super) fn outcomes(kind: CommandKind, answer: &Bytes, items: usize) -> Option<Vec<Outcome>> {
    if kind == CommandKind::Anchor {
        return Some(vec![Outcome::Done; items]);
    }
    // The batch calls of both contracts return the same.
    let returned = IntentSettler::createManyCall::abi_decode_returns(answer).ok()?;
    let (outcomes, reasons) = (returned.outcomes, returned.reasons);
    if outcomes.len() != items || reasons.len() != items {
        return None;
    }
    let outcome = |(outcome, reason): (u8, Bytes)| match outcome {
        0 => Some(Outcome::NotTried),
        1 => Some(Outcome::Failed(reason)),
        2 => Some(Outcome::Done),
        _ => None,
    };
    outcomes.into_iter().zip(reasons).map(outcome).collect()
}

/// Whether a batch was refused because it needs more gas than its limit.
pub(super) fn is_out_of_gas(data: &[u8]) -> bool {
    IntentSettler::BatchOutOfGas::abi_decode(data).is_ok()
}
