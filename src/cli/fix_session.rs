//! `dvp fix-session …`

use clap::{Args, Subcommand};

use super::PlaceArgs;
use super::fix_options::SessionOptions;
use super::key::EnvArg;

#[derive(Debug, Subcommand)]
pub(crate) enum FixSessionCommand {
    /// Add a session, or give an existing one a new password. A running service serves it within seconds.
    #[command(
        after_help = "Example:\n  dvp fix-session add --begin-string FIX.4.4 --sender-comp-id ACME --partner acme --password … --dir .dvp --json"
    )]
    Add(Box<FixSessionAdd>),
    /// Change what is agreed on for a session. It holds from the session's next start: disable it and enable it again,
    /// or restart the service.
    #[command(
        after_help = "Example:\n  dvp fix-session set --session-id 'FIX.4.4:DVP->ACME' --cancel-on-disconnect 10 --dir .dvp"
    )]
    Set(Box<FixSessionSet>),
    /// List the sessions with their numbers.
    #[command(after_help = "Example:\n  dvp fix-session list --dir .dvp --json")]
    List(PlaceArgs),
    /// Let nobody log on any more.
    #[command(after_help = "Example:\n  dvp fix-session disable --session-id 'FIX.4.4:DVP->ACME' --dir .dvp")]
    Disable(SessionId),
    /// Let a disabled session log on again.
    #[command(after_help = "Example:\n  dvp fix-session enable --session-id 'FIX.4.4:DVP->ACME' --dir .dvp")]
    Enable(SessionId),
    /// Begin both numbers at 1 again and forget what was sent. The session must be disabled.
    #[command(after_help = "Example:\n  dvp fix-session reset --session-id 'FIX.4.4:DVP->ACME' --dir .dvp")]
    Reset(SessionId),
    /// Print the data dictionary that a FIX engine of an institution reads. FIX 5.0 SP2 needs FIXT.1.1's, too.
    #[command(after_help = "Example:\n  dvp fix-session dictionary --version FIX.4.4 > FIX44.xml")]
    Dictionary(FixDictionary),
}

#[derive(Debug, Args)]
pub(crate) struct FixSessionAdd {
    /// FIX.4.2, FIX.4.4 or FIXT.1.1.
    #[arg(long, value_parser = ["FIX.4.2", "FIX.4.4", "FIXT.1.1"])]
    pub begin_string: String,
    /// The client's CompID.
    #[arg(long, value_parser = comp_id)]
    pub sender_comp_id: String,
    /// Ours.
    #[arg(long, value_parser = comp_id, default_value = "DVP")]
    pub target_comp_id: String,
    /// DefaultApplVerID(1137); needed by FIXT.1.1 and by nothing else.
    #[arg(
        long,
        required_if_eq("begin_string", "FIXT.1.1"),
        value_parser = ["9"]
    )]
    pub default_appl_ver_id: Option<String>,
    /// The partner's name.
    #[arg(long)]
    pub partner: String,
    #[arg(long, value_enum, default_value = "test")]
    pub env: EnvArg,
    /// Username(553); the partner's name when not given.
    #[arg(long)]
    pub username: Option<String>,
    /// Password(554). Only a keyed hash of it is kept.
    #[arg(long)]
    pub password: String,
    #[command(flatten)]
    pub options: SessionOptions,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FixSessionSet {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    #[command(flatten)]
    pub options: SessionOptions,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FixDictionary {
    /// FIX.4.2, FIX.4.4, FIXT.1.1 or FIX.5.0SP2.
    #[arg(long, value_parser = ["FIX.4.2", "FIX.4.4", "FIXT.1.1", "FIX.5.0SP2"])]
    pub version: String,
}

#[derive(Debug, Args)]
pub(crate) struct SessionId {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// A CompID is part of the session's id, whose other characters it may not hold.
fn comp_id(text: &str) -> Result<String, String> {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=64).contains(&text.len()) && text.chars().all(known) && !text.contains("->") {
        Ok(text.to_owned())
    } else {
        Err("1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'".to_owned())
    }
}
