//! What operators post to the ledger: one requests it, another one approves it.
//!
//! ```text
//! withdrawal        owner available    -> outside             the owner took money out
//! return            owner available    -> outside             a deposit was sent back
//! adjustment        house             <-> an account          a difference to an outside account is corrected
//! fee_sweep         fees               -> external:treasury   earned fees were moved to the service's own account
//! charge            house              -> external:bank       the bank has charged a fee
//! transfer          provider available -> provider available  inventory moved between providers
//! claim_settlement  claimant's claim   -> debtor's claim      the debtor's wallet has paid
//! gift              external:gift      -> escrow              somebody sent tokens to the escrow, for no order
//! ```

use serde::{Deserialize, Serialize};

use super::{Account, Claimant, Owner, Part, Posting, PostingReason};
use crate::money::Minor;

/// A posting by operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Operation {
    /// An owner took money out.
    Withdrawal { owner: Owner, asset: String, amount: Minor },
    /// Received money was sent back: all of a deposit, or a part.
    Return { owner: Owner, asset: String, amount: Minor, deposit: String },
    /// A correction of an account, against the house.
    Adjustment { account: Adjusted, direction: Direction, asset: String, amount: Minor },
    /// Earned fees were moved to an account of the service's own.
    FeeSweep { asset: String, amount: Minor },
    /// The bank has charged a fee: an entry of its statement that is about no order.
    Charge {
        asset: String,
        amount: Minor,
        /// The bank's reference of the entry, which is the operation's id.
        entry: String,
    },
    /// Inventory was moved between providers.
    Transfer { from: String, to: String, asset: String, amount: Minor },
    /// A debtor's wallet paid what it held of a claimant's funds.
    ClaimSettlement { debtor: Claimant, claimant: Claimant, asset: String, amount: Minor },
    /// Somebody has sent tokens to the escrow's address, for no order. Nobody can take them out again.
    Gift { asset: String, amount: Minor },
}

/// The accounts that can be adjusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adjusted {
    Available(Owner),
    /// What a provider owes.
    Owed(String),
    Fees,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The balance increases.
    Credit,
    Debit,
}

/// Why an operation cannot be posted, whatever the balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    #[error("the amount is zero")]
    Nothing,
    #[error("both sides are one account")]
    OneAccount,
}

impl Operation {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Withdrawal { .. } => "withdrawal",
            Self::Return { .. } => "return",
            Self::Adjustment { .. } => "adjustment",
            Self::FeeSweep { .. } => "fee_sweep",
            Self::Charge { .. } => "charge",
            Self::Transfer { .. } => "transfer",
            Self::ClaimSettlement { .. } => "claim_settlement",
            Self::Gift { .. } => "gift",
        }
    }

    pub fn asset(&self) -> &str {
        match self {
            Self::Withdrawal { asset, .. }
            | Self::Return { asset, .. }
            | Self::Adjustment { asset, .. }
            | Self::FeeSweep { asset, .. }
            | Self::Charge { asset, .. }
            | Self::Transfer { asset, .. }
            | Self::ClaimSettlement { asset, .. }
            | Self::Gift { asset, .. } => asset,
        }
    }

    pub fn posting(&self) -> Result<Posting, OperationError> {
        let available = |owner: &Owner| Account::Balance(owner.clone(), Part::Available);
        let provider = |id: &String| available(&Owner::Provider(id.clone()));
        let outside = |owner: &Owner| Account::External(format!("{}:{}", owner.kind(), owner.name()));
        let (reason, from, to, amount) = match self {
            Self::Withdrawal { owner, amount, .. } => {
                (PostingReason::Withdraw, available(owner), outside(owner), amount)
            }
            Self::Return { owner, amount, .. } => {
                (PostingReason::ReturnDeposit, available(owner), outside(owner), amount)
            }
            Self::Adjustment { account, direction, amount, .. } => {
                let account = match account {
                    Adjusted::Available(owner) => available(owner),
                    Adjusted::Owed(provider) => Account::Owed(provider.clone()),
                    Adjusted::Fees => Account::Fees,
                };
                match direction {
                    Direction::Credit => (PostingReason::Adjust, Account::House, account, amount),
                    Direction::Debit => (PostingReason::Adjust, account, Account::House, amount),
                }
            }
            Self::FeeSweep { amount, .. } => {
                (PostingReason::SweepFees, Account::Fees, Account::External("treasury".to_owned()), amount)
            }
            Self::Charge { amount, .. } => {
                (PostingReason::Charge, Account::House, Account::External("bank".to_owned()), amount)
            }
            Self::Transfer { from, to, amount, .. } => {
                (PostingReason::Transfer, provider(from), provider(to), amount)
            }
            Self::ClaimSettlement { debtor, claimant, amount, .. } => {
                let (from, to) = (Account::Claim(claimant.clone()), Account::Claim(debtor.clone()));
                (PostingReason::SettleClaim, from, to, amount)
            }
            Self::Gift { amount, .. } => {
                (PostingReason::Gift, Account::External("gift".to_owned()), Account::Escrow, amount)
            }
        };
        if amount.is_zero() {
            return Err(OperationError::Nothing);
        }
        if from == to {
            return Err(OperationError::OneAccount);
        }
        let mut posting = Posting::new(reason);
        posting.add(self.asset(), from, to, *amount);
        Ok(posting)
    }

    /// The accounts that the operation changes, with the asset: another operation on one of them changes their version.
    /// A charge changes none that could fall short: its version is that of the bank's entry.
    pub fn touches(&self) -> Vec<String> {
        if let Self::Charge { asset, entry, .. } = self {
            return vec![format!("entry:{entry}/{asset}")];
        }
        let posting = self.posting().ok();
        let accounts = posting.iter().flat_map(|posting| &posting.moves).flat_map(|one| [&one.from, &one.to]);
        accounts
            .filter(|account| !matches!(account, Account::External(_) | Account::House))
            .map(|account| {
                let (kind, owner, part) = account.columns();
                format!("{kind}:{owner}:{part}/{}", self.asset())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::deposited;
    use crate::ledger::tests::Books;

    fn owner(choice: u8) -> Owner {
        match choice % 3 {
            0 => Owner::Provider("north".into()),
            1 => Owner::Provider("south".into()),
            _ => Owner::Partner { id: "ptn_1".into(), livemode: false },
        }
    }

    fn operations() -> impl Strategy<Value = Operation> {
        let asset = || "USD".to_owned();
        (0_u8..10, any::<u8>(), 0_u128..50, any::<bool>()).prop_map(move |(kind, who, amount, credit)| {
            let (owner, asset, amount) = (owner(who), asset(), Minor::new(amount));
            let direction = if credit { Direction::Credit } else { Direction::Debit };
            let adjusted =
                |account| Operation::Adjustment { account, direction, asset: asset.clone(), amount };
            match kind {
                0 => Operation::Withdrawal { owner, asset, amount },
                1 => Operation::Return { owner, asset, amount, deposit: "wire-1".into() },
                2 => adjusted(Adjusted::Available(owner)),
                3 => adjusted(Adjusted::Owed("north".into())),
                4 => adjusted(Adjusted::Fees),
                5 => Operation::FeeSweep { asset, amount },
                6 => Operation::Charge { asset, amount, entry: "BK1".into() },
                7 => {
                    let to = if credit { "south" } else { "north" }.to_owned();
                    Operation::Transfer { from: "north".into(), to, asset, amount }
                }
                8 => Operation::Gift { asset, amount },
                _ => {
                    let debtor = if credit { Claimant::House } else { Claimant::Provider("north".into()) };
                    let claimant = Claimant::Provider("south".into());
                    Operation::ClaimSettlement { debtor, claimant, asset, amount }
                }
            }
        })
    }

    proptest! {
        #[test]
        fn any_operations_keep_the_trial_balance_and_survive_serialization(
            all in prop::collection::vec(operations(), 0..40)
        ) {
            let mut books = Books::default();
            for choice in 0..3 {
                books.take(&deposited(owner(choice), "USD", Minor::new(100_000)));
            }
            for operation in all {
                let written = serde_json::to_value(&operation).unwrap();
                prop_assert_eq!(&serde_json::from_value::<Operation>(written).unwrap(), &operation);
                match operation.posting() {
                    Ok(posting) => {
                        prop_assert!(!operation.touches().is_empty());
                        books.take(&posting);
                    }
                    Err(OperationError::OneAccount) => {
                        prop_assert!(matches!(operation, Operation::Transfer { .. }), "{:?}", operation);
                    }
                    Err(OperationError::Nothing) => {}
                }
            }
        }
    }
}
