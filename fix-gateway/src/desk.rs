//! The business behind one session: orders to the engine, outcomes and events to reports, everything in commits of
//! the engine's writer.

mod absence;
mod copies;
mod quotes;
mod rows;
mod status;

use std::{collections::HashSet, sync::Arc, time::Duration};

use dvp_core::{
    context,
    engine::{CancelOutcome, Engine, EngineError, Pending, SubmitCommand},
    fix::{FixOrder, FixOutbound, FixPart, FixRows, RenderFix},
    store::{
        StoreError,
        events::{Filter, StoredEvent},
        fix as store,
        fix::FixSessionRow,
        fix_settings::FixSessionSettings,
        intents::Tenant,
    },
    writer::Outcome,
};
use dvp_domain::event::EventType;
use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{MessageRef, MsgType},
    schedule::Epoch,
    session::{Stored, business_reject},
};
use tokio::sync::watch;
use tracing::{Instrument as _, info, info_span, warn};

use self::absence::Absence;
use self::rows::{
    Slot, cancel_order, details, is_repetition, order_facts, stored, submitted_rows, to_json, transmissible,
};
use crate::{
    application::{Application, Commit, Numbers, Turn, Unavailable},
    orders::{
        Version,
        facts::{Details, OrderFacts},
        parse,
        report::{self, CancelRefusal, CancelRejected, Ids, Told},
        tags,
    },
};

/// Events read at once.
const PAGE: i64 = 200;
/// Refused ClOrdIDs remembered.
const REFUSED_MAX: i64 = 100_000;
/// Between two tries to find a place in the writer's queue: TCP makes the peer wait.
const BUSY_WAIT: Duration = Duration::from_millis(5);
/// The feed is looked at this often even when nobody says that it grew.
const FEED_TICK: Duration = Duration::from_secs(1);
/// ClientReferences are this long at most.
const CL_ORD_ID_MAX: usize = 128;

/// One session's application.
pub(crate) struct Desk {
    engine: Engine,
    session: FixSessionRow,
    version: Version,
    tenant: Tenant,
    /// ClOrdIDs that were refused here and that the engine therefore does not know.
    refused: HashSet<String>,
    /// Ticks when the feed grows.
    feed: watch::Receiver<u64>,
    feed_position: i64,
    feed_has_more: bool,
    /// Copies of all the partner's reports, and no orders.
    is_drop_copy: bool,
    absence: Absence,
}

impl From<StoreError> for Unavailable {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}

impl From<EngineError> for Unavailable {
    fn from(error: EngineError) -> Self {
        Self(error.to_string())
    }
}

impl Desk {
    pub(crate) fn new(
        engine: Engine,
        session: FixSessionRow,
        settings: &FixSessionSettings,
        feed: watch::Receiver<u64>,
    ) -> Self {
        let tenant = Tenant { partner_id: session.partner_id.clone(), livemode: session.livemode };
        let (version, feed_position) = (Version::of(&session.begin_string), session.feed_position);
        Self {
            engine,
            session,
            version,
            tenant,
            refused: HashSet::new(),
            feed,
            feed_position,
            feed_has_more: true,
            is_drop_copy: settings.drop_copy,
            absence: Absence::agreed(settings),
        }
    }

    async fn connection(&self) -> Result<sqlx::pool::PoolConnection<sqlx::Postgres>, Unavailable> {
        self.engine.pool().acquire().await.map_err(|error| Unavailable(error.to_string()))
    }

    fn part(&self, numbers: Numbers, render: RenderFix) -> FixPart {
        FixPart {
            session_id: self.session.session_id.clone(),
            next_in: numbers.next_in.0,
            next_out_before: numbers.next_out_before.0,
            next_out: numbers.next_out.0,
            feed_position: None,
            reset: numbers.reset,
            render,
        }
    }

    /// Queues rows that do not depend on an outcome.
    async fn write(&self, numbers: Numbers, rows: FixRows) -> Result<Commit, Unavailable> {
        self.queue(self.part(numbers, Arc::new(move |_| rows.clone()))).await
    }

    async fn queue(&self, part: FixPart) -> Result<Commit, Unavailable> {
        loop {
            match self.engine.begin_commit_fix(part.clone()) {
                Ok(pending) => return Ok(acknowledged(pending, part.render)),
                Err(EngineError::Busy) => tokio::time::sleep(BUSY_WAIT).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn new_order(
        &mut self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let facts = OrderFacts::of(message);
        let cl_ord_id = match message.text(tags::CL_ORD_ID) {
            Some(cl_ord_id) if cl_ord_id.len() <= CL_ORD_ID_MAX => cl_ord_id.to_owned(),
            _ => return self.refuse_message(message, slot, numbers, 0, "ClOrdID is no short text").await,
        };
        if is_repetition(message)
            && let Some(order) = self.find_order(&cl_ord_id).await?
            && let Some(known) = order_facts(&order)
            && known.fingerprint == facts.fingerprint
        {
            return self.tell_again(&order, &known, slot, numbers).await;
        }
        if self.refused.contains(&cl_ord_id) {
            let rows = self.submitted(slot, &cl_ord_id, &facts, &Told::duplicate(), None);
            return self.write(numbers, FixRows { orders: Vec::new(), ..rows }).await;
        }
        match parse::order(message, &self.session, self.engine.context(), context::now()) {
            Ok(request) => {
                let span = info_span!(
                    "fix_order", session = self.session.session_id, intent_id = %request.intent_id
                );
                let command = (request, cl_ord_id, facts);
                self.submit(message, command, slot, numbers).instrument(span).await
            }
            Err(rejection) => {
                info!(session = self.session.session_id, cl_ord_id, reason = rejection.text, "order refused");
                self.refused.insert(cl_ord_id.clone());
                let facts = OrderFacts { refused_at_the_door: true, ..facts };
                let rows = self.submitted(slot, &cl_ord_id, &facts, &Told::Rejected(rejection), None);
                self.write(numbers, rows).await
            }
        }
    }

    async fn submit(
        &self,
        message: MessageRef<'_>,
        (request, cl_ord_id, facts): (dvp_domain::intent::IntentRequest, String, OrderFacts),
        slot: Slot,
        numbers: Numbers,
    ) -> Result<Commit, Unavailable> {
        let render = self.outcome_renderer(slot, cl_ord_id, facts);
        loop {
            let command = SubmitCommand {
                tenant: self.tenant.clone(),
                request: request.clone(),
                idempotency: None,
                fix: Some(self.part(numbers, Arc::clone(&render))),
            };
            match self.engine.begin_submit(command).await {
                Ok(pending) => {
                    info!("order queued");
                    return Ok(acknowledged(pending, render));
                }
                Err(EngineError::Busy) => tokio::time::sleep(BUSY_WAIT).await,
                Err(error) => {
                    // The chain does not answer, say. The order was not taken, and the session can go on.
                    warn!(%error, "order not taken");
                    return self.refuse_message(message, slot, numbers, 4, "not available, try again").await;
                }
            }
        }
    }

    /// Renders the outcome of a submission inside its commit.
    fn outcome_renderer(&self, slot: Slot, cl_ord_id: String, facts: OrderFacts) -> RenderFix {
        let (version, session_id) = (self.version, self.session.session_id.clone());
        Arc::new(move |outcome| {
            let told = Told::of_outcome(outcome, version);
            let mut rows =
                submitted_rows(version, &session_id, slot, &cl_ord_id, &facts, &told, Some(outcome));
            if matches!(outcome, Outcome::DuplicateIntent | Outcome::DuplicateClientReference) {
                // The ClOrdID stands for another order already.
                rows.orders.clear();
            }
            rows
        })
    }

    fn submitted(
        &self,
        slot: Slot,
        cl_ord_id: &str,
        facts: &OrderFacts,
        told: &Told,
        outcome: Option<&Outcome>,
    ) -> FixRows {
        submitted_rows(self.version, &self.session.session_id, slot, cl_ord_id, facts, told, outcome)
    }

    async fn find_order(&self, cl_ord_id: &str) -> Result<Option<FixOrder>, Unavailable> {
        let mut conn = self.connection().await?;
        Ok(store::find_order(&mut conn, &self.session.session_id, cl_ord_id).await?)
    }

    /// What was told last about an order, and the number of the event that told it.
    async fn latest(&self, order: &FixOrder, facts: &OrderFacts) -> Result<(Told, i64), Unavailable> {
        if order.reference.is_none() {
            let rejected = facts.rejection.clone().map_or_else(Told::duplicate, Told::Rejected);
            return Ok((rejected, 0));
        }
        let filter = Filter { after: 0, kind: None, intent_id: Some(order.intent_id.clone()), limit: PAGE };
        let events = self.engine.events(&self.tenant, &filter).await?;
        Ok(events.last().map_or((Told::New, 1), |last| {
            (Told::of_event(last.event.kind, &last.event.object, facts), last.event.sequence)
        }))
    }

    /// The current report again, under a new number.
    async fn tell_again(
        &self,
        order: &FixOrder,
        facts: &OrderFacts,
        slot: Slot,
        numbers: Numbers,
    ) -> Result<Commit, Unavailable> {
        let (told, sequence) = self.latest(order, facts).await?;
        let about = order.reference.as_deref().unwrap_or(&order.intent_id);
        let ids = Ids {
            cl_ord_id: &order.cl_ord_id,
            orig_cl_ord_id: None,
            order_id: order.reference.as_deref().unwrap_or("NONE"),
            exec_id: format!("{about}.{sequence}"),
            at: slot.at,
            is_status: false,
        };
        let body = report::execution_report(self.version, facts, &told, &ids);
        self.write(
            numbers,
            FixRows { outbound: vec![slot.holds(MsgType::EXECUTION_REPORT, body)], orders: Vec::new() },
        )
        .await
    }

    async fn cancel(&self, message: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let said = |tag| message.text(tag).unwrap_or_default();
        let (cl_ord_id, orig) = (said(tags::CL_ORD_ID), said(tags::ORIG_CL_ORD_ID));
        let order = self.find_order(orig).await?;
        let known = order.as_ref().and_then(|order| Some((order, order_facts(order)?)));
        if let Some(used) = self.find_order(cl_ord_id).await? {
            let same =
                matches!(details(&used), Some(Details::Cancel { orig_cl_ord_id }) if orig_cl_ord_id == orig);
            return match known {
                Some((order, facts)) if same && is_repetition(message) => {
                    self.tell_again(order, &facts, slot, numbers).await
                }
                known => {
                    let order = known.map(|(order, _)| order);
                    let refusal = CancelRefusal::DuplicateClOrdId;
                    let rows = self.refuse_cancel(message, slot, order, refusal).await?;
                    self.write(numbers, FixRows { orders: Vec::new(), ..rows }).await
                }
            };
        }
        let Some((order, facts)) = known.filter(|(order, _)| order.reference.is_some()) else {
            let rows = self.refuse_cancel(message, slot, None, CancelRefusal::UnknownOrder).await?;
            return self.write(numbers, rows).await;
        };
        let span = info_span!("fix_cancel", session = self.session.session_id, intent_id = %order.intent_id);
        self.cancel_known(message, order, facts, slot, numbers).instrument(span).await
    }

    async fn cancel_known(
        &self,
        message: MessageRef<'_>,
        order: &FixOrder,
        facts: OrderFacts,
        slot: Slot,
        numbers: Numbers,
    ) -> Result<Commit, Unavailable> {
        let reference = order.reference.clone().unwrap_or_default();
        let cl_ord_id = message.text(tags::CL_ORD_ID).unwrap_or_default().to_owned();
        let facts = OrderFacts { cancelled_by: Some(cl_ord_id.clone()), ..facts };
        let ids = Ids {
            cl_ord_id: &cl_ord_id,
            orig_cl_ord_id: Some(&order.cl_ord_id),
            order_id: &reference,
            exec_id: format!("{reference}.c.{cl_ord_id}"),
            at: slot.at,
            is_status: false,
        };
        let body = report::execution_report(self.version, &facts, &Told::Canceled(None), &ids);
        let orders = vec![
            FixOrder { details: to_json(&Details::Order(Box::new(facts))), ..order.clone() },
            cancel_order(&cl_ord_id, &order.cl_ord_id),
        ];
        let rows = FixRows { outbound: vec![slot.holds(MsgType::EXECUTION_REPORT, body)], orders };
        let render: RenderFix = Arc::new(move |_| rows.clone());
        let part = self.part(numbers, Arc::clone(&render));
        match self.engine.cancel(&self.tenant, &reference, Some(part)).await {
            Ok(CancelOutcome::Cancelled) => {
                Ok(Commit::under_way(std::future::ready(transmissible(render(&Outcome::Written)))))
            }
            Ok(CancelOutcome::TooLate) => {
                let rows = self.refuse_cancel(message, slot, Some(order), CancelRefusal::TooLate).await?;
                self.write(numbers, rows).await
            }
            Ok(CancelOutcome::Unknown) => {
                let rows = self.refuse_cancel(message, slot, None, CancelRefusal::UnknownOrder).await?;
                self.write(numbers, rows).await
            }
            // Whether it was written is for the store to say: the session's numbers are loaded anew.
            Err(error) => Err(error.into()),
        }
    }

    async fn refuse_cancel(
        &self,
        message: MessageRef<'_>,
        slot: Slot,
        order: Option<&FixOrder>,
        refusal: CancelRefusal,
    ) -> Result<FixRows, Unavailable> {
        let said = |tag| message.text(tag).unwrap_or_default();
        let (cl_ord_id, orig) = (said(tags::CL_ORD_ID), said(tags::ORIG_CL_ORD_ID));
        let latest = match order.and_then(|order| Some((order, order_facts(order)?))) {
            Some((order, facts)) => Some(self.latest(order, &facts).await?.0),
            None => None,
        };
        let rejected = CancelRejected {
            cl_ord_id,
            orig_cl_ord_id: orig,
            order_id: order.and_then(|order| order.reference.as_deref()).unwrap_or("NONE"),
            ord_status: latest.as_ref().map_or("8", report::ord_status),
            refusal,
            at: slot.at,
        };
        let body = report::cancel_reject(self.version, &rejected);
        let orders = vec![cancel_order(cl_ord_id, orig)];
        Ok(FixRows { outbound: vec![slot.holds(MsgType::ORDER_CANCEL_REJECT, body)], orders })
    }

    /// A BusinessMessageReject(j).
    async fn refuse_message(
        &self,
        message: MessageRef<'_>,
        slot: Slot,
        numbers: Numbers,
        reason: u8,
        text: &str,
    ) -> Result<Commit, Unavailable> {
        let body = business_reject(message, reason, text);
        self.write(
            numbers,
            FixRows {
                outbound: vec![slot.holds(MsgType::BUSINESS_MESSAGE_REJECT, body)],
                orders: Vec::new(),
            },
        )
        .await
    }

    /// What an event has to tell; `None` when it was told already.
    fn reportable(stored: &StoredEvent, order: &FixOrder) -> Option<(OrderFacts, Told)> {
        let facts = order_facts(order)?;
        let is_told = match stored.event.kind {
            EventType::IntentAccepted => true,
            EventType::IntentCancelled => facts.cancelled_by.is_some(),
            EventType::OfframpInitiated
            | EventType::OfframpInProgress
            | EventType::OfframpCompleted
            | EventType::OfframpFailed
            | EventType::PayoutInitiated
            | EventType::PayoutInProgress
            | EventType::PayoutCompleted
            | EventType::PayoutFailed
            | EventType::IntentExpired
            | EventType::IntentFailed => false,
        };
        let told = Told::of_event(stored.event.kind, &stored.event.object, &facts);
        (!is_told).then_some((facts, told))
    }

    /// Reports of what a page of the feed tells about the session's orders, and the position read up to.
    async fn own_reports(&self, turn: &mut Turn<'_>) -> Result<(Vec<FixOutbound>, i64), Unavailable> {
        let mut conn = self.connection().await?;
        let page = store::list_reportable(&mut conn, &self.session, self.feed_position, PAGE).await?;
        drop(conn);
        let reports = page.events.iter().filter_map(|(event, order)| self.event_report(turn, event, order));
        Ok((reports.collect(), page.position))
    }

    fn event_report(
        &self,
        turn: &mut Turn<'_>,
        stored: &StoredEvent,
        order: &FixOrder,
    ) -> Option<FixOutbound> {
        let (facts, told) = Self::reportable(stored, order)?;
        let slot = Slot { seq: turn.reserve(), at: turn.sending_time() };
        let ids = Ids {
            cl_ord_id: &order.cl_ord_id,
            orig_cl_ord_id: None,
            order_id: &stored.event.reference,
            exec_id: format!("{}.{}", stored.event.reference, stored.event.sequence),
            at: occurred_at(stored),
            is_status: false,
        };
        info!(intent_id = %order.intent_id, event = stored.event.kind.as_str(), seq = %slot.seq, "report");
        Some(
            slot.holds(
                MsgType::EXECUTION_REPORT,
                report::execution_report(self.version, &facts, &told, &ids),
            ),
        )
    }
}

impl Application for Desk {
    async fn load(&mut self) -> Result<(SeqNum, SeqNum), Unavailable> {
        let mut conn = self.connection().await?;
        let id = &self.session.session_id;
        let session = store::find_session(&mut conn, id).await?;
        let session = session.ok_or_else(|| Unavailable(format!("no session {id}")))?;
        self.refused = store::list_refused(&mut conn, id, REFUSED_MAX).await?.into_iter().collect();
        self.feed_position = session.feed_position;
        self.feed_has_more = true;
        // Nobody is connected when the numbers are loaded.
        self.absence.begin();
        let seq = |number: i64| u64::try_from(number).map(SeqNum).unwrap_or(SeqNum::FIRST);
        let numbers = (seq(session.next_in), seq(session.next_out));
        self.session = session;
        Ok(numbers)
    }

    async fn epoch(&mut self) -> Result<Option<Epoch>, Unavailable> {
        let mut conn = self.connection().await?;
        Ok(store::find_epoch(&mut conn, &self.session.session_id).await?.map(Epoch))
    }

    async fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), Unavailable> {
        let mut conn = self.connection().await?;
        Ok(store::update_epoch(&mut conn, &self.session.session_id, epoch.0).await?)
    }

    async fn persist(&mut self, numbers: Numbers) -> Result<Commit, Unavailable> {
        self.write(numbers, FixRows::default()).await
    }

    async fn deliver(&mut self, message: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        match message.msg_type() {
            // Never a reject of a reject.
            b"j" => self.write(turn.numbers(), FixRows::default()).await,
            _ if self.is_drop_copy => {
                let (slot, numbers) = Slot::take(turn);
                // FIX 4.2 has no reason for it.
                let reason = if self.version == Version::Fix42 { 0 } else { 6 };
                self.refuse_message(message, slot, numbers, reason, "not authorized: drop copy").await
            }
            b"D" => self.new_order(message, turn).await,
            b"F" => self.cancel(message, turn).await,
            b"H" => self.status(message, turn).await,
            b"AF" if self.version == Version::Fix44 => self.mass_status(message, turn).await,
            b"R" => self.quote_request(message, turn).await,
            _ => {
                let (slot, numbers) = Slot::take(turn);
                self.refuse_message(message, slot, numbers, 3, "Unsupported Message Type").await
            }
        }
    }

    async fn refuse(
        &mut self,
        message: MessageRef<'_>,
        text: &str,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        // FIX 5.0 SP2 knows a reason for this; before, it would be outside the peer's enumeration.
        let reason = if self.session.begin_string == "FIXT.1.1" { 8 } else { 0 };
        self.refuse_message(message, slot, numbers, reason, text).await
    }

    fn is_about_earlier(&self, message: MessageRef<'_>) -> bool {
        match message.msg_type() {
            b"F" | b"H" | b"AF" => true,
            _ => is_repetition(message),
        }
    }

    async fn stored(&mut self, from: SeqNum, to: SeqNum) -> Result<Vec<Stored>, Unavailable> {
        let mut conn = self.connection().await?;
        let messages = store::list_outbound(&mut conn, &self.session.session_id, from.0, to.0).await?;
        messages.into_iter().map(stored).collect()
    }

    async fn wait_for_reports(&mut self) {
        if self.feed_has_more {
            return;
        }
        tokio::select! {
            changed = self.feed.changed() => if changed.is_err() {
                // Nobody says any more that the feed grew: look from time to time.
                tokio::time::sleep(FEED_TICK).await;
            },
            () = sleep_until(self.absence.due()) => {}
            () = tokio::time::sleep(FEED_TICK) => {}
        }
    }

    async fn report(&mut self, turn: &mut Turn<'_>) -> Result<Option<Commit>, Unavailable> {
        self.cancel_for_absence().await?;
        let after = self.feed_position;
        let (outbound, position) =
            if self.is_drop_copy { self.copies(turn).await? } else { self.own_reports(turn).await? };
        self.feed_has_more = position > after;
        self.feed_position = position;
        if outbound.is_empty() {
            return Ok(None);
        }
        let rows = FixRows { outbound, orders: Vec::new() };
        let part = self.part(turn.numbers(), Arc::new(move |_| rows.clone()));
        self.queue(FixPart { feed_position: Some(position), ..part }).await.map(Some)
    }

    fn connected(&mut self, is_connected: bool) {
        if is_connected { self.absence.end() } else { self.absence.begin() }
    }
}

/// TransactTime(60) of what an event tells.
fn occurred_at(stored: &StoredEvent) -> UtcNanos {
    let millis = u64::try_from(stored.event.occurred_at.timestamp_millis()).unwrap_or(0);
    UtcNanos(millis.saturating_mul(1_000_000))
}

/// Waits for the commit, and renders once more what it stored.
fn acknowledged(pending: Pending, render: RenderFix) -> Commit {
    Commit::under_way(async move {
        let done = pending.await.map_err(|_| Unavailable("the writer has stopped".to_owned()))?;
        let done = done.map_err(|error| Unavailable(error.to_string()))?;
        transmissible(render(&done.outcome))
    })
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
