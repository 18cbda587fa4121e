//! Conversion from the provider's own inventory.
//!
//! The provider's output was reserved when the order was accepted, at the rate locked then, so a conversion is only the
//! ledger posting of the settlement's step: no outside system is called, and a failed commit leaves nothing behind.

use dvp_domain::settlement::leg::inventory_reference;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_store::database::clock;

use super::{LegKind, Rail, RailFuture, RailRequest, RailStatus};

/// Completes every conversion immediately. Makes no payouts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inventory;

impl Rail for Inventory {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        let answer = match request.leg {
            LegKind::Offramp => RailAnswer::Done(LegDone {
                provider_reference: inventory_reference(&request.reference),
                occurred_at: clock::now(),
            }),
            LegKind::Payout => RailAnswer::Failed {
                code: "payout_not_served".into(),
                message: "the inventory converts and does not pay out".into(),
                retryable: false,
            },
        };
        Box::pin(std::future::ready(Ok(answer)))
    }

    /// A call whose answer was not committed did nothing.
    fn status<'a>(&'a self, _: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(std::future::ready(Ok(RailStatus::NeverSeen)))
    }
}
