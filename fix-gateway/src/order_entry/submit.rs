//! An order to the engine, and its outcome to the session's rows, in one commit.

use std::sync::Arc;

use dvp_core::{
    engine::{JudgedPermit, SubmitCommand},
    writer::{Outcome, Refusal, RenderFix},
};
use dvp_store::fix::rows::{ClOrdId, Parking};
use tracing::info;

use super::{
    OrderEntry, acknowledged,
    rows::{Slot, submitted_rows},
};
use crate::{
    application::{Commit, Numbers, Unavailable},
    orders::{
        facts::{OrderFacts, Rejection},
        parse,
        report::ReportContent,
    },
};

impl OrderEntry {
    /// Queues an order whose permit was judged. `is_parked`: it waited until now.
    pub(super) async fn submit(
        &self,
        (order, facts): (parse::Order, OrderFacts),
        permit: JudgedPermit,
        (slot, numbers): (Slot, Numbers),
        is_parked: bool,
    ) -> Result<Commit, Unavailable> {
        let parse::Order { cl_ord_id, request, .. } = order;
        let render = self.outcome_renderer(slot, cl_ord_id.clone(), facts, None, is_parked);
        let command = SubmitCommand {
            tenant: self.tenant.clone(),
            request,
            idempotency: None,
            fix: Some(self.part(numbers, render).using(&cl_ord_id)),
        };
        let pending = self.engine.begin_submit(command, permit).await?;
        info!("order queued");
        Ok(acknowledged(pending))
    }

    /// Renders, inside its commit, the outcome of a submission, or of one that was refused before the engine saw it:
    /// either may find its ClOrdID used.
    pub(super) fn outcome_renderer(
        &self,
        slot: Slot,
        cl_ord_id: ClOrdId,
        facts: OrderFacts,
        refused: Option<Rejection>,
        is_parked: bool,
    ) -> RenderFix {
        let (version, session_id) = (self.version, self.session.session_id.clone());
        Arc::new(move |outcome| {
            let content = match (&refused, outcome) {
                (Some(rejection), Outcome::Written) => ReportContent::Rejected(rejection.clone()),
                _ => ReportContent::of_outcome(outcome, version),
            };
            let mut rows =
                submitted_rows(version, &session_id, slot, &cl_ord_id, &facts, &content, Some(outcome));
            if matches!(
                outcome,
                Outcome::Refused(Refusal::DuplicateIntent | Refusal::DuplicateClientReference)
            ) {
                // The ClOrdID stands for another order already.
                rows.orders.clear();
            }
            rows.parking.extend(is_parked.then(|| Parking::Decide { cl_ord_id: cl_ord_id.id.clone() }));
            rows
        })
    }
}
