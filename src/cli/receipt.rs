//! `dvp receipt …`

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptCommand {
    /// Compute a receipt's content hash and compare it with the anchor on the chain.
    ///
    /// Asks the node of DIR or of --rpc-url; with --config the blocks the indexer has read. A receipt in a file
    /// needs nothing of ours but the anchor contract's address. Exit code 1 when no anchor has this hash.
    #[command(
        after_help = "Example:\n  dvp receipt verify --file receipt.json --rpc-url http://127.0.0.1:8545 --anchor 0x…\n  dvp receipt verify --reference exe_… --dir .dvp --json"
    )]
    Verify(ReceiptVerify),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["file", "reference"])))]
pub(crate) struct ReceiptVerify {
    /// The receipt as it was answered, `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The execution's id; its receipt is read from the service's database.
    #[arg(long, value_name = "REFERENCE")]
    pub reference: Option<String>,
    /// A node of the chain.
    #[arg(long, value_name = "URL", requires = "anchor")]
    pub rpc_url: Option<String>,
    /// The anchor contract you trust.
    #[arg(long, value_name = "ADDRESS", requires = "rpc_url")]
    pub anchor: Option<String>,
    /// The directory of a running sandbox.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// The service's configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
