//! The cell of this deployment.

use dvp_domain::cell::CellId;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CellSection {
    /// Three lowercase hex digits. Stamped into the database by `dvp migrate`.
    pub id: CellId,
}
