//! The application of one session: submits orders to the engine, and turns outcomes and events into reports, all in
//! commits of the engine's writer.

mod cancel_on_disconnect;
mod cancels;
mod drop_copy;
mod events;
mod figures;
mod market_data;
mod mass_cancel;
mod new_order;
mod parking;
mod quotes;
mod rows;
mod securities;
mod status;
mod submit;
mod trading_day;
mod unwritable;
mod waiting;

use std::{sync::Arc, time::Instant};

use dvp_core::{
    engine::{Engine, EngineError, Pending},
    writer::{FixChain, FixPart, RenderFix},
};
use dvp_fix::{
    SeqNum,
    codec::{MessageRef, MsgType},
    schedule::Epoch,
    session::{ResendSlice, Stored, business_reject},
};
use dvp_store::{
    Fault, StoreError,
    fix::{
        self as store, FixSessionRow, reports as fix_reports,
        rows::{FixNumbers, FixOrder, FixOutbound, FixReset, FixRows, Renumber},
        settings::FixSessionSettings,
    },
    orders::intents::Tenant,
};
use uuid::Uuid;

use self::cancel_on_disconnect::CancelOnDisconnect;
use self::figures::{Failure, Unanswered};
use self::market_data::MarketData;
use self::parking::ParkedOrders;
use self::rows::{Slot, is_repetition, stored, transmissible};
use self::trading_day::TradingDays;
use self::unwritable::{Subject, Unwritable};
use crate::{
    application::{Application, Commit, Numbers, Reach, Renumbering, Turn, Unavailable},
    feed::{self, Subscription},
    limits::Bucket,
    orders::{
        Version,
        age::AgeLimits,
        facts::OrderFacts,
        fields::{self, FieldFault, IgnoreList},
        report::{self, Ids, ReportContent},
        tags,
    },
    session_config::stale_types,
};

/// The page size of feed reads.
const PAGE: i64 = 200;
/// As many of the events that were handed over are reported in one commit.
const REPORTED_AT_ONCE: usize = 200;
/// The session's cursor becomes durable with its commits, and with one of its own when it is ahead by this much.
const POSITIONS_BEHIND_MAX: i64 = feed::NOTIFY_ALL_EVERY;

struct PageReports {
    outbound: Vec<FixOutbound>,
    /// The position read up to.
    position: i64,
    /// More events may follow.
    has_more: bool,
}

pub(crate) struct OrderEntry {
    engine: Engine,
    /// This process, which has the session's lease.
    owner: Uuid,
    session: FixSessionRow,
    version: Version,
    tenant: Tenant,
    /// New events of the session's orders; for a drop copy, notifications of new events of the partner.
    feed: Subscription,
    feed_position: i64,
    /// `feed_position` as of the latest queued commit.
    queued_position: i64,
    feed_has_more: bool,
    /// The session gets copies of all the partner's reports, and sends no orders.
    is_drop_copy: bool,
    cancel_on_disconnect: CancelOnDisconnect,
    ages: AgeLimits,
    ignored: IgnoreList,
    days: TradingDays,
    parked: ParkedOrders,
    /// The NewOrderSingle(D) that is being processed, unless it was parked.
    unanswered: Option<Unanswered>,
    unwritable: Unwritable,
    /// The reports that answered OrderMassStatusRequests.
    mass_reports: Bucket,
    market_data: MarketData,
    /// The commits since the numbers were loaded.
    chain: FixChain,
}

impl From<StoreError> for Unavailable {
    fn from(error: StoreError) -> Self {
        match error.fault() {
            Fault::Data => Self::data(error.to_string()),
            Fault::Conflict | Fault::Slow | Fault::Unavailable => Self::new(error.to_string()),
        }
    }
}

impl From<EngineError> for Unavailable {
    fn from(error: EngineError) -> Self {
        match &error {
            EngineError::Corrupt(_) => Self::data(error.to_string()),
            EngineError::Busy | EngineError::Unavailable(_) => Self::new(error.to_string()),
        }
    }
}

impl OrderEntry {
    pub(crate) fn new(
        engine: Engine,
        owner: Uuid,
        session: FixSessionRow,
        settings: &FixSessionSettings,
        feed: Subscription,
        parked_orders_max: usize,
    ) -> Self {
        let tenant = Tenant { partner_id: session.partner_id.clone(), livemode: session.livemode };
        let (version, feed_position) = (Version::of(&session.begin_string), session.feed_position);
        Self {
            engine,
            owner,
            session,
            version,
            tenant,
            feed,
            feed_position,
            queued_position: feed_position,
            feed_has_more: true,
            is_drop_copy: settings.drop_copy,
            cancel_on_disconnect: CancelOnDisconnect::agreed(settings),
            ages: AgeLimits::agreed(settings),
            ignored: IgnoreList::agreed(settings.ignored_fields.as_deref()),
            days: TradingDays::agreed(settings),
            parked: ParkedOrders::new(parked_orders_max),
            unanswered: None,
            unwritable: Unwritable::default(),
            mass_reports: Bucket::new(Instant::now()),
            market_data: MarketData::default(),
            chain: FixChain::default(),
        }
    }

    async fn connection(&self) -> Result<sqlx::pool::PoolConnection<sqlx::Postgres>, Unavailable> {
        self.engine.pool().acquire().await.map_err(|error| Unavailable::new(error.to_string()))
    }

    fn part(&self, numbers: Numbers, render: RenderFix) -> FixPart {
        FixPart {
            numbers: FixNumbers {
                session_id: self.session.session_id.clone(),
                owner: Some(self.owner),
                next_in: numbers.next_in.0,
                next_out_before: numbers.next_out_before.0,
                next_out: numbers.next_out.0,
                seen_out: numbers.reach.seen.0,
                written_out: numbers.reach.written.0,
                // Reports of everything up to this position were queued before this part.
                feed_position: Some(self.feed_position),
                renumber: None,
            },
            cl_ord_id: None,
            render,
            chain: self.chain.clone(),
        }
    }

    /// Queues rows that do not depend on an outcome.
    async fn write(&self, numbers: Numbers, rows: FixRows) -> Result<Commit, Unavailable> {
        self.queue(self.part(numbers, Arc::new(move |_| rows.clone()))).await
    }

    async fn queue(&self, part: FixPart) -> Result<Commit, Unavailable> {
        Ok(acknowledged(self.engine.begin_commit_fix(&self.tenant, part).await?))
    }

    /// The content of an order's last report, and the number of its event.
    async fn latest(
        &self,
        order: &FixOrder,
        facts: &OrderFacts,
    ) -> Result<(ReportContent, i64), Unavailable> {
        let Some(reference) = &order.reference else {
            if self.parked.has(&order.cl_ord_id) {
                return Ok((ReportContent::Pending, 0));
            }
            if facts.cancelled_by.is_some() {
                // While the order was parked.
                return Ok((ReportContent::Canceled(None), 0));
            }
            let rejected =
                facts.rejection.clone().map_or_else(ReportContent::duplicate, ReportContent::Rejected);
            return Ok((rejected, 0));
        };
        let mut conn = self.connection().await?;
        let latest = fix_reports::find_latest(&mut conn, reference).await?;
        Ok(latest.map_or((ReportContent::New, 1), |latest| {
            let at = (reference.as_str(), latest.sequence);
            let content = ReportContent::of_event(latest.kind, &latest.object, facts, at);
            (content.rest(facts).unwrap_or(content), latest.sequence)
        }))
    }

    /// The current report again, with its ExecID(17), under a new number.
    async fn report_again(
        &self,
        order: &FixOrder,
        facts: &OrderFacts,
        slot: Slot,
        numbers: Numbers,
    ) -> Result<Commit, Unavailable> {
        let (content, sequence) = self.latest(order, facts).await?;
        let about = order.reference.as_deref().unwrap_or(&order.intent_id);
        // A requested cancellation was reported as the answer to its request.
        let request = facts.cancelled_by.as_deref().filter(|_| content == ReportContent::Canceled(None));
        let ids = Ids {
            cl_ord_id: request.unwrap_or(&order.cl_ord_id),
            orig_cl_ord_id: request.map(|_| order.cl_ord_id.as_str()),
            order_id: order.reference.as_deref().unwrap_or("NONE"),
            exec_id: match request {
                Some(request) => format!("{about}.c.{request}"),
                // Another report follows when the order is decided.
                None if content == ReportContent::Pending => format!("{about}.p"),
                None if matches!(content, ReportContent::RestCanceled(_)) => format!("{about}.{sequence}.r"),
                None => format!("{about}.{sequence}"),
            },
            at: slot.at,
            is_status: false,
        };
        let body = report::execution_report(self.version, facts, &content, &ids);
        let outbound = vec![slot.holds(MsgType::EXECUTION_REPORT, body)];
        self.write(numbers, FixRows { outbound, ..FixRows::default() }).await
    }

    /// The order that is being processed is refused for this reason.
    fn fails(&mut self, failure: Failure) {
        if let Some(order) = &mut self.unanswered {
            order.fails(failure);
        }
    }

    /// Acts on a message.
    async fn process(&mut self, message: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        match message.msg_type() {
            b"j" => self.write(turn.numbers(), FixRows::default()).await,
            _ if self.is_drop_copy => {
                // FIX 4.2 has no value for this reason.
                let reason = if self.version == Version::Fix42 { 0 } else { 6 };
                self.refuse_message(message, Slot::take(turn), reason, "not authorized: drop copy").await
            }
            b"D" => self.new_order(message, turn).await,
            b"F" => self.cancel(message, turn).await,
            b"G" => self.replace(message, turn).await,
            b"H" => self.status(message, turn).await,
            b"AF" if self.version == Version::Fix44 => self.mass_status(message, turn).await,
            b"q" if self.version == Version::Fix44 => self.mass_cancel(message, turn).await,
            b"x" if self.version == Version::Fix44 => self.security_list(message, turn).await,
            b"R" => self.quote_request(message, turn).await,
            b"V" => self.market_data(message, turn).await,
            _ => self.refuse_message(message, Slot::take(turn), 3, "Unsupported Message Type").await,
        }
    }

    /// A BusinessMessageReject(j).
    async fn refuse_message(
        &self,
        message: MessageRef<'_>,
        (slot, numbers): (Slot, Numbers),
        reason: u8,
        text: &str,
    ) -> Result<Commit, Unavailable> {
        self.write(numbers, refusal(message, slot, reason, text)).await
    }

    /// The same, for a message whose fields do not allow the usual answer.
    async fn refuse_fields(
        &self,
        message: MessageRef<'_>,
        at: (Slot, Numbers),
        fault: &FieldFault,
    ) -> Result<Commit, Unavailable> {
        // Conditionally required field missing, or other.
        let reason = if matches!(fault, FieldFault::Missing { .. }) { 5 } else { 0 };
        self.refuse_message(message, at, reason, &fault.to_string()).await
    }
}

impl Application for OrderEntry {
    async fn load(&mut self) -> Result<(SeqNum, SeqNum), Unavailable> {
        let mut conn = self.connection().await?;
        let id = &self.session.session_id;
        let session = store::find_session(&mut conn, id).await?;
        let session = session.ok_or_else(|| Unavailable::new(format!("no session {id}")))?;
        self.feed_position = session.feed_position;
        self.queued_position = session.feed_position;
        self.feed_has_more = true;
        self.feed.lose();
        // No peer is connected when the numbers are loaded, and none could be before.
        self.cancel_on_disconnect.end();
        self.cancel_on_disconnect.begin();
        self.market_data.end();
        let seq = |number: i64| u64::try_from(number).map(SeqNum).unwrap_or(SeqNum::FIRST);
        let numbers = (seq(session.next_in), seq(session.next_out));
        self.session = session;
        drop(conn);
        self.restore_parked().await?;
        self.chain = FixChain::from_loaded(numbers.1.0);
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

    async fn renumber(&mut self, to: Renumbering) -> Result<(Commit, u64), Unavailable> {
        self.unwritable.forget_messages();
        let stale_types = stale_types();
        let Reach { seen, written, stored } = to.reach;
        let mut kept = 0;
        if stored > seen {
            let mut conn = self.connection().await?;
            let id = &self.session.session_id;
            kept = store::count_kept(&mut conn, id, seen.0, &stale_types).await?;
        }
        let reset = FixReset {
            seen_out: seen.0,
            written_out: written.0,
            first_kept: to.first_kept.0,
            kept,
            stale_types,
        };
        let mut part = self.part(to.numbers(kept), Arc::new(|_| FixRows::default()));
        part.numbers.renumber = Some(Renumber::Reset(reset));
        let commit = self.queue(part).await?;
        Ok((commit, kept))
    }

    async fn set_numbers(&mut self, numbers: Numbers) -> Result<Commit, Unavailable> {
        let mut part = self.part(numbers, Arc::new(|_| FixRows::default()));
        self.unwritable.forget_messages();
        part.numbers.renumber = Some(Renumber::Inbound);
        self.queue(part).await
    }

    async fn reach(&mut self) -> Result<Reach, Unavailable> {
        let mut conn = self.connection().await?;
        let id = &self.session.session_id;
        let reach = store::find_reach(&mut conn, id).await?;
        let reach = reach.ok_or_else(|| Unavailable::new(format!("no session {id}")))?;
        let seq = |number: i64| SeqNum(u64::try_from(number).unwrap_or(0));
        Ok(Reach {
            seen: seq(reach.seen_out),
            written: seq(reach.written_out),
            stored: seq(reach.stored_out),
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.cancel_on_disconnect.due().map(tokio::time::Instant::into_std)
    }

    async fn handle_timeout(&mut self, turn: &mut Turn<'_>) -> Result<Option<Commit>, Unavailable> {
        self.cancel_resting_orders(turn).await
    }

    async fn deliver(&mut self, message: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        let is_order = message.msg_type() == b"D" && !self.is_drop_copy;
        self.unanswered = is_order.then(Unanswered::begin);
        // A reject is never answered with a reject.
        let seq = message.seq().filter(|_| message.msg_type() != b"j");
        let subject = seq.map(Subject::Message);
        let commit = if subject.as_ref().is_some_and(|subject| self.unwritable.take(subject)) {
            self.fails(Failure::Data);
            self.refuse_message(message, Slot::take(turn), 0, unwritable::TEXT).await
        } else {
            self.process(message, turn).await
        };
        let commit = match self.unanswered.take() {
            Some(order) => order.answer(commit)?,
            None => commit?,
        };
        Ok(match subject {
            Some(subject) => self.unwritable.watch(subject, commit),
            None => commit,
        })
    }

    async fn refuse(
        &mut self,
        message: MessageRef<'_>,
        text: &str,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        // FIX 5.0 SP2 has a value for this reason; earlier versions do not.
        let reason = if self.session.begin_string == "FIXT.1.1" { 8 } else { 0 };
        self.refuse_message(message, Slot::take(turn), reason, text).await
    }

    fn is_about_earlier(&self, message: MessageRef<'_>) -> bool {
        match message.msg_type() {
            b"F" | b"G" | b"H" | b"AF" | b"q" => true,
            _ => is_repetition(message) || self.is_of_earlier_day(message),
        }
    }

    async fn stored(&mut self, slice: ResendSlice) -> Result<Vec<Stored>, Unavailable> {
        let mut conn = self.connection().await?;
        let limit = i64::try_from(slice.limit).unwrap_or(i64::MAX);
        let seqs = slice.from.0..=slice.to.0;
        let messages = store::list_outbound(&mut conn, &self.session.session_id, seqs, limit).await?;
        messages.into_iter().map(stored).collect()
    }

    async fn wait_for_reports(&mut self) {
        if self.feed_has_more || self.parked.has_decidable() {
            return;
        }
        tokio::select! {
            () = self.feed.grown() => self.feed_has_more = true,
            () = self.parked.wait() => {}
            () = self.market_data.wait() => {}
        }
    }

    async fn report(&mut self, turn: &mut Turn<'_>) -> Result<Option<Commit>, Unavailable> {
        if let Some(commit) = self.decide_parked(turn).await? {
            return Ok(Some(commit));
        }
        // Events up to here are handed over, or visible to the read below.
        let routed = self.feed.routed();
        let PageReports { mut outbound, position, has_more } =
            if self.is_drop_copy { self.copied_reports(turn).await? } else { self.own_reports(turn).await? };
        self.feed_has_more = has_more;
        // Where the partner has no more events, all events up to the routed position belong to others.
        self.feed_position = if self.feed_has_more { position } else { position.max(routed) };
        if !has_more && self.market_data.is_due() {
            outbound.extend(self.changed_market_data(turn).await);
        }
        let is_behind = self.feed_position - self.queued_position >= POSITIONS_BEHIND_MAX;
        if outbound.is_empty() && !is_behind {
            return Ok(None);
        }
        self.queued_position = self.feed_position;
        self.write(turn.numbers(), FixRows { outbound, ..FixRows::default() }).await.map(Some)
    }

    fn connected(&mut self, is_connected: bool) {
        if is_connected {
            self.cancel_on_disconnect.end();
            self.market_data.renew();
        } else {
            self.cancel_on_disconnect.begin();
            self.market_data.end();
        }
    }
}

/// The rows of a BusinessMessageReject(j).
fn refusal(message: MessageRef<'_>, slot: Slot, reason: u8, text: &str) -> FixRows {
    let body = business_reject(message, business_id(message), reason, text);
    let outbound = vec![slot.holds(MsgType::BUSINESS_MESSAGE_REJECT, body)];
    FixRows { outbound, ..FixRows::default() }
}

/// BusinessRejectRefID(379): the identifier that the message's sender gave it.
fn business_id(message: MessageRef<'_>) -> Option<&str> {
    let tag = match message.msg_type() {
        b"AF" => tags::MASS_STATUS_REQ_ID,
        b"R" => tags::QUOTE_REQ_ID,
        b"x" => tags::SECURITY_REQ_ID,
        b"V" => tags::MD_REQ_ID,
        _ => tags::CL_ORD_ID,
    };
    fields::repeatable(message, tag).filter(|id| !id.is_empty())
}

/// Waits for the commit, and renders its stored outcome again.
fn acknowledged(pending: Pending) -> Commit {
    Box::pin(async move {
        let done = pending.await.map_err(|_| Unavailable::new("the writer has stopped".to_owned()))?;
        let done = done.map_err(EngineError::from)?;
        transmissible(done.outbound)
    })
}
