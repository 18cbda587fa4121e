//! The settings of operators that apply to every batch of orders, in one query.

use dvp_domain::liquidity::band::Band;
use dvp_domain::pause::{Pauses, Scope};
use sqlx::PgConnection;

use crate::StoreError;

/// The controls in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controls {
    pub pauses: Pauses,
    /// Price bands, by input and output.
    pub bands: Vec<((String, String), Band)>,
    /// The disabled partners among the requested ones.
    pub disabled: Vec<String>,
    /// Those among the requested ones whose new orders another cell accepts, or will accept.
    pub closed: Vec<String>,
}

/// The kind of the row, two texts, and the numbers of a band.
type ControlRow = (String, String, String, Option<i32>, Option<String>);

/// The controls in force, and the disabled partners among the given ones.
pub async fn load(conn: &mut PgConnection, partner_ids: &[&str]) -> Result<Controls, StoreError> {
    let rows: Vec<ControlRow> = sqlx::query_as(
        "select 'pause', scope, target, null::integer, null::text from pause \
         union all select 'band', input, output, deviation_bps, middle::text from price_band \
         where deviation_bps is not null \
         union all select 'disabled', id, '', null, null from partner where id = any($1) and disabled_at is not null \
         union all select 'closed', id, '', null, null from partner where id = any($1) and closed_by is not null",
    )
    .bind(partner_ids)
    .fetch_all(conn)
    .await?;
    let mut controls = Controls::default();
    let mut pauses = Vec::new();
    for (kind, first, second, deviation_bps, middle) in rows {
        match kind.as_str() {
            "pause" => {
                let unknown = || StoreError::corrupt("pause", format_args!("scope {first}"));
                pauses.push((Scope::parse(&first).ok_or_else(unknown)?, second));
            }
            "band" => controls.bands.push(((first, second), band(deviation_bps, middle.as_deref())?)),
            "closed" => controls.closed.push(first),
            _ => controls.disabled.push(first),
        }
    }
    controls.pauses = pauses.into_iter().collect();
    Ok(controls)
}

fn band(deviation_bps: Option<i32>, middle: Option<&str>) -> Result<Band, StoreError> {
    let deviation_bps = deviation_bps.and_then(|bps| u32::try_from(bps).ok());
    let middle = middle.map(str::parse).transpose();
    Ok(Band {
        deviation_bps: deviation_bps.ok_or_else(|| StoreError::corrupt("price_band", "no deviation"))?,
        middle: middle.map_err(|error| StoreError::corrupt("price_band", error))?,
    })
}
