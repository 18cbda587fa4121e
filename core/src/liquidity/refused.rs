//! The prices that are refused at the moment: a metric for each, and a log line when it begins and ends.

use std::collections::BTreeSet;

use dvp_domain::liquidity::band::RefusedPrice;
use metrics::gauge;
use parking_lot::Mutex;
use tracing::{info, warn};

#[derive(Debug, Default)]
pub(super) struct RefusedPrices(Mutex<BTreeSet<RefusedPrice>>);

impl RefusedPrices {
    pub(super) fn report(&self, refused: Vec<RefusedPrice>) {
        let refused: BTreeSet<RefusedPrice> = refused.into_iter().collect();
        let mut known = self.0.lock();
        for price in refused.difference(&known) {
            let RefusedPrice { input, output, fault, .. } = price;
            warn!(%input, %output, source = source(price), fault = fault.as_str(), "price refused by its band");
            figure(price).set(1.0);
        }
        for price in known.difference(&refused) {
            let RefusedPrice { input, output, fault, .. } = price;
            info!(%input, %output, source = source(price), fault = fault.as_str(), "price no longer refused");
            figure(price).set(0.0);
        }
        *known = refused;
    }
}

fn source(price: &RefusedPrice) -> &str {
    price.source.as_deref().unwrap_or("reference")
}

fn figure(price: &RefusedPrice) -> metrics::Gauge {
    gauge!(
        "dvp_prices_refused",
        "pair" => format!("{}/{}", price.input, price.output),
        "source" => source(price).to_owned(),
        "fault" => price.fault.as_str(),
    )
}
