//! `dvp secrets …`

use clap::Subcommand;

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// List how much needs each master key. A key that is not listed can be taken out of the configuration.
    #[command(after_help = "Example:\n  dvp secrets status --config dvp.toml --json")]
    Status(PlaceArgs),
    /// Re-encrypt secrets of earlier keys with the first key of the configuration.
    #[command(after_help = "Example:\n  dvp secrets reseal --config dvp.toml")]
    Reseal(PlaceArgs),
}
