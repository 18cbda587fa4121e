//! The terms of an order as the contracts receive, hash and emit them. Pure.

use crate::contracts::settler::Orders::{Order, Output};
use crate::rpc::parse_amount;
use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::sol_types::SolValue;
use dvp_domain::chain::{ChainFact, CreateCommand, OutputArgs};

/// A field of a command that has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error("command's {field} is malformed")]
pub struct Malformed {
    pub(crate) field: &'static str,
}

/// The terms of the lock that a command requests.
pub fn order(create: &CreateCommand) -> Result<Order, Malformed> {
    Ok(Order {
        maker: address("maker", &create.maker)?,
        solver: address("solver", &create.solver)?,
        token: address("token", &create.token)?,
        amount: amount("amount", &create.amount)?,
        fillDeadline: create.fill_deadline,
        timelock: create.timelock,
        hashlock: word("hashlock", &create.hashlock)?,
        terms: word("terms", &create.terms)?,
    })
}

/// The output of a swap with these agreed terms.
pub fn output(agreed: &str, output: &OutputArgs) -> Result<Output, Malformed> {
    Ok(Output {
        token: address("output.token", &output.token)?,
        receiver: address("output.receiver", &output.receiver)?,
        amount: amount("output.amount", &output.amount)?,
        agreed: word("terms", agreed)?,
    })
}

/// The terms in the events of a lock; `None` for another fact, or one that cannot be decoded.
pub fn reported(fact: &ChainFact) -> Option<Order> {
    let ChainFact::Created { timelock, amount: value, lock } = fact else { return None };
    Some(Order {
        maker: address("maker", &lock.maker).ok()?,
        solver: address("solver", &lock.solver).ok()?,
        token: address("token", &lock.token).ok()?,
        amount: amount("amount", value).ok()?,
        fillDeadline: lock.fill_deadline,
        timelock: *timelock,
        hashlock: word("hashlock", &lock.hashlock).ok()?,
        terms: word("terms", &lock.terms).ok()?,
    })
}

/// `Orders.commitment`: the escrow stores its first 31 bytes.
pub fn commitment(order: &Order) -> B256 {
    keccak256(order.abi_encode())
}

/// `Orders.binding`.
pub fn binding(output: &Output) -> B256 {
    keccak256(output.abi_encode())
}

pub(crate) fn word(field: &'static str, hex: &str) -> Result<B256, Malformed> {
    hex.parse().map_err(|_| Malformed { field })
}

pub(crate) fn address(field: &'static str, hex: &str) -> Result<Address, Malformed> {
    hex.parse().map_err(|_| Malformed { field })
}

pub(crate) fn amount(field: &'static str, decimal: &str) -> Result<U256, Malformed> {
    parse_amount(decimal).ok_or(Malformed { field })
}
