//! Orders of unknown wallets: parked, looked up, and decided in a turn of their own.
//!
//! The commit of the order's MsgSeqNum parks the order: it writes a row, and no outbound number. The report gets its
//! number when the order is decided, in the commit that deletes the row. The session continues meanwhile, a crash loses
//! nothing, and the next owner of the session looks the wallet up again. [`super::waiting`] decides the order of
//! decisions.
//!
//! Kept by `fix-gateway/tests/it/parked.rs::a_parked_order_is_decided_once_after_a_kill`.

use std::{sync::Arc, time::Instant};

use dvp_core::{
    chain::wallets::{AGE_MAX, LookedUp, Question},
    chain::{ChainUnavailable, WalletKey},
    context,
    engine::PermitCheck,
    trace,
};
use dvp_domain::time::Timestamp;
use dvp_domain::trace::TraceContext;
use dvp_fix::codec::{Message, MessageRef, MsgType};
use dvp_store::fix::{
    parked as fix_parked,
    rows::{ClOrdId, FixOrder, FixRows, ParkedOrder, Parking},
};
use metrics::gauge;
use tokio::task::JoinSet;
use tracing::field::Empty;
use tracing::{Instrument as _, error, info, info_span, warn};

use super::{
    OrderEntry,
    cancels::Named,
    figures::{self, Failure, Unanswered},
    refusal,
    rows::{Slot, cancel_order, to_json},
    unwritable::{self, Subject},
    waiting::{Arrival, Ticket, Waiter, Waiting},
};
use crate::{
    application::{Commit, Numbers, Turn, Unavailable},
    orders::{
        facts::{Details, OrderFacts, Rejection, intent_id},
        parse::{self, AtMarket, Order},
        report::{self, Ids, ReportContent},
    },
};

/// A parked order of a wallet with on-chain funds.
pub(super) struct Parked {
    message: Message,
    /// Of its ClOrdID.
    trading_day: i32,
    /// The parsed order as of its arrival.
    read: Result<Order, Rejection>,
    question: Question,
    facts: OrderFacts,
    /// The order's trace. An order that another owner of the session had parked begins a new one.
    trace: Option<TraceContext>,
    /// Since its arrival, or since the take-over by a later owner of the session.
    unanswered: Unanswered,
}

/// Of an order that needs no look-up.
const NO_WALLET: WalletKey = WalletKey { chain_id: 0, owner: String::new(), token: String::new() };

/// The result of a look-up, and its time.
pub(super) struct Answer {
    found: Result<LookedUp, ChainUnavailable>,
    at: Instant,
}

/// The orders of a session that wait, and their look-ups.
pub(super) struct ParkedOrders {
    waiting: Waiting<Parked, Answer>,
    look_ups: JoinSet<(Ticket, Result<LookedUp, ChainUnavailable>)>,
}

impl ParkedOrders {
    pub(super) fn new(max: usize) -> Self {
        Self { waiting: Waiting::new(max), look_ups: JoinSet::new() }
    }

    /// Forgets all of them, and ends their look-ups.
    fn clear(&mut self) {
        self.waiting.clear();
        self.look_ups = JoinSet::new();
    }

    pub(super) fn has(&self, cl_ord_id: &str) -> bool {
        self.waiting.find(cl_ord_id).is_some()
    }

    /// Waits until an order can be decided. May be dropped at any time.
    pub(super) async fn wait(&mut self) {
        while !self.waiting.has_decidable() {
            match self.look_ups.join_next().await {
                Some(Ok((ticket, found))) => {
                    self.waiting.answered(ticket, Answer { found, at: Instant::now() })
                }
                Some(Err(failed)) => {
                    error!(%failed, "wallet look-up task ended; its order stays parked for the next owner")
                }
                None => std::future::pending().await,
            }
        }
    }

    pub(super) fn has_decidable(&self) -> bool {
        self.waiting.has_decidable()
    }
}

impl OrderEntry {
    /// Submits an order, or parks it.
    pub(super) async fn place(
        &mut self,
        message: MessageRef<'_>,
        order: Order,
        facts: OrderFacts,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let check = self.engine.check_permit(&self.tenant, &order.request, order.signer.as_ref());
        let (question, is_known) = match &check {
            PermitCheck::Judged(permit) => (permit.wallet().map(Question::from), true),
            PermitCheck::Unknown(unknown) => (Some(unknown.question.clone()), false),
        };
        let wallet = question.as_ref().map(|question| &question.wallet);
        let arrival = self.parked.waiting.arrival(&order.cl_ord_id.id, wallet, is_known);
        match (arrival, check, question) {
            (Arrival::Proceeds, PermitCheck::Judged(permit), _) => {
                let at = Slot::take(turn);
                self.submit((order, facts), permit, at, false).await
            }
            (Arrival::Waits | Arrival::Proceeds, _, Some(question)) => {
                let now = turn.sending_time().time;
                if self.used(&order.cl_ord_id.id, message, now).await?.is_some() {
                    let duplicate = ReportContent::duplicate();
                    return self.refuse_order(&order.cl_ord_id.id, &facts, &duplicate, turn).await;
                }
                self.park(message, order, facts, question, turn).await
            }
            (Arrival::IsDuplicate, _, _) => {
                self.refuse_order(&order.cl_ord_id.id, &facts, &ReportContent::duplicate(), turn).await
            }
            (Arrival::IsTooMany | Arrival::Waits | Arrival::Proceeds, _, _) => {
                self.fails(Failure::Unavailable);
                let text = "too many orders wait for their wallets, try again";
                self.refuse_message(message, Slot::take(turn), 4, text).await
            }
        }
    }

    /// Rejects an order whose ClOrdID belongs to another order, or may: it is not used by this one.
    pub(super) async fn refuse_order(
        &self,
        cl_ord_id: &str,
        facts: &OrderFacts,
        content: &ReportContent,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let (slot, numbers) = Slot::take(turn);
        let ids = Ids {
            cl_ord_id,
            orig_cl_ord_id: None,
            order_id: "NONE",
            exec_id: self.exec_id_of_none(cl_ord_id, slot),
            at: slot.at,
            is_status: false,
        };
        let body = report::execution_report(self.version, facts, content, &ids);
        let outbound = vec![slot.holds(MsgType::EXECUTION_REPORT, body)];
        self.write(numbers, FixRows { outbound, ..FixRows::default() }).await
    }

    async fn park(
        &mut self,
        message: MessageRef<'_>,
        order: Order,
        facts: OrderFacts,
        question: Question,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        let parked = ParkedOrder {
            cl_ord_id: order.cl_ord_id.id.clone(),
            trading_day: order.cl_ord_id.trading_day,
            message: message.bytes().to_vec(),
            received_at: order.received_at.to_utc(),
            bounds: order.request.bounds,
        };
        let rows = FixRows { parking: vec![Parking::Park(parked)], ..FixRows::default() };
        let commit = figures::parking(self.write(turn.numbers(), rows).await?);
        info!(
            session = self.session.session_id,
            cl_ord_id = order.cl_ord_id.id,
            wallet = question.wallet.owner,
            "order parked for a wallet look-up"
        );
        let ClOrdId { id: cl_ord_id, trading_day } = order.cl_ord_id.clone();
        let unanswered = self.unanswered.take().unwrap_or_else(Unanswered::begin);
        let (message, trace) = (message.to_owned(), trace::current());
        let parked = Parked { message, trading_day, read: Ok(order), question, facts, trace, unanswered };
        self.wait_for(cl_ord_id, parked);
        Ok(commit)
    }

    fn wait_for(&mut self, cl_ord_id: String, parked: Parked) {
        let question = parked.question.clone();
        let ticket = self.parked.waiting.push(cl_ord_id, question.wallet.clone(), parked);
        self.look_up(ticket, &question);
        self.show_parked();
    }

    fn look_up(&mut self, ticket: Ticket, question: &Question) {
        let wallets = self.engine.wallets();
        let partner_id = &self.tenant.partner_id;
        let known = if question.signed.is_none() { wallets.find(partner_id, &question.wallet) } else { None };
        if let Some(facts) = known {
            let found = Ok(LookedUp::Facts(facts));
            return self.parked.waiting.answered(ticket, Answer { found, at: Instant::now() });
        }
        let look_up = wallets.look_up(partner_id, question);
        self.parked.look_ups.spawn(async move { (ticket, look_up.await) });
    }

    fn show_parked(&self) {
        let waiting = u32::try_from(self.parked.waiting.len()).unwrap_or(u32::MAX);
        gauge!("dvp_fix_parked_orders", "session" => self.session.session_id.clone()).set(waiting);
    }

    /// Resumes the orders that this session, under any owner, has parked and not decided.
    pub(super) async fn restore_parked(&mut self) -> Result<(), Unavailable> {
        let mut conn = self.connection().await?;
        let rows = fix_parked::list(&mut conn, &self.session.session_id).await?;
        drop(conn);
        self.parked.clear();
        for ParkedOrder { cl_ord_id, trading_day, message, received_at, bounds } in rows {
            let Ok(message) = Message::parse(&message) else {
                error!(
                    session = self.session.session_id,
                    cl_ord_id, "parked order is unreadable; its row is kept"
                );
                continue;
            };
            info!(session = self.session.session_id, cl_ord_id, "parked order resumed");
            let facts = OrderFacts::of(message.view());
            let received_at = Timestamp::from(received_at);
            let quoted = self.quoted(message.view()).await?;
            // By the prices of its arrival: present ones may be worse for it.
            let at_market = AtMarket::Arrived(bounds);
            let read = self.read_order(message.view(), quoted.as_ref(), received_at, at_market, trading_day);
            let check = read
                .as_ref()
                .ok()
                .map(|order| self.engine.check_permit(&self.tenant, &order.request, order.signer.as_ref()));
            let question = match check {
                Some(PermitCheck::Unknown(unknown)) => Some(unknown.question),
                Some(PermitCheck::Judged(permit)) => permit.wallet().map(Question::from),
                None => None,
            };
            let is_known = question.is_none();
            let question = question.unwrap_or_else(|| Question::from(&NO_WALLET));
            let unanswered = Unanswered::begin();
            let parked = Parked { message, trading_day, read, question, facts, trace: None, unanswered };
            match is_known {
                false => self.wait_for(cl_ord_id, parked),
                true => self.decide_next(cl_ord_id, parked),
            }
        }
        self.show_parked();
        Ok(())
    }

    /// Marks an order as ready that needs no look-up any more, for example because its permit has expired.
    fn decide_next(&mut self, cl_ord_id: String, parked: Parked) {
        let ticket = self.parked.waiting.push(cl_ord_id, NO_WALLET, parked);
        let found = Err(ChainUnavailable("not queried".to_owned()));
        self.parked.waiting.answered(ticket, Answer { found, at: Instant::now() });
    }

    /// Decides the next order whose look-up has ended. `None`: there is none.
    pub(super) async fn decide_parked(&mut self, turn: &mut Turn<'_>) -> Result<Option<Commit>, Unavailable> {
        let Some((waiter, answer)) = self.parked.waiting.take_decidable() else { return Ok(None) };
        self.show_parked();
        let check = waiter
            .order
            .read
            .as_ref()
            .ok()
            .map(|order| self.engine.check_permit(&self.tenant, &order.request, order.signer.as_ref()));
        let is_unknown = matches!(check, Some(PermitCheck::Unknown(_)));
        if is_unknown && answer.found.is_ok() && answer.at.elapsed() > AGE_MAX {
            // For example, the session's schedule window has ended.
            let question = waiter.order.question.clone();
            let ticket = self.parked.waiting.put_back(waiter);
            self.look_up(ticket, &question);
            return Ok(None);
        }
        let Waiter { cl_ord_id, order, .. } = waiter;
        let Parked { message, trading_day, read, facts, trace: placed, mut unanswered, .. } = order;
        let span = info_span!(
            "fix_parked_order",
            session = self.session.session_id,
            cl_ord_id,
            trace_id = Empty,
            span_id = Empty,
            parent_span_id = Empty,
        );
        let context = trace::of_request(placed);
        trace::mark(&span, context, placed);
        let (slot, numbers) = Slot::take(turn);
        let judged = match check {
            Some(PermitCheck::Judged(permit)) => Ok(permit),
            Some(PermitCheck::Unknown(unknown)) => answer.found.map(|found| unknown.judged(found)),
            None => Err(ChainUnavailable("not queried".to_owned())),
        };
        let subject = Subject::Parked(cl_ord_id.clone());
        let deciding = async {
            if self.unwritable.take(&subject) {
                unanswered.fails(Failure::Data);
                let refused = refusal(message.view(), slot, 0, unwritable::TEXT);
                let parking = vec![Parking::Decide { cl_ord_id }];
                return self.write(numbers, FixRows { parking, ..refused }).await;
            }
            let order = match read.and_then(|order| self.still_in_time(order)) {
                Ok(order) => order,
                Err(rejection) => {
                    info!(reason = rejection.text, "order refused");
                    let cl_ord_id = ClOrdId { id: cl_ord_id, trading_day };
                    let render = self.outcome_renderer(slot, cl_ord_id.clone(), facts, Some(rejection), true);
                    return self.queue(self.part(numbers, render).using(&cl_ord_id)).await;
                }
            };
            match judged {
                Ok(permit) => self.submit((order, facts), permit, (slot, numbers), true).await,
                Err(error) => {
                    warn!(%error, "order could not be queued");
                    unanswered.fails(Failure::Unavailable);
                    let refused = refusal(message.view(), slot, 4, "not available, try again");
                    let parking = vec![Parking::Decide { cl_ord_id }];
                    self.write(numbers, FixRows { parking, ..refused }).await
                }
            }
        };
        let commit = trace::within(context, deciding).instrument(span).await;
        let commit = unanswered.answer(commit)?;
        Ok(Some(self.unwritable.watch(subject, commit)))
    }

    /// An order that expired while it was parked is rejected.
    fn still_in_time(&self, order: Order) -> Result<Order, Rejection> {
        if order.request.deadline > context::now() {
            return Ok(order);
        }
        let ord_rej_reason = parse::other_reason(self.version);
        Err(Rejection { ord_rej_reason, text: "expired before its wallet could be looked up".to_owned() })
    }

    /// The parked order with a ClOrdID, as it would be stored.
    pub(super) fn parked_order(&self, cl_ord_id: &str) -> Option<FixOrder> {
        self.parked.waiting.find(cl_ord_id).map(|waiter| self.parked_as_order(waiter))
    }

    /// All parked orders, or those of a symbol.
    pub(super) fn parked_orders(&self, symbol: Option<&str>) -> Vec<FixOrder> {
        let waiters = self.parked.waiting.iter();
        let of_symbol =
            waiters.filter(|waiter| symbol.is_none_or(|symbol| symbol == waiter.order.facts.symbol));
        of_symbol.map(|waiter| self.parked_as_order(waiter)).collect()
    }

    fn parked_as_order(&self, waiter: &Waiter<Parked, Answer>) -> FixOrder {
        let cl_ord_id = ClOrdId { id: waiter.cl_ord_id.clone(), trading_day: waiter.order.trading_day };
        FixOrder {
            reference: None,
            intent_id: intent_id(&self.session.session_id, &cl_ord_id),
            cl_ord_id: cl_ord_id.id,
            trading_day: cl_ord_id.trading_day,
            details: to_json(&Details::Order(Box::new(waiter.order.facts.clone()))),
        }
    }

    /// A parked order is cancelled, and decided no more.
    pub(super) fn forget_parked(&mut self, cl_ord_id: &str) {
        self.parked.waiting.take(cl_ord_id);
        self.show_parked();
        info!(session = self.session.session_id, cl_ord_id, "parked order cancelled");
    }

    /// Cancels a parked order before it is submitted.
    pub(super) async fn cancel_parked(
        &mut self,
        named: Named<'_>,
        order: &FixOrder,
        facts: OrderFacts,
        slot: Slot,
        numbers: Numbers,
    ) -> Result<Commit, Unavailable> {
        self.forget_parked(&order.cl_ord_id);
        let facts = OrderFacts { cancelled_by: Some(named.cl_ord_id.to_owned()), ..facts };
        let ids = Ids {
            cl_ord_id: named.cl_ord_id,
            orig_cl_ord_id: Some(&order.cl_ord_id),
            order_id: "NONE",
            exec_id: format!("{}.c.{}", order.intent_id, named.cl_ord_id),
            at: slot.at,
            is_status: false,
        };
        let body = report::execution_report(self.version, &facts, &ReportContent::Canceled(None), &ids);
        let ended = FixOrder { details: to_json(&Details::Order(Box::new(facts))), ..order.clone() };
        let rows = FixRows {
            outbound: vec![slot.holds(MsgType::EXECUTION_REPORT, body)],
            orders: vec![ended, cancel_order(&named.used(), named.orig_cl_ord_id, None)],
            parking: vec![Parking::Decide { cl_ord_id: order.cl_ord_id.clone() }],
            ..FixRows::default()
        };
        let part = self.part(numbers, Arc::new(move |_| rows.clone()));
        self.queue(part.using(&named.used())).await
    }
}
