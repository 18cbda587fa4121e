//! `dvp key …`

use clap::{Args, Subcommand, ValueEnum};
use dvp_core::keys::SCOPES;
use dvp_domain::environment::Environment;

use super::{MakerArgs, PlaceArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Issue an API key and its signing secret. Both are printed once and kept nowhere.
    ///
    /// With --operator, and always in a live deployment, the key is issued disabled until another operator approves it
    /// (`dvp approval approve`).
    #[command(
        after_help = "Example:\n  dvp key issue --partner acme --env test --scopes quotes:write,intents:write --dir .dvp --json"
    )]
    Issue(KeyIssue),
    /// Issue a key in place of another one: same partner, environment and scopes.
    ///
    /// Both work until the old one is disabled or revoked.
    #[command(after_help = "Example:\n  dvp key rotate --key-id key_… --dir .dvp --json")]
    Rotate(KeyRequest),
    /// Refuse a key from now on (403 API_KEY_DISABLED) until it is enabled again.
    ///
    /// A live deployment needs --operator and --reason, which the audit log keeps; one operator is enough.
    #[command(
        after_help = "Example:\n  dvp key disable --key-id key_… --operator jo --reason 'seen in a log' --dir .dvp"
    )]
    Disable(KeyStop),
    /// Let a disabled key work again.
    #[command(after_help = "Example:\n  dvp key enable --key-id key_… --dir .dvp")]
    Enable(KeyRequest),
    /// End a key for good (401 INVALID_API_KEY) and erase its signing secret.
    ///
    /// A live deployment needs --operator and --reason, which the audit log keeps; one operator is enough.
    #[command(
        after_help = "Example:\n  dvp key revoke --key-id key_… --operator jo --reason leaked --dir .dvp"
    )]
    Revoke(KeyStop),
    /// List keys, without anything that could be used.
    #[command(after_help = "Example:\n  dvp key list --partner acme --dir .dvp --json")]
    List(KeyList),
}

#[derive(Debug, Args)]
pub(crate) struct KeyIssue {
    /// The partner's name.
    #[arg(long)]
    pub partner: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    pub env: Option<EnvArg>,
    /// The key's scopes; all when not given.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = scope)]
    pub scopes: Vec<String>,
    #[command(flatten)]
    pub maker: MakerArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// What one operator stops.
#[derive(Debug, Args)]
pub(crate) struct KeyStop {
    /// The operator.
    #[arg(long, visible_alias = "as", requires = "reason")]
    pub operator: Option<String>,
    /// Why.
    #[arg(long, requires = "operator")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub key: KeyId,
}

/// A request of two operators.
#[derive(Debug, Args)]
pub(crate) struct KeyRequest {
    #[command(flatten)]
    pub maker: MakerArgs,
    #[command(flatten)]
    pub key: KeyId,
}

#[derive(Debug, Args)]
pub(crate) struct KeyId {
    /// As `dvp key issue` and `dvp key list` print it.
    #[arg(long)]
    pub key_id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyList {
    /// Only this partner's.
    #[arg(long)]
    pub partner: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The environment that a command expects of the deployment.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum EnvArg {
    Test,
    Live,
}

impl From<EnvArg> for Environment {
    fn from(env: EnvArg) -> Self {
        match env {
            EnvArg::Test => Self::Test,
            EnvArg::Live => Self::Live,
        }
    }
}

fn scope(text: &str) -> Result<String, String> {
    if SCOPES.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("the scopes are {}", SCOPES.join(", ")))
    }
}
