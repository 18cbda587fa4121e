//! The actions with their fields. The texts beside the fields are the help of the command line.

pub mod approvals;
mod bands;
mod bank;
mod beneficiaries;
mod chains;
mod deposits;
pub mod executions;
mod fix_options;
mod fix_sessions;
pub mod keys;
mod ledger;
mod limits;
pub mod makers;
pub mod operators;
mod partners;
mod pauses;
pub mod personal_data;
mod recalls;
mod webhooks;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Command, Subcommand, ValueEnum};
use dvp_core::operators::requests::Maker;
use dvp_core::operators::targets;
use dvp_domain::environment::Environment;
use dvp_domain::money::Minor;
use dvp_store::partners::registry::PartnerRow;

use crate::desk::Desk;
use crate::outcome::Outcome;
use crate::table::Spec;

/// Every action, by what it is about.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    #[command(subcommand)]
    Approval(approvals::ApprovalAction),
    #[command(subcommand)]
    Execution(executions::ExecutionAction),
    #[command(subcommand)]
    Recall(recalls::RecallAction),
    #[command(subcommand)]
    Bank(bank::BankAction),
    #[command(subcommand)]
    Chain(chains::ChainAction),
    #[command(subcommand)]
    Pause(pauses::PauseAction),
    #[command(subcommand)]
    Limit(limits::LimitAction),
    #[command(subcommand)]
    Band(bands::BandAction),
    #[command(subcommand)]
    Ledger(ledger::LedgerAction),
    #[command(subcommand)]
    Provider(deposits::ProviderAction),
    #[command(subcommand)]
    Maker(makers::MakerAction),
    #[command(subcommand)]
    Partner(partners::PartnerAction),
    #[command(subcommand)]
    Beneficiary(beneficiaries::BeneficiaryAction),
    #[command(subcommand)]
    PersonalData(personal_data::PersonalDataAction),
    #[command(subcommand)]
    Key(keys::KeyAction),
    #[command(subcommand)]
    FixSession(fix_sessions::FixSessionAction),
    #[command(subcommand)]
    Webhook(webhooks::WebhookAction),
    #[command(subcommand)]
    Operator(operators::OperatorAction),
}

impl Action {
    pub(crate) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Approval(action) => action.perform(desk).await,
            Self::Execution(action) => action.perform(desk).await,
            Self::Recall(action) => action.perform(desk).await,
            Self::Bank(action) => action.perform(desk).await,
            Self::Chain(action) => action.perform(desk).await,
            Self::Pause(action) => action.perform(desk).await,
            Self::Limit(action) => action.perform(desk).await,
            Self::Band(action) => action.perform(desk).await,
            Self::Ledger(action) => action.perform(desk).await,
            Self::Provider(action) => action.perform(desk).await,
            Self::Maker(action) => action.perform(desk).await,
            Self::Partner(action) => action.perform(desk).await,
            Self::Beneficiary(action) => action.perform(desk).await,
            Self::PersonalData(action) => action.perform(desk).await,
            Self::Key(action) => action.perform(desk).await,
            Self::FixSession(action) => action.perform(desk).await,
            Self::Webhook(action) => action.perform(desk).await,
            Self::Operator(action) => action.perform(desk).await,
        }
    }
}

/// The actions as commands, without the program's name.
pub fn command() -> Command {
    Action::augment_subcommands(Command::new("dvp")).no_binary_name(true).subcommand_required(true)
}

/// The command of an action.
pub(crate) fn leaf<'a>(root: &'a Command, spec: &Spec) -> Option<&'a Command> {
    spec.name.split(' ').try_fold(root, |command, word| command.find_subcommand(word))
}

/// One of the values that have names.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static>(
    names: impl IntoIterator<Item = impl Into<PossibleValue>>,
    parse: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names.into_iter().map(Into::into))
        .try_map(move |name| parse(&name).ok_or("is not known"))
}

/// Whether a field's value is a secret: it is in no record, and the command line reads it from a file or the environment.
pub fn is_secret(field: &str) -> bool {
    matches!(field, "password" | "logon-secret")
}

/// Whether a field of an action may be about a person: no record that is kept for ever has it.
pub(crate) fn is_personal(action: &str, field: &str) -> bool {
    match action {
        "beneficiary create" | "beneficiary add-destination" => {
            !matches!(field, "partner" | "beneficiary" | "country" | "currency" | "method")
        }
        "operator identity" => field == "email",
        "bank import" => field == "content",
        _ => false,
    }
}

/// Why something is requested that another operator approves.
#[derive(Debug, Args)]
pub(crate) struct Why {
    #[arg(long)]
    pub reason: String,
    /// What shows it: a line of a bank statement, a transaction, a ticket.
    #[arg(long)]
    pub evidence: String,
}

/// Why something is requested that takes two operators in a live deployment.
#[derive(Debug, Args)]
pub(crate) struct IfLive {
    /// Why. With --evidence, and always in a live deployment, another operator approves it.
    #[arg(long)]
    pub reason: Option<String>,
    /// What shows it: a letter, a ticket.
    #[arg(long, requires = "reason")]
    pub evidence: Option<String>,
}

/// Why one operator does something.
#[derive(Debug, Args)]
pub(crate) struct Reason {
    /// Why; the audit log keeps it.
    #[arg(long)]
    pub reason: String,
}

impl Reason {
    fn given(&self) -> anyhow::Result<&str> {
        let reason = self.reason.trim();
        anyhow::ensure!(!reason.is_empty(), "a reason is needed");
        Ok(reason)
    }
}

/// The environment that an action expects of the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvArg {
    Test,
    Live,
}

impl<'a> Desk<'a> {
    /// The maker of a request where a second operator is needed; without one the action is carried out at once.
    pub(crate) fn second<'b>(&self, why: &'b IfLive) -> anyhow::Result<Option<Maker<'b>>>
    where
        'a: 'b,
    {
        match (&why.reason, &why.evidence) {
            (Some(reason), Some(evidence)) => Ok(Some(self.maker(reason, evidence))),
            _ if self.house.environment.is_live() => anyhow::bail!(
                "this takes two operators: give --reason and --evidence; another operator approves it"
            ),
            _ => Ok(None),
        }
    }

    /// The deployment's environment, which an action may name to be sure.
    fn environment(&self, expected: Option<EnvArg>) -> anyhow::Result<Environment> {
        let is = self.house.environment;
        let expected =
            expected.map(|env| if env == EnvArg::Live { Environment::Live } else { Environment::Test });
        if let Some(expected) = expected.filter(|expected| *expected != is) {
            anyhow::bail!("--env {}: this is a {} deployment", expected.as_str(), is.as_str());
        }
        Ok(is)
    }

    /// The partner with the given name.
    async fn partner(&mut self, name: &str) -> anyhow::Result<PartnerRow> {
        Ok(targets::partner(self.conn, name).await?)
    }
}

fn amount(text: &str) -> Result<Minor, String> {
    match Minor::parse(text) {
        Ok(amount) if amount.is_zero() => Err("must be above zero".to_owned()),
        Ok(amount) => Ok(amount),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::table::TABLE;

    fn leaves(command: &Command, before: &str, found: &mut BTreeSet<String>) {
        for sub in command.get_subcommands() {
            let name = format!("{before} {}", sub.get_name()).trim().to_owned();
            if sub.has_subcommands() { leaves(sub, &name, found) } else { assert!(found.insert(name)) }
        }
    }

    #[test]
    fn every_action_has_one_row_of_the_table_with_roles() {
        let mut declared = BTreeSet::new();
        leaves(&command(), "", &mut declared);
        let listed: BTreeSet<String> = TABLE.iter().map(|spec| spec.name.to_owned()).collect();
        assert_eq!(declared, listed);
        assert_eq!(listed.len(), TABLE.len(), "a row stands twice");
        assert!(TABLE.iter().all(|spec| !spec.roles.is_empty()));
    }

    #[test]
    fn no_action_takes_the_name_of_an_operator_who_acts() {
        fn check(command: &Command) {
            for sub in command.get_subcommands() {
                assert!(
                    sub.get_arguments().all(|arg| arg.get_long() != Some("operator")),
                    "{}",
                    sub.get_name()
                );
                check(sub);
            }
        }
        check(&command());
    }
}
