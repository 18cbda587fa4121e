//! Commands that do one thing beside a running service and end.

pub(crate) mod approval;
#[cfg(feature = "archive")]
pub(crate) mod archive;
pub(crate) mod audit;
pub(crate) mod band;
pub(crate) mod bank;
pub(crate) mod beneficiary;
pub(crate) mod cell;
pub(crate) mod chain;
mod deposit;
pub(crate) mod doctor;
pub(crate) mod execution;
mod fix_control;
pub(crate) mod fix_session;
pub(crate) mod key;
pub(crate) mod ledger;
pub(crate) mod limit;
pub(crate) mod maker;
pub(crate) mod migrate;
pub(crate) mod operator;
pub(crate) mod partner;
mod partner_move;
pub(crate) mod pause;
pub(crate) mod personal_data;
pub(crate) mod provider;
pub(crate) mod quote;
pub(crate) mod recall;
pub(crate) mod receipt;
pub(crate) mod reconcile;
pub(crate) mod secrets;
pub(crate) mod statement;
pub(crate) mod transfer;
pub(crate) mod webhook;

use anyhow::Context as _;
use dvp_store::partners::{self, PartnerRow};
use sqlx::PgConnection;

/// The partner with the given name.
async fn named_partner(conn: &mut PgConnection, name: &str) -> anyhow::Result<PartnerRow> {
    partners::find_partner(conn, name).await?.with_context(|| format!("there is no partner {name}"))
}
