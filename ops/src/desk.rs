//! What an action is about: the transaction, the deployment and the caller.

use std::collections::HashMap;
use std::sync::Arc;

use dvp_core::operators::requests::Maker;
use dvp_core::operators::targets::Targets;
use dvp_core::secrets::Vault;
use dvp_domain::address::OwnContracts;
use dvp_domain::environment::Environment;
use dvp_store::PgConnection;
use dvp_store::fix::FixSessionRow;
use dvp_store::fix::settings::FixSessionSettings;

use crate::caller::Caller;

/// What the FIX gateway knows of sessions.
#[derive(Debug, Clone)]
pub struct FixRules {
    /// Types of messages that a reset of a session's numbers does not keep.
    pub stale_types: Vec<String>,
    /// Refuses settings that a session's version cannot have.
    pub check: fn(&FixSessionRow, &FixSessionSettings) -> anyhow::Result<()>,
}

/// The deployment that actions are about.
#[derive(Debug, Clone)]
pub struct House {
    pub environment: Environment,
    pub vault: Arc<Vault>,
    pub targets: Targets,
    /// The decimals of each asset.
    pub decimals: HashMap<String, u8>,
    pub contracts: OwnContracts,
    pub fix: FixRules,
    /// The address of the console, for sign-in links.
    pub console: String,
}

/// An action's own view: the transaction, the deployment and the caller.
pub(crate) struct Desk<'a> {
    pub conn: &'a mut PgConnection,
    pub house: &'a House,
    pub by: &'a Caller,
}

impl<'a> Desk<'a> {
    /// The maker of a request.
    pub(crate) fn maker<'b>(&self, reason: &'b str, evidence: &'b str) -> Maker<'b>
    where
        'a: 'b,
    {
        Maker { operator: &self.by.name, reason, evidence }
    }
}
