//! Double entry: every movement is a transaction whose entries sum to zero per asset.

use serde::{Deserialize, Serialize};

use crate::money::Minor;
use crate::settlement::Terms;

/// Who holds or owes. The text form is the account's name in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Account {
    /// A wallet or bank outside the service.
    External(String),
    /// Funds locked on the chain.
    Escrow,
    /// A liquidity provider's position.
    Provider(String),
    /// Fees earned.
    Fees,
    /// What floors cut off.
    Residual,
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::External(who) => write!(f, "external:{who}"),
            Self::Escrow => f.write_str("escrow"),
            Self::Provider(id) => write!(f, "provider:{id}"),
            Self::Fees => f.write_str("fees"),
            Self::Residual => f.write_str("residual"),
        }
    }
}

/// An amount in minor units and 10^-18 parts of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Precise {
    pub minor: Minor,
    pub e18: u64,
}

impl Precise {
    /// `minor.fraction`, eighteen places, for a NUMERIC column.
    pub fn to_numeric(self) -> String {
        format!("{}.{:018}", self.minor, self.e18)
    }
}

impl From<Minor> for Precise {
    fn from(minor: Minor) -> Self {
        Self { minor, e18: 0 }
    }
}

/// `amount` of `asset` leaves `from` and reaches `to`. A list of moves balances by construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub asset: String,
    pub from: Account,
    pub to: Account,
    pub amount: Precise,
}

/// The funds were pulled into the escrow.
pub fn locked(terms: &Terms) -> Vec<Move> {
    vec![token_move(
        terms,
        Account::External(terms.request.user.clone()),
        Account::Escrow,
        terms.plan.priced.input,
    )]
}

/// The escrow paid out to the provider, which owes the service its fee.
pub fn released(terms: &Terms) -> Vec<Move> {
    let provider = Account::Provider(terms.plan.solver_id.clone());
    let priced = &terms.plan.priced;
    let mut moves = vec![token_move(terms, Account::Escrow, provider.clone(), priced.input)];
    if !priced.protocol_fee.is_zero() {
        moves.push(token_move(terms, provider, Account::Fees, priced.protocol_fee));
    }
    moves
}

/// The escrow gave the funds back.
pub fn refunded(terms: &Terms) -> Vec<Move> {
    vec![token_move(
        terms,
        Account::Escrow,
        Account::External(terms.request.user.clone()),
        terms.plan.priced.input,
    )]
}

/// The beneficiary was paid by the provider, which also bears the payout fee and the residual of the floor.
pub fn paid(terms: &Terms) -> Vec<Move> {
    let provider = Account::Provider(terms.plan.solver_id.clone());
    let priced = &terms.plan.priced;
    let fiat =
        |to, amount: Precise| Move { asset: terms.output.asset.clone(), from: provider.clone(), to, amount };
    let mut moves = vec![fiat(Account::External(terms.reference.to_string()), priced.output.into())];
    if !priced.payout_fee.is_zero() {
        moves.push(fiat(Account::Fees, priced.payout_fee.into()));
    }
    if priced.residual_e18 > 0 {
        moves.push(fiat(Account::Residual, Precise { minor: Minor::ZERO, e18: priced.residual_e18 }));
    }
    moves
}

fn token_move(terms: &Terms, from: Account, to: Account, amount: Minor) -> Move {
    Move { asset: terms.input.asset.clone(), from, to, amount: amount.into() }
}
