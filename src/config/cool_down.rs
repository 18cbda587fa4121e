//! When takers cool down that let accepted orders and firm quotes go.

use anyhow::{Context as _, ensure};
use dvp_domain::abandonment::CoolDownRules;
use serde::Deserialize;

use super::value::{Span, within};

/// What is left out has its default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CoolDownSection {
    pub window: Option<Span>,
    pub orders_of_wallet: Option<u32>,
    pub orders_of_partner: Option<u32>,
    pub orders_share_bps: Option<u32>,
    pub quotes_share_bps: Option<u32>,
}

impl CoolDownSection {
    pub(crate) fn rules(&self) -> anyhow::Result<CoolDownRules> {
        let default = CoolDownRules::default();
        within("cool_down.window", self.window, "1m", "1d")?;
        for (key, count) in
            [("orders_of_wallet", self.orders_of_wallet), ("orders_of_partner", self.orders_of_partner)]
        {
            ensure!(count.is_none_or(|count| count > 0), "cool_down.{key} is not above 0");
        }
        for (key, bps) in
            [("orders_share_bps", self.orders_share_bps), ("quotes_share_bps", self.quotes_share_bps)]
        {
            ensure!(
                bps.is_none_or(|bps| (1..=10_000).contains(&bps)),
                "cool_down.{key} is not between 1 and 10000"
            );
        }
        let window = self.window.map(|window| u32::try_from(window.0.as_secs()));
        Ok(CoolDownRules {
            window_secs: window.transpose().context("cool_down.window")?.unwrap_or(default.window_secs),
            orders_of_wallet: self.orders_of_wallet.unwrap_or(default.orders_of_wallet),
            orders_of_partner: self.orders_of_partner.unwrap_or(default.orders_of_partner),
            orders_share_bps: self.orders_share_bps.unwrap_or(default.orders_share_bps),
            quotes_share_bps: self.quotes_share_bps.unwrap_or(default.quotes_share_bps),
        })
    }
}
