//! The operator of a change that takes two in a live deployment.

use anyhow::bail;
use clap::Args;
use dvp_core::operators::requests::Maker;
use dvp_domain::environment::Environment;

#[derive(Debug, Args)]
pub(crate) struct MakerArgs {
    /// The requesting operator: another one approves the change. Needed in a live deployment; a test deployment makes
    /// the change at once without it.
    #[arg(long, visible_alias = "as", requires_all = ["reason", "evidence"])]
    pub operator: Option<String>,
    #[arg(long, requires = "operator")]
    pub reason: Option<String>,
    #[arg(long, requires = "operator")]
    pub evidence: Option<String>,
}

impl MakerArgs {
    /// The maker of a request, or none when the change is made at once.
    pub(crate) fn maker(&self, environment: Environment) -> anyhow::Result<Option<Maker<'_>>> {
        match (&self.operator, &self.reason, &self.evidence) {
            (Some(operator), Some(reason), Some(evidence)) => Ok(Some(Maker { operator, reason, evidence })),
            _ if environment.is_live() => {
                bail!(
                    "this takes two operators: give --operator, --reason and --evidence; another one approves it"
                )
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_deployment_needs_a_maker() {
        let none = MakerArgs { operator: None, reason: None, evidence: None };
        assert!(none.maker(Environment::Test).unwrap().is_none());
        assert!(none.maker(Environment::Live).unwrap_err().to_string().contains("--operator"));
        let some = Some("x".to_owned());
        let given = MakerArgs { operator: some.clone(), reason: some.clone(), evidence: some };
        for environment in [Environment::Test, Environment::Live] {
            assert_eq!(given.maker(environment).unwrap().map(|maker| maker.operator), Some("x"));
        }
    }
}
