//! `dvp operator …`

use clap::{Args, Subcommand};
use dvp_domain::operator::OperatorRole;

use super::PlaceArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Add an operator of the console and print a sign-in link.
    ///
    /// The link is printed once, can be used once, and expires after a day.
    #[command(
        after_help = "Example:\n  dvp operator add --name kim --roles operator,approver --operator jo --config dvp.toml"
    )]
    Add(OperatorAdd),
    /// Print a new sign-in link of an operator.
    #[command(after_help = "Example:\n  dvp operator link --name kim --config dvp.toml")]
    Link(OperatorName),
    /// Replace an operator's roles, from its next request on.
    #[command(after_help = "Example:\n  dvp operator roles --name kim --roles viewer --config dvp.toml")]
    Roles(OperatorRoles),
    /// Set the address by which an operator signs in at the identity provider ([console.oidc]).
    ///
    /// The first sign-in binds the operator to the account with this verified address; this command releases it.
    #[command(
        after_help = "Example:\n  dvp operator identity --name kim --email kim@example.com --config dvp.toml"
    )]
    Identity(OperatorIdentity),
    /// End an operator's sessions and links, and refuse new ones.
    #[command(after_help = "Example:\n  dvp operator disable --name kim --config dvp.toml")]
    Disable(OperatorName),
    /// Let a disabled operator sign in again.
    #[command(after_help = "Example:\n  dvp operator enable --name kim --config dvp.toml")]
    Enable(OperatorName),
    /// List operators.
    #[command(after_help = "Example:\n  dvp operator list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OperatorAdd {
    /// The name that requests, approvals and the audit log have.
    #[arg(long)]
    pub name: String,
    /// viewer, support, operator, treasury, approver, admin, auditor.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = role, required = true)]
    pub roles: Vec<OperatorRole>,
    /// Who adds it.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorRoles {
    #[arg(long)]
    pub name: String,
    /// viewer, support, operator, treasury, approver, admin, auditor.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = role, required = true)]
    pub roles: Vec<OperatorRole>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorIdentity {
    #[arg(long)]
    pub name: String,
    /// The address; without it the operator does not sign in at the provider any more.
    #[arg(long)]
    pub email: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorName {
    #[arg(long)]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn role(text: &str) -> Result<OperatorRole, String> {
    let roles = OperatorRole::ALL.map(OperatorRole::as_str).join(", ");
    OperatorRole::parse(text).ok_or_else(|| format!("the roles are {roles}"))
}
