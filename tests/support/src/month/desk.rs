//! A desk that converts at once, and fails for one account.

use dvp_domain::settlement::RailAnswer;
use dvp_rails::inventory::Inventory;
use dvp_rails::{Rail, RailFuture, RailRequest, RailStatus};

/// Orders to this account are not converted.
pub(super) const UNCONVERTED: &str = "000123450003";

pub(super) struct Desk;

impl Rail for Desk {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        if request.account == UNCONVERTED {
            let (code, message) = ("desk_closed".to_owned(), "the desk is closed".to_owned());
            return Box::pin(async { Ok(RailAnswer::Failed { code, message, retryable: false }) });
        }
        Inventory.submit(request)
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Inventory.status(request)
    }
}
