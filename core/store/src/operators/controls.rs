//! The settings of operators that apply to every batch of orders, in one query.

use dvp_domain::abandonment::CoolDownScope;
use dvp_domain::liquidity::band::Band;
use dvp_domain::pause::{Pauses, Scope};
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use crate::{StoreError, known, statement};

/// The controls in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controls {
    pub pauses: Pauses,
    /// Price bands, by input and output.
    pub bands: Vec<((String, String), Band)>,
    /// The disabled partners among the requested ones.
    pub disabled: Vec<String>,
    /// Of the requested partners and wallets, those whose orders are refused for now, and until when.
    pub cooling: Vec<((CoolDownScope, String), Timestamp)>,
}

/// The kind of the row, two texts, and the numbers of a band.
type ControlRow = (String, String, String, Option<i32>, Option<String>);

/// The controls in force, and what applies to the given partners, and wallets in lower case.
pub async fn load(
    conn: &mut PgConnection,
    partner_ids: &[&str],
    wallets: &[&str],
    now: Timestamp,
) -> Result<Controls, StoreError> {
    let sql = "select 'pause', scope, target, null::integer, null::text from pause \
         union all select 'band', input, output, deviation_bps, middle::text from price_band \
         where deviation_bps is not null \
         union all select 'disabled', id, '', null, null from partner where id = any($1) and disabled_at is not null \
         union all select 'cooling', scope, subject, null, (extract(epoch from until) * 1000)::int8::text from cool_down \
         where until > $3 and (scope = 'partner' and subject = any($1) or scope = 'wallet' and subject = any($2)) \
         union all select 'outage', '', '', null, null from bank_outage where seen_at > now() - interval '1 minute'";
    let rows: Vec<ControlRow> = statement::list(conn, sql, (partner_ids, wallets, now.to_utc())).await?;
    let mut controls = Controls::default();
    let (mut pauses, mut is_rail_out) = (Vec::new(), false);
    for (kind, first, second, deviation_bps, middle) in rows {
        match kind.as_str() {
            "pause" => pauses.push((known("pause", &first, Scope::parse)?, second)),
            "band" => controls.bands.push(((first, second), band(deviation_bps, middle.as_deref())?)),
            "cooling" => {
                let corrupt = || StoreError::corrupt("cool_down", format_args!("{first} {second}"));
                let until = middle.and_then(|millis| millis.parse().ok()).ok_or_else(corrupt)?;
                let scope = known("cool_down", &first, CoolDownScope::parse)?;
                controls.cooling.push(((scope, second), Timestamp::from_millis(until)));
            }
            "outage" => is_rail_out = true,
            _ => controls.disabled.push(first),
        }
    }
    controls.pauses = pauses.into_iter().collect::<Pauses>().with_rail_out(is_rail_out);
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
