//! A rail whose books are in memory: it converts and pays at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::{Rail, RailFuture, RailRequest, RailStatus};

/// What was paid, by reference. A repeated call is answered as the first.
#[derive(Debug, Default)]
pub(super) struct MemoryRail {
    books: Mutex<HashMap<String, LegDone>>,
}

impl Rail for MemoryRail {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async {
            let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
            let done = books.entry(request.reference.clone()).or_insert_with(|| LegDone {
                provider_reference: format!("MEM-{}", request.reference),
                occurred_at: dvp_core::context::now(),
            });
            Ok(RailAnswer::Done(done.clone()))
        })
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async {
            let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
            let done = books.get(&request.reference).cloned();
            Ok(done.map_or(RailStatus::NeverSeen, |done| RailStatus::Known(RailAnswer::Done(done))))
        })
    }
}
