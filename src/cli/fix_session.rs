//! `dvp fix-session …`

use clap::{Args, Subcommand};
use dvp_core::credentials::sessions::{BEGIN_STRINGS, is_comp_id};

use super::fix_options::SessionOptions;
use super::key::EnvArg;
use super::{GivenSecret, MakerArgs, PlaceArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum FixSessionCommand {
    /// Add a session, or give an existing one a new password. A running service serves it within seconds.
    ///
    /// With --operator, and always in a live deployment, it is a request that another operator approves.
    #[command(
        after_help = "Example:\n  dvp fix-session add --begin-string FIX.4.4 --sender-comp-id ACME --partner acme --password env:ACME_PASSWORD --dir .dvp --json"
    )]
    Add(Box<FixSessionAdd>),
    /// Change a session's settings. They apply from its next connection on; `dvp fix-session logout` ends the current
    /// one.
    ///
    /// With --operator, and always in a live deployment, it is a request that another operator approves.
    #[command(
        after_help = "Example:\n  dvp fix-session set --session-id 'FIX.4.4:DVP->ACME' --cancel-on-disconnect 10 --dir .dvp"
    )]
    Set(Box<FixSessionSet>),
    /// List the sessions with their numbers.
    #[command(after_help = "Example:\n  dvp fix-session list --dir .dvp --json")]
    List(PlaceArgs),
    /// Log the peer out and refuse further Logons.
    #[command(after_help = "Example:\n  dvp fix-session disable --session-id 'FIX.4.4:DVP->ACME' --dir .dvp")]
    Disable(SessionSwitch),
    /// Let a disabled session log on again.
    ///
    /// With --operator, and always in a live deployment, it is a request that another operator approves.
    #[command(after_help = "Example:\n  dvp fix-session enable --session-id 'FIX.4.4:DVP->ACME' --dir .dvp")]
    Enable(SessionEnable),
    /// Log the peer out. It may log on again.
    #[command(
        after_help = "Example:\n  dvp fix-session logout --session-id 'FIX.4.4:DVP->ACME' --operator jo --reason 'requested by phone' --dir .dvp"
    )]
    Logout(SessionCommand),
    /// Close the connection without a Logout. The peer may connect again.
    #[command(
        after_help = "Example:\n  dvp fix-session disconnect --session-id 'FIX.4.4:DVP->ACME' --operator jo --reason 'does not answer' --dir .dvp"
    )]
    Disconnect(SessionCommand),
    /// Send the peer a TestRequest.
    #[command(
        after_help = "Example:\n  dvp fix-session test-request --session-id 'FIX.4.4:DVP->ACME' --operator jo --reason 'is it alive' --dir .dvp"
    )]
    TestRequest(SessionCommand),
    /// Log the peer out and begin both numbers at 1 again. Reports that it has not seen are kept, under new numbers.
    #[command(
        after_help = "Example:\n  dvp fix-session reset --session-id 'FIX.4.4:DVP->ACME' --operator jo --reason 'requested by phone' --dir .dvp"
    )]
    Reset(SessionCommand),
    /// Log the peer out and set both numbers.
    #[command(
        after_help = "Example:\n  dvp fix-session set-seq --session-id 'FIX.4.4:DVP->ACME' --next-in 17 --next-out 42 --operator jo --reason 'restored from backup' --dir .dvp"
    )]
    SetSeq(SessionSetSeq),
    /// List operators' commands for a session, newest first.
    #[command(
        after_help = "Example:\n  dvp fix-session history --session-id 'FIX.4.4:DVP->ACME' --dir .dvp --json"
    )]
    History(SessionId),
    /// Print the data dictionary that a FIX engine of an institution reads. FIX 5.0 SP2 needs FIXT.1.1's, too.
    #[command(after_help = "Example:\n  dvp fix-session dictionary --version FIX.4.4 > FIX44.xml")]
    Dictionary(FixDictionary),
}

#[derive(Debug, Args)]
pub(crate) struct FixSessionAdd {
    /// FIX.4.2, FIX.4.4 or FIXT.1.1.
    #[arg(long, value_parser = BEGIN_STRINGS)]
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
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    pub env: Option<EnvArg>,
    /// Username(553); the partner's name when not given.
    #[arg(long)]
    pub username: Option<String>,
    /// Password(554), of which only a keyed hash is kept: env:NAME, file:PATH, or - for a line of standard input. The
    /// password itself is taken with a warning.
    #[arg(long, value_name = "SECRET")]
    pub password: GivenSecret,
    #[command(flatten)]
    pub options: SessionOptions,
    #[command(flatten)]
    pub maker: MakerArgs,
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
    pub maker: MakerArgs,
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
pub(crate) struct SessionEnable {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    #[command(flatten)]
    pub maker: MakerArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionSwitch {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    /// The operator.
    #[arg(long, visible_alias = "as", default_value_t = login())]
    pub operator: String,
    /// Why.
    #[arg(long, default_value = "not given")]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionCommand {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why.
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SessionSetSeq {
    /// The number that the peer's next message must have.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=SEQ_MAX))]
    pub next_in: u64,
    /// The number of our next message. Without --with-reset it does not go back: a number never stands for two
    /// messages.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=SEQ_MAX))]
    pub next_out: u64,
    /// Delete sent messages, and renumber reports that the peer has not received from --next-out on.
    #[arg(long)]
    pub with_reset: bool,
    #[command(flatten)]
    pub command: SessionCommand,
}

/// The maximum of MsgSeqNum(34).
const SEQ_MAX: u64 = 999_999_999_999_999_999;

#[derive(Debug, Args)]
pub(crate) struct SessionId {
    /// As `dvp fix-session list` prints it.
    #[arg(long)]
    pub session_id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn comp_id(text: &str) -> Result<String, String> {
    if is_comp_id(text) {
        Ok(text.to_owned())
    } else {
        Err("1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'".to_owned())
    }
}

/// The account logged in at this machine, for the record.
pub(crate) fn login() -> String {
    let names = ["USER", "LOGNAME"].map(|name| std::env::var(name).ok());
    names.into_iter().flatten().find(|name| !name.trim().is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
