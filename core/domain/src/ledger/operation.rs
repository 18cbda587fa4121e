//! What operators post to the ledger: one requests it, another one approves it.
//!
//! ```text
//! withdrawal        owner available    -> outside             the owner took money out
//! return            owner available    -> outside             a deposit was sent back
//! adjustment        house             <-> an account          what differs from the world outside is put right
//! fee_sweep         fees               -> external:treasury   earned fees were moved to an account of the service's own
//! transfer          provider available -> provider available  inventory changed hands
//! claim_settlement  claimant's claim   -> debtor's claim      the debtor's wallet has paid
//! ```

use serde::{Deserialize, Serialize};

use super::{Account, Claimant, Owner, Part, Posting, PostingReason};
use crate::money::Minor;

/// What an operator posts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Operation {
    /// An owner took money out.
    Withdrawal { owner: Owner, asset: String, amount: Minor },
    /// Money that came in was sent back: all of a deposit, or a part.
    Return { owner: Owner, asset: String, amount: Minor, deposit: String },
    /// An account is put right, against the house.
    Adjustment { account: Adjusted, direction: Direction, asset: String, amount: Minor },
    /// Earned fees were moved to an account of the service's own.
    FeeSweep { asset: String, amount: Minor },
    /// Inventory changed hands between providers.
    Transfer { from: String, to: String, asset: String, amount: Minor },
    /// What a debtor's wallet held of a claimant's funds was paid.
    ClaimSettlement { debtor: Claimant, claimant: Claimant, asset: String, amount: Minor },
}

/// What can be adjusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adjusted {
    Available(Owner),
    /// What a provider owes.
    Owed(String),
    Fees,
}

/// Which way an adjustment goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The account has more than before.
    Credit,
    Debit,
}

/// It cannot be posted, whatever the balances.
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
            Self::Transfer { .. } => "transfer",
            Self::ClaimSettlement { .. } => "claim_settlement",
        }
    }

    pub fn asset(&self) -> &str {
        match self {
            Self::Withdrawal { asset, .. }
            | Self::Return { asset, .. }
            | Self::Adjustment { asset, .. }
            | Self::FeeSweep { asset, .. }
            | Self::Transfer { asset, .. }
            | Self::ClaimSettlement { asset, .. } => asset,
        }
    }

    /// The posting that it is.
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
            Self::Transfer { from, to, amount, .. } => {
                (PostingReason::Transfer, provider(from), provider(to), amount)
            }
            Self::ClaimSettlement { debtor, claimant, amount, .. } => {
                let (from, to) = (Account::Claim(claimant.clone()), Account::Claim(debtor.clone()));
                (PostingReason::SettleClaim, from, to, amount)
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

    /// The accounts that it moves, with the asset: another operation on one of them is another version of them.
    pub fn touches(&self) -> Vec<String> {
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
        (0_u8..8, any::<u8>(), 0_u128..50, any::<bool>()).prop_map(move |(kind, who, amount, credit)| {
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
                6 => {
                    let to = if credit { "south" } else { "north" }.to_owned();
                    Operation::Transfer { from: "north".into(), to, asset, amount }
                }
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
        fn any_operations_keep_the_trial_balance_at_zero_and_survive_being_written_down(
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

    #[test]
    fn each_operation_moves_what_its_name_says() {
        let north = || Owner::Provider("north".into());
        let (asset, amount) = (|| "USD".to_owned(), Minor::new(7));
        for (operation, from, to) in [
            (
                Operation::Withdrawal { owner: north(), asset: asset(), amount },
                "provider:north:available",
                "external:provider:north:total",
            ),
            (
                Operation::Adjustment {
                    account: Adjusted::Owed("north".into()),
                    direction: Direction::Credit,
                    asset: asset(),
                    amount,
                },
                "house::total",
                "provider:north:owed",
            ),
            (Operation::FeeSweep { asset: asset(), amount }, "fees::total", "external:treasury:total"),
            (
                Operation::ClaimSettlement {
                    debtor: Claimant::Provider("north".into()),
                    claimant: Claimant::House,
                    asset: asset(),
                    amount,
                },
                "house::claim",
                "provider:north:claim",
            ),
        ] {
            let mut books = Books::default();
            books.take(&deposited(north(), "USD", amount));
            books.take(&deposited(Owner::Provider("north".into()), "EUR", amount));
            let before = (books.minor(from, "USD"), books.minor(to, "USD"));
            books.take(&operation.posting().unwrap());
            let after = (books.minor(from, "USD"), books.minor(to, "USD"));
            assert_eq!((before.0 - 7, before.1 + 7), after, "{operation:?}");
        }
    }
}
