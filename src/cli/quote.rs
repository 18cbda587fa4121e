//! `dvp quote …`

use clap::{Args, Subcommand};

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum QuoteCommand {
    /// Explain the price of a firm quote or of an order, step by step, with its own numbers.
    ///
    /// Each step is computed again from the one before it; exit code 1 when a stored amount differs.
    #[command(
        after_help = "Example:\n  dvp quote explain --id qte_… --dir .dvp\n  dvp quote explain --id exe_… --dir .dvp --json"
    )]
    Explain(QuoteExplain),
}

#[derive(Debug, Args)]
pub(crate) struct QuoteExplain {
    /// A firm quote's id (`qte_…`) or an execution's (`exe_…`).
    #[arg(long, value_name = "ID")]
    pub id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}
