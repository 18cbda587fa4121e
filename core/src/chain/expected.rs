//! Compares the chain facts of an order with the order's commands. Pure.
//!
//! A matching id is no proof: an account that may lock under it chooses amount, token and receivers. A fact counts as
//! the order's only when every field equals that of one of the order's commands.
//!
//! A fact that differs is stored and logged, and never applied.
//!
//! Kept by `core/tests/it/compared.rs::a_smaller_lock_is_set_aside_and_the_right_one_is_applied`.

use alloy::primitives::{Address, B256, U256, keccak256};

use serde_json::{Value, json};

use dvp_domain::chain::{
    ChainCommand, ChainFact, CommandKind, CreateCommand, Hex32, LockTerms, OutputArgs, SwapCommand, SwapTerms,
};

/// A field in which a fact differs from its command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {reported}, but {requested} was requested")]
pub struct Difference {
    pub field: &'static str,
    pub requested: String,
    pub reported: String,
}

impl Difference {
    /// No command of this kind was requested, so that nothing differs from one.
    pub fn is_unrequested(&self) -> bool {
        self.field == UNREQUESTED
    }
}

const UNREQUESTED: &str = "command";

pub const FIELDS: [&str; 14] = [
    UNREQUESTED,
    "amount",
    "timelock",
    "swap",
    "payout_ref",
    "receiver",
    "token",
    "payer",
    "maker",
    "solver",
    "fill_deadline",
    "hashlock",
    "terms",
    "lock_by",
];

/// The fact that follows when a command succeeds.
pub fn goal(command: &ChainCommand) -> ChainFact {
    match command {
        ChainCommand::Create(create) => created(create),
        ChainCommand::Fill { payout_ref, .. } => ChainFact::Filled { payout_ref: payout_ref.clone() },
        ChainCommand::Settle { .. } => ChainFact::Settled { swap: None },
        ChainCommand::Swap(swap) => ChainFact::Settled { swap: Some(Box::new(swapped(swap))) },
        ChainCommand::Anchor { .. } => ChainFact::Anchored,
        ChainCommand::Transfer(transfer) => ChainFact::Transferred {
            payer: transfer.payer.clone(),
            receiver: transfer.receiver.clone(),
            token: transfer.token.clone(),
            amount: transfer.amount.clone(),
        },
        ChainCommand::Cancel { .. } | ChainCommand::ReturnFilled { .. } => ChainFact::Cancelled,
        ChainCommand::Refund { .. } => ChainFact::Refunded,
    }
}

/// A further fact of the same transaction: a swap fills the order and pays its output.
fn also_tells(command: &ChainCommand) -> Vec<ChainFact> {
    let ChainCommand::Swap(swap) = command else { return Vec::new() };
    let SwapCommand { solver, output, terms, .. } = &**swap;
    let paid = ChainFact::Transferred {
        payer: solver.clone(),
        receiver: output.receiver.clone(),
        token: output.token.clone(),
        amount: output.amount.clone(),
    };
    let filled = binding(output, terms).map(|payout_ref| ChainFact::Filled { payout_ref });
    filled.into_iter().chain([paid]).collect()
}

fn created(create: &CreateCommand) -> ChainFact {
    let lock = LockTerms {
        maker: create.maker.clone(),
        solver: create.solver.clone(),
        token: create.token.clone(),
        fill_deadline: create.fill_deadline,
        hashlock: create.hashlock.clone(),
        terms: create.terms.clone(),
    };
    ChainFact::Created { timelock: create.timelock, amount: create.amount.clone(), lock: Box::new(lock) }
}

fn swapped(swap: &SwapCommand) -> SwapTerms {
    SwapTerms {
        maker: swap.maker.clone(),
        solver: swap.solver.clone(),
        token: swap.token.clone(),
        amount: swap.amount.clone(),
        lock_by: swap.lock_by,
        // An unreadable output has no hash, and no event has an empty one.
        terms: binding(&swap.output, &swap.terms).unwrap_or_default(),
    }
}

/// `Orders.binding`: the hash of the output's ABI encoding, four words.
pub fn binding(output: &OutputArgs, agreed: &str) -> Option<Hex32> {
    let address = |text: &str| text.parse::<Address>().ok().map(|address| address.into_word());
    let amount = U256::from_str_radix(&output.amount, 10).ok()?;
    let words = [
        address(&output.token)?,
        address(&output.receiver)?,
        B256::from(amount),
        agreed.parse::<B256>().ok()?,
    ];
    Some(keccak256(words.map(|word| word.0).as_flattened()).to_string())
}

/// The first field of a lock, a swap, a fill or a payment that differs from the commands of its entity. Other facts
/// have no such fields.
pub fn difference(fact: &ChainFact, requested: &[ChainCommand]) -> Option<Difference> {
    if !is_compared(fact) {
        return None;
    }
    let expected =
        requested.iter().flat_map(|command| [goal(command)].into_iter().chain(also_tells(command)));
    let mut first = None;
    for expected in expected {
        match compare(fact, &expected) {
            Compared::Same => return None,
            Compared::Differs(found) => first = first.or(Some(found)),
            Compared::AnotherKind => {}
        }
    }
    // Any account that has the preimage can settle.
    if first.is_none() && matches!(fact, ChainFact::Settled { swap: None }) {
        return None;
    }
    let unrequested =
        || Difference { field: UNREQUESTED, requested: "nothing".into(), reported: format!("{fact:?}") };
    Some(first.unwrap_or_else(unrequested))
}

/// The times of a lock or a swap that differs from its commands in them alone, as the commands write them. `None`: it does
/// not differ, or in something else as well.
pub fn other_times(fact: &ChainFact, requested: &[ChainCommand]) -> Option<Value> {
    difference(fact, requested)?;
    let (mut adjusted, mut times) = (Vec::new(), None);
    for command in requested {
        adjusted.push(match (fact, command) {
            (ChainFact::Created { timelock, lock, .. }, ChainCommand::Create(create)) => {
                let (timelock, fill_deadline) = (*timelock, lock.fill_deadline);
                times = Some(json!({"timelock": timelock, "fill_deadline": fill_deadline}));
                ChainCommand::Create(Box::new(CreateCommand {
                    timelock,
                    fill_deadline,
                    ..(**create).clone()
                }))
            }
            (ChainFact::Settled { swap: Some(swapped) }, ChainCommand::Swap(swap)) => {
                times = Some(json!({"lock_by": swapped.lock_by}));
                ChainCommand::Swap(Box::new(SwapCommand { lock_by: swapped.lock_by, ..(**swap).clone() }))
            }
            (_, command) => command.clone(),
        });
    }
    times.filter(|_| difference(fact, &adjusted).is_none())
}

/// Whether a fact is about an order's payment in tokens, which may be on another chain than the rest of the order.
pub fn is_of_payment(fact: &ChainFact) -> bool {
    match fact {
        ChainFact::Transferred { .. } | ChainFact::TransferLost => true,
        ChainFact::CommandFailed { command, .. } => command == CommandKind::Transfer.as_str(),
        ChainFact::Created { .. }
        | ChainFact::Filled { .. }
        | ChainFact::Settled { .. }
        | ChainFact::Cancelled
        | ChainFact::Refunded
        | ChainFact::Anchored
        | ChainFact::LockLost
        | ChainFact::FillLost => false,
    }
}

/// The lock of an order is on one chain, and so is its payment. The same id on another chain is a foreign use of its
/// contracts.
pub fn difference_of_chain(reported: i64, requested: i64) -> Option<Difference> {
    let differs = reported != requested;
    differs.then(|| Difference {
        field: "chain",
        requested: requested.to_string(),
        reported: reported.to_string(),
    })
}

/// Whether a fact contains fields that are compared with the commands.
pub const fn is_compared(fact: &ChainFact) -> bool {
    match fact {
        ChainFact::Created { .. }
        | ChainFact::Filled { .. }
        | ChainFact::Settled { .. }
        | ChainFact::Transferred { .. } => true,
        ChainFact::Cancelled
        | ChainFact::Refunded
        | ChainFact::Anchored
        | ChainFact::LockLost
        | ChainFact::FillLost
        | ChainFact::TransferLost
        | ChainFact::CommandFailed { .. } => false,
    }
}

enum Compared {
    Same,
    Differs(Difference),
    AnotherKind,
}

/// A field's name, its value in the fact and its value in the command.
type Field = (&'static str, String, String);

fn compare(reported: &ChainFact, requested: &ChainFact) -> Compared {
    let fields = match (reported, requested) {
        (
            ChainFact::Created { timelock, amount, lock },
            ChainFact::Created { timelock: requested_timelock, amount: requested_amount, lock: requested },
        ) => {
            let mut fields = lock_fields(lock, requested);
            fields.push(("amount", amount.clone(), requested_amount.clone()));
            fields.push(("timelock", timelock.to_string(), requested_timelock.to_string()));
            fields
        }
        (ChainFact::Settled { swap: reported }, ChainFact::Settled { swap: requested }) => {
            match (reported, requested) {
                (Some(reported), Some(requested)) => swap_fields(reported, requested),
                (reported, requested) => {
                    vec![("swap", reported.is_some().to_string(), requested.is_some().to_string())]
                }
            }
        }
        (ChainFact::Filled { payout_ref }, ChainFact::Filled { payout_ref: requested }) => {
            vec![("payout_ref", payout_ref.clone(), requested.clone())]
        }
        (
            ChainFact::Transferred { payer, receiver, token, amount },
            ChainFact::Transferred {
                payer: requested_payer,
                receiver: requested_receiver,
                token: requested_token,
                amount: requested_amount,
            },
        ) => vec![
            ("receiver", receiver.clone(), requested_receiver.clone()),
            ("amount", amount.clone(), requested_amount.clone()),
            ("token", token.clone(), requested_token.clone()),
            ("payer", payer.clone(), requested_payer.clone()),
        ],
        _ => return Compared::AnotherKind,
    };
    // Addresses and hashes are hex in either case; amounts contain no letters.
    let differs = |(_, reported, requested): &Field| !reported.eq_ignore_ascii_case(requested);
    match fields.into_iter().find(differs) {
        None => Compared::Same,
        Some((field, reported, requested)) => Compared::Differs(Difference { field, requested, reported }),
    }
}

fn lock_fields(reported: &LockTerms, requested: &LockTerms) -> Vec<Field> {
    vec![
        ("maker", reported.maker.clone(), requested.maker.clone()),
        ("solver", reported.solver.clone(), requested.solver.clone()),
        ("token", reported.token.clone(), requested.token.clone()),
        ("fill_deadline", reported.fill_deadline.to_string(), requested.fill_deadline.to_string()),
        ("hashlock", reported.hashlock.clone(), requested.hashlock.clone()),
        ("terms", reported.terms.clone(), requested.terms.clone()),
    ]
}

fn swap_fields(reported: &SwapTerms, requested: &SwapTerms) -> Vec<Field> {
    vec![
        ("maker", reported.maker.clone(), requested.maker.clone()),
        ("solver", reported.solver.clone(), requested.solver.clone()),
        ("token", reported.token.clone(), requested.token.clone()),
        ("amount", reported.amount.clone(), requested.amount.clone()),
        ("lock_by", reported.lock_by.to_string(), requested.lock_by.to_string()),
        ("terms", reported.terms.clone(), requested.terms.clone()),
    ]
}

#[cfg(test)]
mod tests;
