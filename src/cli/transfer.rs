//! `dvp transfer …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dvp_domain::cell::CellId;
use dvp_domain::ids::TransferId;
use dvp_domain::money::Minor;

use super::partner::amount;
use super::{OwnerArgs, PlaceArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum TransferCommand {
    /// Request a step of a transfer; another operator approves it.
    #[command(subcommand)]
    Request(TransferRequest),
    /// Approve and post another operator's request, and write the signed document for the other cell.
    #[command(
        after_help = "Example:\n  dvp transfer approve --id trf_… --operator kim --note 'wire sent' --out transfer.json --config dvp.toml"
    )]
    Approve(TransferApprove),
    /// End a request without carrying it out. Its maker may, too.
    #[command(
        after_help = "Example:\n  dvp transfer reject --id trf_… --operator kim --reason 'not agreed' --config dvp.toml"
    )]
    Reject(TransferReject),
    /// Write the signed document of a transfer again: of what was sent the transfer, of what was received or refused the
    /// receipt or the refusal.
    #[command(
        after_help = "Example:\n  dvp transfer document --id trf_… --out transfer.json --config dvp.toml"
    )]
    Document(TransferDocument),
    /// Close a transfer that was sent, by the receipt of the other cell. The same receipt again changes nothing.
    #[command(
        after_help = "Example:\n  dvp transfer confirm --receipt receipt.json --operator jo --config dvp.toml"
    )]
    Confirm(TransferConfirm),
    /// List transfers.
    #[command(after_help = "Example:\n  dvp transfer list --open --config dvp.toml --json")]
    List(TransferList),
    /// Show a transfer.
    #[command(after_help = "Example:\n  dvp transfer show --id trf_… --config dvp.toml --json")]
    Show(TransferShow),
    /// Write the signed list of all transfers with another cell, for `compare` there.
    #[command(after_help = "Example:\n  dvp transfer export --cell 00b --out list.json --config dvp.toml")]
    Export(TransferExport),
    /// Compare the transfers with another cell with the list that it has exported. Exit code 1 when anything differs.
    #[command(after_help = "Example:\n  dvp transfer compare --list list.json --config dvp.toml --json")]
    Compare(TransferCompare),
    /// Print the public key that other cells list for this one.
    #[command(after_help = "Example:\n  dvp transfer key --config dvp.toml")]
    Key(PlaceArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TransferRequest {
    /// A provider's inventory, or what a partner has prefunded, goes to another cell. Prints the id that the service
    /// issues.
    #[command(
        after_help = "Example:\n  dvp transfer request send --to 00b --provider northwind --asset USD --amount-minor 5000 --operator jo --reason 'more orders there' --evidence 'plan 7' --config dvp.toml"
    )]
    Send {
        /// The other cell.
        #[arg(long)]
        to: CellId,
        #[command(flatten)]
        owner: OwnerArgs,
        /// The asset's symbol.
        #[arg(long)]
        asset: String,
        /// In minor units.
        #[arg(long, value_parser = amount)]
        amount_minor: Minor,
        #[command(flatten)]
        why: TransferWhy,
    },
    /// Post a transfer again that this cell's database has lost in a restore, by the document that this cell has signed.
    #[command(
        after_help = "Example:\n  dvp transfer request send-again --document transfer.json --operator jo --reason 'restored' --evidence 'INC-9' --config dvp.toml"
    )]
    SendAgain {
        #[arg(long, value_name = "FILE")]
        document: PathBuf,
        #[command(flatten)]
        why: TransferWhy,
    },
    /// The funds of a transfer have arrived, or will before the request is approved.
    #[command(
        after_help = "Example:\n  dvp transfer request receive --document transfer.json --operator jo --reason 'arrived' --evidence 'statement 17, line 4' --config dvp.toml"
    )]
    Receive {
        /// The document of the sender.
        #[arg(long, value_name = "FILE")]
        document: PathBuf,
        #[command(flatten)]
        why: TransferWhy,
    },
    /// A transfer is never to be received.
    #[command(
        after_help = "Example:\n  dvp transfer request refuse --document transfer.json --operator jo --reason 'not agreed' --evidence 'mail of 00a' --config dvp.toml"
    )]
    Refuse {
        /// The document of the sender.
        #[arg(long, value_name = "FILE")]
        document: PathBuf,
        #[command(flatten)]
        why: TransferWhy,
    },
    /// The provider has its inventory back, because the other cell has refused it.
    #[command(
        after_help = "Example:\n  dvp transfer request take-back --refusal refusal.json --operator jo --reason 'refused' --evidence 'statement 18' --config dvp.toml"
    )]
    TakeBack {
        /// The refusal of the receiver.
        #[arg(long, value_name = "FILE")]
        refusal: PathBuf,
        #[command(flatten)]
        why: TransferWhy,
    },
}

/// Who requests it, and why.
#[derive(Debug, Args)]
pub(crate) struct TransferWhy {
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
pub(crate) struct TransferApprove {
    /// The transfer's id.
    #[arg(long)]
    pub id: TransferId,
    /// The approving operator, other than the requester.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long, default_value = "")]
    pub note: String,
    /// Where the document is written; without it it is printed.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TransferReject {
    /// The transfer's id.
    #[arg(long)]
    pub id: TransferId,
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TransferDocument {
    /// The transfer's id.
    #[arg(long)]
    pub id: TransferId,
    /// Where the document is written; without it it is printed.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TransferConfirm {
    /// The receipt of the receiver.
    #[arg(long, value_name = "FILE")]
    pub receipt: PathBuf,
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TransferList {
    /// Only with this cell.
    #[arg(long)]
    pub cell: Option<CellId>,
    /// Only transfers without an end.
    #[arg(long)]
    pub open: bool,
    /// After this transfer.
    #[arg(long)]
    pub after: Option<TransferId>,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TransferShow {
    /// The transfer's id.
    #[arg(long)]
    pub id: TransferId,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TransferExport {
    /// The other cell.
    #[arg(long)]
    pub cell: CellId,
    /// Where the list is written; without it it is printed.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TransferCompare {
    /// The list that the other cell has exported.
    #[arg(long, value_name = "FILE")]
    pub list: PathBuf,
    #[command(flatten)]
    pub place: PlaceArgs,
}
