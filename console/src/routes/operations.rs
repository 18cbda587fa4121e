//! Operations of the ledger: an operator requests a posting, another one approves it.

use dvp_core::operators::ledger_operations::{LedgerError, request};
use dvp_core::operators::requests::Maker;
use dvp_domain::ledger::operation::{Adjusted, Direction, Operation};
use dvp_domain::ledger::{Claimant, Owner};
use dvp_domain::money::Minor;
use dvp_store::{PgConnection, partners::registry};
use serde::Deserialize;

use crate::blocks::{Field, Form as FormBlock};
use crate::error::{PageError, sentence};
use crate::request::{Reply, Sent, Visit};
use crate::state::Console;

/// The operations, and which accounts each of them names.
const OPERATIONS: [(&str, &str); 9] = [
    ("charge", "Charge of the bank: the id is the bank's reference of the entry"),
    ("withdrawal", "Withdrawal of an owner"),
    ("return", "Return of a deposit: the other is the deposit's id"),
    ("credit", "Adjustment: the account gets more, against the house"),
    ("debit", "Adjustment: the account gets less, against the house"),
    ("fee_sweep", "Sweep of earned fees"),
    ("transfer", "Transfer: from the account to the other provider"),
    ("claim_settlement", "Settlement of a claim: the account has paid the other"),
    ("gift", "Gift to the escrow: the id is the hash of the transaction"),
];

/// What a form proposes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proposal {
    pub id: String,
    pub asset: String,
    pub amount: String,
}

/// The form that requests an operation.
pub(crate) fn form(proposal: &Proposal) -> FormBlock {
    let given = |field: Field, value: &str| Field { value: value.to_owned(), ..field };
    let options = OPERATIONS.map(|(value, name)| (value.to_owned(), name.to_owned())).into();
    let fields = vec![
        Field { options, ..Field::choice("operation", "Operation", []) },
        given(Field::text("id", "Id of the operation"), &proposal.id),
        given(Field::text("asset", "Asset"), &proposal.asset),
        given(Field::text("amount", "Amount"), &proposal.amount),
        Field::text("account", "Account (provider:id, partner:name, owed:id, fees, house)").optional(),
        Field::text("other", "Other (deposit, provider, claimant)").optional(),
        Field::text("reason", "Reason"),
        Field::text("evidence", "Evidence"),
    ];
    FormBlock::new("/treasury/operations", "Request the operation", fields)
}

#[derive(Debug, Deserialize)]
pub(crate) struct OperationForm {
    operation: String,
    id: String,
    asset: String,
    /// A decimal number of the asset.
    amount: String,
    #[serde(default)]
    account: String,
    #[serde(default)]
    other: String,
    reason: String,
    evidence: String,
}

/// The account that a form names.
enum Named {
    Owner(Owner),
    Owed(String),
    Fees,
    House,
}

impl OperationForm {
    fn amount(&self, console: &Console) -> Result<Minor, PageError> {
        let asset = self.asset.trim();
        let decimals = console.settings.decimals.get(asset);
        let decimals = decimals.ok_or_else(|| PageError::Invalid(format!("There is no asset {asset}.")))?;
        Minor::parse_decimal(&self.amount.trim().replace(',', ""), *decimals)
            .map_err(|error| PageError::Invalid(format!("The amount {error}.")))
    }

    async fn named(&self, conn: &mut PgConnection, console: &Console) -> Result<Named, PageError> {
        let name = self.account.trim();
        let wrong = || PageError::Invalid(format!("{name} is no account of this operation."));
        match name.split_once(':') {
            None if name == "fees" => Ok(Named::Fees),
            None if name == "house" => Ok(Named::House),
            Some(("provider", id)) => Ok(Named::Owner(Owner::Provider(id.to_owned()))),
            Some(("owed", id)) => Ok(Named::Owed(id.to_owned())),
            Some(("partner", name)) => {
                let partner = registry::find_partner(conn, name).await?;
                let partner =
                    partner.ok_or_else(|| PageError::Invalid(format!("There is no partner {name}.")))?;
                let livemode = console.settings.environment.is_live();
                Ok(Named::Owner(Owner::Partner { id: partner.id, livemode }))
            }
            _ => Err(wrong()),
        }
    }

    async fn owner(&self, conn: &mut PgConnection, console: &Console) -> Result<Owner, PageError> {
        match self.named(conn, console).await? {
            Named::Owner(owner) => Ok(owner),
            Named::Owed(_) | Named::Fees | Named::House => {
                Err(PageError::Invalid("This operation is about a provider or a partner.".to_owned()))
            }
        }
    }

    async fn operation(&self, conn: &mut PgConnection, console: &Console) -> Result<Operation, PageError> {
        let (asset, amount) = (self.asset.trim().to_owned(), self.amount(console)?);
        let other = self.other.trim().to_owned();
        let claimant = |name: Named| match name {
            Named::House => Ok(Claimant::House),
            Named::Owner(Owner::Provider(id)) => Ok(Claimant::Provider(id)),
            Named::Owner(_) | Named::Owed(_) | Named::Fees => {
                Err(PageError::Invalid("Claims are of providers and of the house.".to_owned()))
            }
        };
        Ok(match self.operation.as_str() {
            "charge" => Operation::Charge { asset, amount, entry: self.id.trim().to_owned() },
            "withdrawal" => Operation::Withdrawal { owner: self.owner(conn, console).await?, asset, amount },
            "return" => {
                let owner = self.owner(conn, console).await?;
                Operation::Return { owner, asset, amount, deposit: other }
            }
            "credit" | "debit" => {
                let account = match self.named(conn, console).await? {
                    Named::Owner(owner) => Adjusted::Available(owner),
                    Named::Owed(provider) => Adjusted::Owed(provider),
                    Named::Fees => Adjusted::Fees,
                    Named::House => {
                        return Err(PageError::Invalid(
                            "The house is the other side of an adjustment.".to_owned(),
                        ));
                    }
                };
                let direction = if self.operation == "credit" { Direction::Credit } else { Direction::Debit };
                Operation::Adjustment { account, direction, asset, amount }
            }
            "fee_sweep" => Operation::FeeSweep { asset, amount },
            "gift" => Operation::Gift { asset, amount },
            "transfer" => match self.owner(conn, console).await? {
                Owner::Provider(from) => Operation::Transfer { from, to: other, asset, amount },
                Owner::Partner { .. } => {
                    return Err(PageError::Invalid("A transfer is between providers.".to_owned()));
                }
            },
            "claim_settlement" => {
                let debtor = claimant(self.named(conn, console).await?)?;
                let claimant = if other == "house" { Claimant::House } else { Claimant::Provider(other) };
                Operation::ClaimSettlement { debtor, claimant, asset, amount }
            }
            unknown => return Err(PageError::Invalid(format!("There is no operation {unknown}."))),
        })
    }
}

pub(crate) async fn make(Visit { console, operator }: Visit, Sent(form): Sent<OperationForm>) -> Reply {
    const ROUTE: &str = "POST /treasury/operations";
    let mut conn = console.acting().await?;
    let operation = form.operation(&mut conn, &console).await?;
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let requested =
        request(&mut conn, form.id.trim(), &operation, maker).await.map_err(|error| match error {
            LedgerError::Store(error) => error.into(),
            refused => PageError::Conflict(sentence(&refused.to_string())),
        });
    let subject = format!("{}: {}", form.operation, form.id);
    operator.requested(&mut conn, ROUTE, &subject, requested).await
}
