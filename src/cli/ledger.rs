//! `dvp ledger …`

use clap::{Args, Subcommand, ValueEnum};
use dvp_domain::ledger::Claimant;
use dvp_domain::ledger::operation::Direction;
use dvp_domain::money::Minor;

use super::PlaceArgs;
use super::partner::amount;

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Request an operation of the ledger; another operator approves it. The same id again changes nothing.
    #[command(subcommand)]
    Request(LedgerRequest),
    /// Approve and post another operator's request.
    #[command(
        after_help = "Example:\n  dvp ledger approve --id W-17 --operator kim --note 'wire sent' --dir .dvp"
    )]
    Approve(LedgerApprove),
    /// End a request without posting it. Its maker may, too.
    #[command(
        after_help = "Example:\n  dvp ledger reject --id W-17 --operator kim --reason 'no such wire' --dir .dvp"
    )]
    Reject(LedgerReject),
    /// List operations, newest first.
    #[command(after_help = "Example:\n  dvp ledger list --dir .dvp --json")]
    List(LedgerList),
    /// Show an operation.
    #[command(after_help = "Example:\n  dvp ledger show --id W-17 --dir .dvp --json")]
    Show(LedgerShow),
    /// Every account's balance: the trial balance, with the claims between providers and the house.
    #[command(after_help = "Example:\n  dvp ledger balances --dir .dvp --json")]
    Balances(PlaceArgs),
    /// Hold every kept balance against its entries, the entries of each asset against zero, and what is in transit to and
    /// from other cells against the transfers. Exit code 1 when anything differs.
    #[command(after_help = "Example:\n  dvp ledger check --dir .dvp --json")]
    Check(PlaceArgs),
    /// Make kept balances, closings and the fees of closed days again from the entries.
    ///
    /// Changes what differs, in one transaction, and reports it. Entries are never changed: entries that do not balance,
    /// or a balance below zero by them, are refused with an error. The service may run; its postings wait while balances
    /// are compared.
    #[command(
        after_help = "Example:\n  dvp ledger rebuild --dry-run --config dvp.toml\n  dvp ledger rebuild --operator jo --reason 'INC-17: balance changed by hand' --config dvp.toml"
    )]
    Rebuild(LedgerRebuild),
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerRequest {
    /// An owner took money out.
    #[command(
        after_help = "Example:\n  dvp ledger request withdrawal --provider northwind --asset USD --amount-minor 5000 --id W-17 --operator jo --reason 'requested by mail' --evidence 'wire 17' --dir .dvp"
    )]
    Withdrawal {
        #[command(flatten)]
        owner: OwnerArgs,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// A deposit was sent back, or a part of it.
    #[command(
        after_help = "Example:\n  dvp ledger request return --partner acme --deposit wire-1 --asset USD --amount-minor 5000 --id R-3 --operator jo --reason 'wrong account' --evidence 'wire 18' --dir .dvp"
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
        after_help = "Example:\n  dvp ledger request adjustment --account available --provider northwind --direction credit --asset USD --amount-minor 12 --id A-2 --operator jo --reason 'interest' --evidence 'statement 17' --dir .dvp"
    )]
    Adjustment {
        #[arg(long, value_enum)]
        account: AdjustedArg,
        /// Of `available` and `owed`: the provider.
        #[arg(long, conflicts_with = "partner")]
        provider: Option<String>,
        /// Of `available`: the partner's name.
        #[arg(long)]
        partner: Option<String>,
        /// Credit: the account has more than before.
        #[arg(long, value_parser = direction)]
        direction: Direction,
        #[command(flatten)]
        what: OperationArgs,
    },
    /// Earned fees were moved to an account of the service's own.
    #[command(
        after_help = "Example:\n  dvp ledger request fee-sweep --asset USD --amount-minor 5000 --id F-11 --operator jo --reason 'month end' --evidence 'transfer 9' --dir .dvp"
    )]
    FeeSweep {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// The bank has charged a fee, which the house bears: a debit of a statement that is about no order. The id is the
    /// bank's reference of the entry.
    #[command(
        after_help = "Example:\n  dvp ledger request charge --id BK2611-77 --asset USD --amount-minor 350 --operator jo --reason 'fee of November' --evidence 'statement 17, line 4' --dir .dvp"
    )]
    Charge {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// Inventory changed hands between providers.
    #[command(
        after_help = "Example:\n  dvp ledger request transfer --from northwind --to meridian --asset USD --amount-minor 5000 --id T-4 --operator jo --reason 'rebalanced' --evidence 'mail of both' --dir .dvp"
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
        after_help = "Example:\n  dvp ledger request gift --id 0x5d… --asset USDC --amount-minor 1 --operator jo --reason 'sent by a stranger' --evidence 'block 91' --dir .dvp"
    )]
    Gift {
        #[command(flatten)]
        what: OperationArgs,
    },
    /// A debtor's wallet has paid a claimant's funds to the claimant: `house`, or a provider's id.
    #[command(
        after_help = "Example:\n  dvp ledger request claim-settlement --debtor northwind --claimant house --asset USDC --amount-minor 5000 --id C-8 --operator jo --reason 'monthly' --evidence '0x…' --dir .dvp"
    )]
    ClaimSettlement {
        #[arg(long, value_parser = claimant)]
        debtor: Claimant,
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
    pub provider: Option<String>,
    /// The partner's name.
    #[arg(long)]
    pub partner: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OperationArgs {
    /// The unique id of the operation.
    #[arg(long)]
    pub id: String,
    /// The asset's symbol.
    #[arg(long)]
    pub asset: String,
    /// In minor units.
    #[arg(long, value_parser = amount)]
    pub amount_minor: Minor,
    /// The requesting operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    /// The evidence: a line of a bank statement, a transaction, a ticket.
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerApprove {
    /// The operation's id.
    #[arg(long)]
    pub id: String,
    /// The approving operator, other than the requester.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long, default_value = "")]
    pub note: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerReject {
    /// The operation's id.
    #[arg(long)]
    pub id: String,
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerRebuild {
    /// Report what differs and change nothing.
    #[arg(long, conflicts_with_all = ["operator", "reason", "evidence"])]
    pub dry_run: bool,
    #[arg(
        long,
        visible_alias = "as",
        required_unless_present = "dry_run",
        default_value = "",
        hide_default_value = true
    )]
    pub operator: String,
    #[arg(long, required_unless_present = "dry_run", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// The evidence: an incident, a ticket.
    #[arg(long, default_value = "")]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerList {
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LedgerShow {
    /// The operation's id.
    #[arg(long)]
    pub id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "credit" => Ok(Direction::Credit),
        "debit" => Ok(Direction::Debit),
        _ => Err("credit or debit".to_owned()),
    }
}

fn claimant(text: &str) -> Result<Claimant, String> {
    match text {
        "" => Err("house, or a provider's id".to_owned()),
        "house" => Ok(Claimant::House),
        provider => Ok(Claimant::Provider(provider.to_owned())),
    }
}
