//! Double entry: a posting is a list of moves, each from one account to another, so a posting sums to zero per asset by
//! construction; the database checks it once more.
//!
//! What each step of an order posts, for a provider that fills all of it (several share it slice by slice):
//!
//! ```text
//! reserve   provider available  -> provider reserved      output           (a reservation)
//!           partner available   -> partner reserved       input, if prefunded
//! release   the same, backwards                                            (cancelled, expired, failed)
//! lock      the user's wallet   -> escrow                 input, if on the chain
//! convert   provider reserved   -> clearing               output           (the payout begins)
//! pay       clearing            -> the recipient; clearing -> fees         output
//!           provider owed       -> residual               what the conversion's rounding cuts off
//! settle    escrow or partner reserved -> provider available; -> fees      input
//!           provider owed       -> residual               what the fee's rounding cuts off
//!           house               -> the network            fees the service bears
//! return    clearing            -> provider available; partner reserved -> available   (a failed payout)
//! take_back provider owed       -> clearing; partner available -> reserved   (the failed payout was made after all)
//! refund    escrow              -> the user's wallet      input
//! lock_lost the same: a reorganization removed the lock
//! owe       clearing            -> debt                   output           (settled before the payout's final answer)
//! pay_debt  like pay, from the debt
//! release_debt  debt            -> provider available     output           (not paid, and the funds were returned)
//! return_debt   the same; provider owed and fees -> the user's wallet     input (not paid, operators returned it)
//! reverse   the recipient       -> debt                   output           (the bank returned the payment)
//!           house               -> debt                   what it deducted
//! pay_again debt                -> the recipient          output           (and it was made another way)
//! return_reversed  debt and fees -> provider available    output           (and the input was returned)
//!           provider owed and fees -> the user's wallet   input; -> house, if the escrow had returned it
//! keep_conversion  desk -> position; position -> desk            output; input (executed, and the order ended without it)
//! use_conversion   the same, backwards             (and the payment was found)
//! close_conversion position -> house; house -> position          output; input (two operators recorded the trade)
//! ```
//!
//! One wallet receives and pays on the chain: that of the solver, the provider of the largest slice. The parts that
//! belong to others are posted as claims (`claims`): the solver owes each provider its part of the input and the house
//! its fee, and each other provider owes the solver its part of an output in tokens. A provider's wallet holds what is
//! available and reserved for it, less its claim. [`operation`] has the postings of operators.

pub mod operation;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fees::Collection;
use crate::intent::IntentRequest;
use crate::money::{Minor, Residual};
use crate::names::names;
use crate::plan::{InputFunding, Slice};
use crate::terms::Terms;

/// The two halves of a limited balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Free to be reserved.
    Available,
    /// Reserved for accepted intents.
    Reserved,
}

/// The owner of a limited balance, which is never below zero; available and reserved are separate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A partner's prefunded money. Test and live money are separate.
    Partner { id: String, livemode: bool },
    /// A liquidity provider's inventory.
    Provider(String),
}

impl Owner {
    /// The owner's kind in the ledger.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Partner { .. } => "partner",
            Self::Provider(_) => "provider",
        }
    }

    /// The owner's name in the ledger: a partner's carries its environment.
    pub fn name(&self) -> String {
        match self {
            Self::Partner { id, livemode } => format!("{id}:{}", if *livemode { "live" } else { "test" }),
            Self::Provider(id) => id.clone(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// The holder of a claim. A positive claim: others hold its funds; a negative one: it holds others' funds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimant {
    Provider(String),
    House,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Account {
    Balance(Owner, Part),
    /// What others' wallets hold of a claimant's funds; negative: what its wallet holds of theirs.
    Claim(Claimant),
    /// What a provider owes: what it gained by rounding, inputs that were returned to users, and outputs that it got back and
    /// that were paid after all.
    Owed(String),
    /// A wallet or bank outside the service.
    External(String),
    /// Funds locked on the chain.
    Escrow,
    /// Output that providers have handed over and recipients have not received yet.
    Clearing,
    /// Output of an execution that was settled before its payout's final answer, owed until it is paid or the input is
    /// returned.
    Debt(String),
    /// What the desk has given for an execution that did not use it; negative: what it is owed for that.
    Position(String),
    /// The desk, as far as no order has used what it converted.
    Desk,
    Fees,
    /// What rounding cuts off.
    Residual,
    /// The service's own money.
    House,
}

impl Account {
    /// Owner's kind, owner and part, as the ledger has them.
    pub fn columns(&self) -> (&'static str, String, &'static str) {
        match self {
            Self::Balance(owner, Part::Available) => (owner.kind(), owner.name(), "available"),
            Self::Balance(owner, Part::Reserved) => (owner.kind(), owner.name(), "reserved"),
            Self::Claim(Claimant::Provider(provider)) => ("provider", provider.clone(), "claim"),
            Self::Claim(Claimant::House) => ("house", String::new(), "claim"),
            Self::Owed(provider) => ("provider", provider.clone(), "owed"),
            Self::External(who) => ("external", who.clone(), "total"),
            Self::Escrow => ("escrow", String::new(), "total"),
            Self::Clearing => ("clearing", String::new(), "total"),
            Self::Debt(execution) => ("debt", execution.clone(), "total"),
            Self::Position(execution) => ("position", execution.clone(), "total"),
            Self::Desk => ("desk", String::new(), "total"),
            Self::Fees => ("fees", String::new(), "total"),
            Self::Residual => ("residual", String::new(), "total"),
            Self::House => ("house", String::new(), "total"),
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
    /// Of 10^-18 parts, which may be more than one minor unit.
    fn of_parts(parts: Residual) -> Self {
        let (minor, e18) = parts.split().unwrap_or((Minor::new(u128::MAX), 0));
        Self { minor, e18 }
    }

    /// `minor.fraction`, eighteen places, for a NUMERIC column.
    pub fn to_numeric(self) -> String {
        if self.e18 == 0 { self.minor.to_string() } else { format!("{}.{:018}", self.minor, self.e18) }
    }

    pub const fn is_zero(self) -> bool {
        self.minor.is_zero() && self.e18 == 0
    }
}

impl From<Minor> for Precise {
    fn from(minor: Minor) -> Self {
        Self { minor, e18: 0 }
    }
}

/// `amount` of `asset` leaves `from` and reaches `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub asset: String,
    pub from: Account,
    pub to: Account,
    pub amount: Precise,
}

names! {
    /// The reason of a posting. The text is stored with each entry.
    pub enum PostingReason {
        Deposit = "deposit",
        Reserve = "reserve",
        Release = "release",
        Lock = "lock",
        Convert = "convert",
        Pay = "pay",
        Settle = "settle",
        Return = "return",
        TakeBack = "take_back",
        Refund = "refund",
        LockLost = "lock_lost",
        Owe = "owe",
        PayDebt = "pay_debt",
        ReleaseDebt = "release_debt",
        ReturnDebt = "return_debt",
        Reverse = "reverse",
        PayAgain = "pay_again",
        ReturnReversed = "return_reversed",
        KeepConversion = "keep_conversion",
        UseConversion = "use_conversion",
        CloseConversion = "close_conversion",
        Withdraw = "withdraw",
        ReturnDeposit = "return_deposit",
        Adjust = "adjust",
        SweepFees = "sweep_fees",
        Charge = "charge",
        Transfer = "transfer",
        SettleClaim = "settle_claim",
        Gift = "gift",
    }
}

/// Moves that belong together. Moves of zero, and from an account to itself, are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    pub reason: PostingReason,
    pub moves: Vec<Move>,
}

impl Posting {
    pub(crate) const fn new(reason: PostingReason) -> Self {
        Self { reason, moves: Vec::new() }
    }

    pub(crate) fn add(&mut self, asset: &str, from: Account, to: Account, amount: impl Into<Precise>) {
        let amount = amount.into();
        if !amount.is_zero() && from != to {
            self.moves.push(Move { asset: asset.to_owned(), from, to, amount });
        }
    }

    /// The limited balances that the posting changes, with their assets.
    pub fn balances(&self) -> impl Iterator<Item = (Owner, String)> {
        self.moves.iter().flat_map(|one| {
            [&one.from, &one.to].into_iter().filter_map(|account| match account {
                Account::Balance(owner, _) => Some((owner.clone(), one.asset.clone())),
                Account::Claim(_)
                | Account::Owed(_)
                | Account::External(_)
                | Account::Escrow
                | Account::Clearing
                | Account::Debt(_)
                | Account::Position(_)
                | Account::Desk
                | Account::Fees
                | Account::Residual
                | Account::House => None,
            })
        })
    }

    fn backwards(mut self, reason: PostingReason) -> Self {
        for one in &mut self.moves {
            std::mem::swap(&mut one.from, &mut one.to);
        }
        Self { reason, ..self }
    }
}

/// Money from outside is credited to an owner.
pub fn deposited(owner: Owner, asset: &str, amount: Minor) -> Posting {
    let mut posting = Posting::new(PostingReason::Deposit);
    let outside = Account::External(format!("{}:{}", owner.kind(), owner.name()));
    posting.add(asset, outside, Account::Balance(owner, Part::Available), amount);
    posting
}

/// The reservations of an accepted intent: each provider's output, and a prefunded input.
pub fn reserved(terms: &Terms) -> Posting {
    promised(PostingReason::Reserve, terms, Part::Available, Part::Reserved)
}

/// The reservations are released.
pub fn released(terms: &Terms) -> Posting {
    reserved(terms).backwards(PostingReason::Release)
}

fn promised(reason: PostingReason, terms: &Terms, from: Part, to: Part) -> Posting {
    let mut posting = Posting::new(reason);
    for slice in &terms.plan.slices {
        posting.add(&terms.output.asset, provider(slice, from), provider(slice, to), slice.output);
    }
    if let Some(owner) = funder(terms) {
        let half = |part| Account::Balance(owner.clone(), part);
        posting.add(&terms.input.asset, half(from), half(to), terms.plan.priced.input);
    }
    posting
}

/// The funds were pulled into the escrow.
pub fn locked(terms: &Terms) -> Posting {
    let mut posting = Posting::new(PostingReason::Lock);
    posting.add(&terms.input.asset, user(&terms.request), Account::Escrow, terms.plan.priced.input);
    posting
}

/// The payout begins: the providers hand over what they reserved.
pub fn converted(terms: &Terms) -> Posting {
    let mut posting = Posting::new(PostingReason::Convert);
    for slice in &terms.plan.slices {
        posting.add(&terms.output.asset, provider(slice, Part::Reserved), Account::Clearing, slice.output);
    }
    posting
}

/// The payout failed: the providers get back the output, and the partner its prefunded input.
pub fn returned(terms: &Terms) -> Posting {
    let mut posting = Posting::new(PostingReason::Return);
    for slice in &terms.plan.slices {
        posting.add(&terms.output.asset, Account::Clearing, provider(slice, Part::Available), slice.output);
    }
    if let Some(owner) = funder(terms) {
        let half = |part| Account::Balance(owner.clone(), part);
        let input = terms.plan.priced.input;
        posting.add(&terms.input.asset, half(Part::Reserved), half(Part::Available), input);
    }
    posting
}

/// The failed payout was made after all: the providers owe the output that they got back, which they may have reserved
/// for others by now, and the partner's prefunded input is reserved again.
pub fn taken_back(terms: &Terms) -> Posting {
    let mut posting = Posting::new(PostingReason::TakeBack);
    for slice in &terms.plan.slices {
        posting.add(&terms.output.asset, owed_by(slice), Account::Clearing, slice.output);
    }
    if let Some(owner) = funder(terms) {
        let half = |part| Account::Balance(owner.clone(), part);
        let input = terms.plan.priced.input;
        posting.add(&terms.input.asset, half(Part::Available), half(Part::Reserved), input);
    }
    posting
}

/// The recipient has the output; fees taken from it are earned; rounding residuals are posted.
pub fn paid(terms: &Terms) -> Posting {
    paid_from(terms, PostingReason::Pay, &Account::Clearing)
}

fn paid_from(terms: &Terms, reason: PostingReason, held: &Account) -> Posting {
    let (asset, priced) = (&terms.output.asset, &terms.plan.priced);
    let mut posting = Posting::new(reason);
    let recipient = Account::External(terms.reference.to_string());
    posting.add(asset, held.clone(), recipient, priced.output);
    posting.add(asset, held.clone(), Account::Fees, priced.payout_fee);
    for slice in &terms.plan.slices {
        let residual = Precise::of_parts(slice.residual_e18);
        posting.add(asset, owed_by(slice), Account::Residual, residual);
    }
    if terms.pays_on_chain() || terms.swaps() {
        // The solver's wallet paid all of it and kept the fee.
        for slice in &terms.plan.slices {
            posting.add(asset, claim(&slice.provider_id), claim(&terms.plan.solver_id), slice.output);
        }
        posting.add(asset, claim(&terms.plan.solver_id), Account::Claim(Claimant::House), priced.payout_fee);
    }
    posting
}

fn claim(provider: &str) -> Account {
    Account::Claim(Claimant::Provider(provider.to_owned()))
}

fn debt(terms: &Terms) -> Account {
    Account::Debt(terms.reference.to_string())
}

/// The funds are released before the payout's final answer: from now on the output is owed.
pub fn owed(terms: &Terms) -> Posting {
    let mut posting = Posting::new(PostingReason::Owe);
    posting.add(&terms.output.asset, Account::Clearing, debt(terms), terms.plan.priced.gross_output);
    posting
}

pub fn debt_paid(terms: &Terms) -> Posting {
    paid_from(terms, PostingReason::PayDebt, &debt(terms))
}

/// Who gets the output of a debt that is not paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebtTo {
    /// The providers, who had handed it over.
    Providers,
    /// The providers, who had got it back before and owe it ([`taken_back`]).
    ProvidersOwed,
}

/// The debt ends: the output was not paid, and the funds were returned.
pub fn debt_released(terms: &Terms, to: DebtTo) -> Posting {
    let mut posting = Posting::new(PostingReason::ReleaseDebt);
    for slice in &terms.plan.slices {
        let to = match to {
            DebtTo::Providers => provider(slice, Part::Available),
            DebtTo::ProvidersOwed => owed_by(slice),
        };
        posting.add(&terms.output.asset, debt(terms), to, slice.output);
    }
    posting
}

/// The output was not paid, and the input was returned.
pub fn debt_returned(terms: &Terms, to: DebtTo) -> Posting {
    let mut posting = Posting { reason: PostingReason::ReturnDebt, ..debt_released(terms, to) };
    given_back(&mut posting, terms, &user(&terms.request));
    posting
}

/// The payment came back: the output is owed. The house bears what the bank has deducted from what `came`; `None`: nothing.
pub fn reversed(terms: &Terms, came: Option<Minor>) -> Posting {
    let (asset, output) = (&terms.output.asset, terms.plan.priced.output);
    let came = came.map_or(output, |came| came.min(output));
    let mut posting = Posting::new(PostingReason::Reverse);
    posting.add(asset, Account::External(terms.reference.to_string()), debt(terms), came);
    let deducted = output.checked_sub(came).unwrap_or(Minor::ZERO);
    posting.add(asset, Account::House, debt(terms), deducted);
    posting
}

/// The bank took the return back: the payment stands.
pub fn reversal_undone(terms: &Terms, came: Option<Minor>) -> Posting {
    reversed(terms, came).backwards(PostingReason::PayAgain)
}

/// The returned payment was made another way.
pub fn paid_again(terms: &Terms) -> Posting {
    let mut posting = Posting::new(PostingReason::PayAgain);
    let recipient = Account::External(terms.reference.to_string());
    posting.add(&terms.output.asset, debt(terms), recipient, terms.plan.priced.output);
    posting
}

/// The providers get back the output that the bank returned, with the fee taken from it. The input was returned to the
/// user; the providers, who have received it, owe it.
pub fn reversal_given_back(terms: &Terms) -> Posting {
    let back =
        funder(terms).map_or_else(|| user(&terms.request), |owner| Account::Balance(owner, Part::Available));
    reversal_given_to(terms, &back)
}

/// The same when the escrow had returned the input: the user has it, and the providers owe it to the house, which gave it
/// to them.
pub fn reversal_given_to_house(terms: &Terms) -> Posting {
    reversal_given_to(terms, &Account::House)
}

fn reversal_given_to(terms: &Terms, back: &Account) -> Posting {
    let mut posting = Posting::new(PostingReason::ReturnReversed);
    posting.add(&terms.output.asset, Account::Fees, debt(terms), terms.plan.priced.payout_fee);
    posting.moves.extend(debt_released(terms, DebtTo::Providers).moves);
    given_back(&mut posting, terms, back);
    posting
}

/// The input is returned from the service's funds; the providers, who have received it, owe it.
fn given_back(posting: &mut Posting, terms: &Terms, to: &Account) {
    let asset = &terms.input.asset;
    for slice in &terms.plan.slices {
        posting.add(asset, owed_by(slice), to.clone(), slice.input);
    }
    posting.add(asset, Account::Fees, to.clone(), terms.plan.priced.protocol_fee);
}

/// The desk has converted, and the order ended without it.
pub fn conversion_kept(terms: &Terms) -> Posting {
    exchanged(PostingReason::KeepConversion, terms, &Account::Desk, &position(terms))
}

/// The order is paid after all.
pub fn conversion_used(terms: &Terms) -> Posting {
    conversion_kept(terms).backwards(PostingReason::UseConversion)
}

/// The house has the position, and carries the result of what is done with it.
pub fn position_closed(terms: &Terms) -> Posting {
    exchanged(PostingReason::CloseConversion, terms, &position(terms), &Account::House)
}

/// The same of a position that the house had taken over and the order has used.
pub fn short_position_closed(terms: &Terms) -> Posting {
    position_closed(terms).backwards(PostingReason::CloseConversion)
}

/// The conversion's output from one account to another, and its input back.
fn exchanged(reason: PostingReason, terms: &Terms, from: &Account, to: &Account) -> Posting {
    let mut posting = Posting::new(reason);
    for slice in &terms.plan.slices {
        posting.add(&terms.output.asset, from.clone(), to.clone(), slice.output);
        posting.add(&terms.input.asset, to.clone(), from.clone(), slice.input);
    }
    posting
}

fn position(terms: &Terms) -> Account {
    Account::Position(terms.reference.to_string())
}

/// The providers have the input, less the fees taken from it.
pub fn settled(terms: &Terms) -> Posting {
    let held = funder(terms).map_or(Account::Escrow, |owner| Account::Balance(owner, Part::Reserved));
    let mut posting = settled_from(terms, &held);
    if held == Account::Escrow {
        // The solver's wallet received all of it.
        let solver = &terms.plan.solver_id;
        hold(&mut posting, terms, &claim(solver));
        let fee = terms.plan.priced.protocol_fee;
        posting.add(&terms.input.asset, claim(solver), Account::Claim(Claimant::House), fee);
    }
    posting
}

/// Like `settled`, when the escrow has no funds although the recipient was paid: the service bears the loss and owes
/// the providers the input that no wallet received.
pub fn settled_by_house(terms: &Terms) -> Posting {
    let mut posting = settled_from(terms, &Account::House);
    hold(&mut posting, terms, &Account::Claim(Claimant::House));
    posting
}

/// `holder` has each provider's part of the input.
fn hold(posting: &mut Posting, terms: &Terms, holder: &Account) {
    for slice in &terms.plan.slices {
        posting.add(&terms.input.asset, holder.clone(), claim(&slice.provider_id), slice.input);
    }
}

fn settled_from(terms: &Terms, held: &Account) -> Posting {
    let (asset, priced) = (&terms.input.asset, &terms.plan.priced);
    let mut posting = Posting::new(PostingReason::Settle);
    for slice in &terms.plan.slices {
        posting.add(asset, held.clone(), provider(slice, Part::Available), slice.input);
    }
    posting.add(asset, held.clone(), Account::Fees, priced.protocol_fee);
    // What the fee's rounding cuts off is in the solver's part.
    let residual = Precise::of_parts(priced.fee_residual_e18);
    posting.add(asset, Account::Owed(terms.plan.solver_id.clone()), Account::Residual, residual);
    for item in priced.fees.iter().filter(|item| item.collection == Collection::Absorbed) {
        let network = Account::External("network".to_owned());
        posting.add(&item.currency, Account::House, network, item.amount_minor);
    }
    posting
}

/// The escrow returned the funds.
pub fn refunded(terms: &Terms) -> Posting {
    locked(terms).backwards(PostingReason::Refund)
}

/// A reorganization removed the lock, and with it the funds from the escrow.
pub fn lock_lost(terms: &Terms) -> Posting {
    locked(terms).backwards(PostingReason::LockLost)
}

fn user(request: &IntentRequest) -> Account {
    Account::External(request.user.to_lowercase())
}

fn owed_by(slice: &Slice) -> Account {
    Account::Owed(slice.provider_id.clone())
}

fn provider(slice: &Slice, part: Part) -> Account {
    Account::Balance(Owner::Provider(slice.provider_id.clone()), part)
}

/// The owner that prefunded the input, if it is not locked on the chain.
fn funder(terms: &Terms) -> Option<Owner> {
    match terms.plan.funding {
        InputFunding::Permit | InputFunding::Deposit => None,
        InputFunding::PartnerBalance { .. } => {
            Some(Owner::Partner { id: terms.partner_id.to_string(), livemode: terms.livemode })
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
