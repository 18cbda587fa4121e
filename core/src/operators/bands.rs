//! Price bands of pairs, changed by two operators: a change is requested, and applies from its approval on
//! ([`crate::operators::approvals`]). Its version is the number of changes of the same pair's band.

use dvp_domain::liquidity::band::Band;
use dvp_domain::pause::Scope;
use dvp_store::operators::approvals::Approval;
use dvp_store::{PgConnection, StoreError, operators::bands};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};
use crate::operators::targets::{TargetError, Targets};

/// The kind of requests about price bands.
pub const BAND: &str = "band";

/// The requested band of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BandChange {
    /// The asset that orders pay.
    pub input: String,
    /// The asset that orders receive.
    pub output: String,
    /// `None`: the configured band applies, if there is one.
    pub deviation_bps: Option<u32>,
    /// The operators' own price; `None`: the reference price is the middle.
    pub middle: Option<Decimal>,
}

impl BandChange {
    fn check(&self) -> Result<(), BandError> {
        let Self { input, output, deviation_bps, middle } = self;
        if input.trim().is_empty() || output.trim().is_empty() {
            return Err(BandError::Pair);
        }
        let is_width = deviation_bps.is_none_or(|bps| (1..10_000).contains(&bps));
        let is_price = middle.is_none_or(|middle| middle > Decimal::ZERO && deviation_bps.is_some());
        if is_width && is_price { Ok(()) } else { Err(BandError::Numbers) }
    }
}

/// Why a change was not requested or made.
#[derive(Debug, thiserror::Error)]
pub enum BandError {
    #[error("a price band needs a pair: INPUT/OUTPUT")]
    Pair,
    #[error("a price band is 1 to 9999 basis points wide, around a positive price if one is given")]
    Numbers,
    #[error(transparent)]
    Unknown(TargetError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TargetError> for BandError {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Store(error) => Self::Store(error),
            error => Self::Unknown(error),
        }
    }
}

/// Requests a change of a pair's band. A band that is set can be removed although its pair does not exist any more.
pub async fn request(
    conn: &mut PgConnection,
    targets: &Targets,
    change: &BandChange,
    maker: Maker<'_>,
) -> Result<RequestedChange, BandError> {
    change.check()?;
    let subject = format!("{}/{}", change.input, change.output);
    let all = bands::list(conn).await?;
    let is_set = all.iter().any(|row| (&row.input, &row.output) == (&change.input, &change.output));
    if change.deviation_bps.is_some() || !is_set {
        targets.find(conn, Scope::Pair, &subject).await?;
    }
    let action = if change.deviation_bps.is_some() { "set_band" } else { "remove_band" };
    let wanted = SettingChange { kind: BAND, subject: &subject, action };
    Ok(requests::request_change(conn, wanted, change, maker).await?)
}

/// Changes a band when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), BandError> {
    let BandChange { input, output, deviation_bps, middle } = requests::unmoved(conn, request).await?;
    let band = deviation_bps.map(|deviation_bps| Band { deviation_bps, middle });
    Ok(bands::set(conn, (&input, &output), band, &request.id).await?)
}
