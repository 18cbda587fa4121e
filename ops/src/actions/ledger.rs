//! Operators' postings to the ledger, with two operators each.

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use dvp_core::operators::ledger_operations::request;
use dvp_core::operators::requests::RequestedChange;
use dvp_domain::ledger::operation::{Adjusted, Direction, Operation};
use dvp_domain::ledger::{Claimant, Owner};
use dvp_domain::money::Minor;

use crate::actions::approvals::{Approve, Deny};
use crate::actions::{Why, amount, one_of};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerAction {
    /// Request an operation of the ledger; another operator approves it. The same id again changes nothing.
    #[command(subcommand)]
    Request(Box<LedgerRequest>),
    /// Approve and post another operator's request.
    #[command(after_help = "Example:\n  dvp ledger approve --id W-17 --note 'wire sent' --config dvp.toml")]
    Approve(Approve),
    /// End a request without posting it. Its maker may, too.
    #[command(
        after_help = "Example:\n  dvp ledger reject --id W-17 --reason 'no such wire' --config dvp.toml"
    )]
    Reject(Deny),
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerRequest {
    /// An owner took money out.
    #[command(
        after_help = "Example:\n  dvp ledger request withdrawal --provider northwind --asset USD --amount-minor 5000 --id W-17 --reason 'requested by mail' --evidence 'wire 17' --config dvp.toml"
    )]
    Withdrawal {
        #[command(flatten)]
        owner: OwnerArgs,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// A deposit was sent back, or a part of it.
    #[command(
        after_help = "Example:\n  dvp ledger request return --partner acme --deposit wire-1 --asset USD --amount-minor 5000 --id R-3 --reason 'wrong account' --evidence 'wire 18' --config dvp.toml"
    )]
    Return {
        #[command(flatten)]
        owner: OwnerArgs,
        /// The deposit's id.
        #[arg(long)]
        deposit: String,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// An account is put right, against the house.
    #[command(
        after_help = "Example:\n  dvp ledger request adjustment --account available --provider northwind --direction credit --asset USD --amount-minor 12 --id A-2 --reason 'interest' --evidence 'statement 17' --config dvp.toml"
    )]
    Adjustment {
        /// Which account.
        #[arg(long, value_enum)]
        account: AdjustedArg,
        /// Of `available` and `owed`: the provider.
        #[arg(long, conflicts_with = "partner")]
        provider: Option<String>,
        /// Of `available`: the partner's name.
        #[arg(long)]
        partner: Option<String>,
        /// Credit: the account has more than before.
        #[arg(long, value_parser = one_of(["credit", "debit"], direction))]
        direction: Direction,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// Earned fees were moved to an account of the service's own.
    #[command(
        after_help = "Example:\n  dvp ledger request fee-sweep --asset USD --amount-minor 5000 --id F-11 --reason 'month end' --evidence 'transfer 9' --config dvp.toml"
    )]
    FeeSweep {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// The bank has charged a fee, which the house bears: a debit of a statement that is about no order. The id is the
    /// bank's reference of the entry.
    #[command(
        after_help = "Example:\n  dvp ledger request charge --id BK2611-77 --asset USD --amount-minor 350 --reason 'fee of November' --evidence 'statement 17, line 4' --config dvp.toml"
    )]
    Charge {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// Inventory changed hands between providers.
    #[command(
        after_help = "Example:\n  dvp ledger request transfer --from northwind --to meridian --asset USD --amount-minor 5000 --id T-4 --reason 'rebalanced' --evidence 'mail of both' --config dvp.toml"
    )]
    Transfer {
        #[arg(long)]
        from: String,
        #[arg(long)]
        to: String,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// Somebody has sent tokens to the escrow, for no order: the surplus of the break `balance_differs`. The id is the
    /// hash of their transaction.
    #[command(
        after_help = "Example:\n  dvp ledger request gift --id 0x5d… --asset USDC --amount-minor 1 --reason 'sent by a stranger' --evidence 'block 91' --config dvp.toml"
    )]
    Gift {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// A debtor's wallet has paid a claimant's funds to the claimant: `house`, or a provider's id.
    #[command(
        after_help = "Example:\n  dvp ledger request claim-settlement --debtor northwind --claimant house --asset USDC --amount-minor 5000 --id C-8 --reason 'monthly' --evidence '0x…' --config dvp.toml"
    )]
    ClaimSettlement {
        /// Who owed it.
        #[arg(long, value_parser = claimant)]
        debtor: Claimant,
        /// Whom it was owed to.
        #[arg(long, value_parser = claimant)]
        claimant: Claimant,
        #[command(flatten)]
        what: OperationArgs,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdjustedArg {
    Available,
    Owed,
    Fees,
}

/// Whose available balance.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct OwnerArgs {
    /// The provider's id.
    #[arg(long)]
    provider: Option<String>,
    /// The partner's name.
    #[arg(long)]
    partner: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OperationArgs {
    /// The unique id of the operation.
    #[arg(long)]
    id: String,
    /// The asset's symbol.
    #[arg(long)]
    asset: String,
    /// In minor units.
    #[arg(long, value_parser = amount)]
    amount_minor: Minor,
    #[command(flatten)]
    why: Why,
}

fn direction(text: &str) -> Option<Direction> {
    match text {
        "credit" => Some(Direction::Credit),
        "debit" => Some(Direction::Debit),
        _ => None,
    }
}

fn claimant(text: &str) -> Result<Claimant, String> {
    match text {
        "" => Err("house, or a provider's id".to_owned()),
        "house" => Ok(Claimant::House),
        provider => Ok(Claimant::Provider(provider.to_owned())),
    }
}

impl LedgerAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Request(wanted) => wanted.perform(desk).await,
            Self::Approve(args) => args.operation(desk).await,
            Self::Reject(args) => args.operation(desk).await,
        }
    }
}

impl LedgerRequest {
    async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let (operation, OperationArgs { id, why, .. }) = self.operation(desk).await?;
        let maker = desk.maker(&why.reason, &why.evidence);
        let requested: RequestedChange = request(desk.conn, &id, &operation, maker).await?;
        Ok(Outcome::requested(&requested))
    }

    async fn operation(self, desk: &mut Desk<'_>) -> anyhow::Result<(Operation, OperationArgs)> {
        Ok(match self {
            Self::Withdrawal { owner: OwnerArgs { provider, partner }, what } => {
                let owner = owner(desk, provider, partner).await?;
                (Operation::Withdrawal { owner, asset: what.asset.clone(), amount: what.amount_minor }, what)
            }
            Self::Return { owner: OwnerArgs { provider, partner }, deposit, what } => {
                let owner = owner(desk, provider, partner).await?;
                let (asset, amount) = (what.asset.clone(), what.amount_minor);
                (Operation::Return { owner, asset, amount, deposit }, what)
            }
            Self::Adjustment { account, provider, partner, direction, what } => {
                let account = match account {
                    AdjustedArg::Available => Adjusted::Available(owner(desk, provider, partner).await?),
                    AdjustedArg::Owed => Adjusted::Owed(provider.context("--provider is needed")?),
                    AdjustedArg::Fees => Adjusted::Fees,
                };
                let (asset, amount) = (what.asset.clone(), what.amount_minor);
                (Operation::Adjustment { account, direction, asset, amount }, what)
            }
            Self::FeeSweep { what } => {
                (Operation::FeeSweep { asset: what.asset.clone(), amount: what.amount_minor }, what)
            }
            Self::Charge { what } => {
                let (asset, amount, entry) = (what.asset.clone(), what.amount_minor, what.id.clone());
                (Operation::Charge { asset, amount, entry }, what)
            }
            Self::Gift { what } => {
                (Operation::Gift { asset: what.asset.clone(), amount: what.amount_minor }, what)
            }
            Self::Transfer { from, to, what } => {
                (Operation::Transfer { from, to, asset: what.asset.clone(), amount: what.amount_minor }, what)
            }
            Self::ClaimSettlement { debtor, claimant, what } => {
                let (asset, amount) = (what.asset.clone(), what.amount_minor);
                (Operation::ClaimSettlement { debtor, claimant, asset, amount }, what)
            }
        })
    }
}

async fn owner(
    desk: &mut Desk<'_>,
    provider: Option<String>,
    partner: Option<String>,
) -> anyhow::Result<Owner> {
    match (provider, partner) {
        (Some(provider), None) => Ok(Owner::Provider(provider)),
        (None, Some(name)) => {
            let livemode = desk.house.environment.is_live();
            Ok(Owner::Partner { id: desk.partner(&name).await?.id, livemode })
        }
        _ => bail!("--provider or --partner is needed"),
    }
}
