//! How long a ClOrdID(11) stands for one order or request: for ever, or for a trading day.
//!
//! Each message has a day: the trading day of the earliest of its SendingTime(52), TransactTime(60) and
//! OrigSendingTime(122), today at the latest. Its ClOrdID is used when an order or a request came with it on that day or
//! later. So an order of yesterday that comes today meets the order of yesterday, whichever of its times is old.
//!
//! A message that may have been sent before (PossDupFlag, PossResend) is never taken for one of today while it may be one
//! of an earlier day, [`OrderEntry::known_as`]:
//!
//! | under its ClOrdID | its day | |
//! |---|---|---|
//! | an order with its content, of its day or later | any | that order's report again |
//! | another order of its day or later | any | duplicate ClOrdID |
//! | nothing of its day or later | an earlier one | too late: it does not begin now |
//! | an order with its content, of an earlier day | today | duplicate ClOrdID: its times may be those of the repetition |
//! | nothing of these | today | a new order |
//!
//! Likewise a cancel request that may have been sent before, [`OrderEntry::may_be_earlier`].
//!
//! Kept by `fix-gateway/tests/it/trading_days.rs`.

use dvp_core::context;
use dvp_fix::{UtcNanos, codec::MessageRef, schedule::Schedule, tag};
use dvp_store::fix::{
    self as store, KnownOrder,
    rows::{ClOrdId, FixOrder},
    settings::FixSessionSettings,
};

use super::{
    OrderEntry,
    rows::{is_repetition, order_facts},
};
use crate::{
    application::Unavailable,
    orders::{facts::OrderFacts, report::ReportContent, tags},
};

/// The trading days of a session's schedule; `None`: a ClOrdID is used for ever.
pub(super) struct TradingDays(Option<Schedule>);

impl TradingDays {
    pub(super) fn agreed(settings: &FixSessionSettings) -> Self {
        let schedule = settings.schedule.as_deref().and_then(|schedule| schedule.parse().ok());
        Self(settings.cl_ord_id_per_day.then(|| schedule.unwrap_or(Schedule::CONTINUOUS)))
    }

    /// The day of what is used now; 0: for ever.
    pub(super) fn day(&self, at: UtcNanos) -> i32 {
        self.0.as_ref().map_or(0, |schedule| i32::try_from(schedule.trading_day(at)).unwrap_or(i32::MAX))
    }

    /// A ClOrdID that is used now.
    pub(super) fn used_at(&self, cl_ord_id: &str, now: UtcNanos) -> ClOrdId {
        ClOrdId { id: cl_ord_id.to_owned(), trading_day: self.day(now) }
    }

    /// The day of a message.
    fn of(&self, message: MessageRef<'_>, now: UtcNanos) -> i32 {
        let times = [tag::SENDING_TIME, tags::TRANSACT_TIME, tag::ORIG_SENDING_TIME];
        let times = times.into_iter().filter_map(|tag| message.get(tag).and_then(UtcNanos::parse));
        self.day(times.fold(now, UtcNanos::min))
    }

    /// The day on which an order came, also while its ClOrdID was used for ever.
    fn of_order(&self, known: &KnownOrder) -> i32 {
        let came = u64::try_from(known.created_at.timestamp_micros()).unwrap_or(0).saturating_mul(1000);
        if known.order.trading_day == 0 { self.day(UtcNanos(came)) } else { known.order.trading_day }
    }

    /// Is the message of an earlier day?
    pub(super) fn is_of_earlier(&self, message: MessageRef<'_>, now: UtcNanos) -> bool {
        self.0.is_some() && self.of(message, now) < self.day(now)
    }
}

/// What an order that arrives is known as.
pub(super) enum Known {
    /// It came before: its report is due again.
    Order(Box<(FixOrder, OrderFacts)>),
    /// It is refused, and its ClOrdID stays as it is.
    Refused(ReportContent),
    /// It is decided in its commit, which finds a ClOrdID that is used.
    Nothing,
}

impl OrderEntry {
    pub(super) async fn known_as(
        &self,
        cl_ord_id: &str,
        message: MessageRef<'_>,
        now: UtcNanos,
    ) -> Result<Known, Unavailable> {
        let repeated = |order: FixOrder| {
            let facts = order_facts(&order).filter(|facts| facts.is_repeated_by(message))?;
            Some(Known::Order(Box::new((order, facts))))
        };
        let is_repetition = is_repetition(message);
        if self.days.0.is_none() {
            let order = if is_repetition { self.find_order(cl_ord_id).await? } else { None };
            return Ok(order.and_then(repeated).unwrap_or(Known::Nothing));
        }
        let day = self.days.of(message, now);
        let mut has_same = false;
        if is_repetition {
            if let Some(known) = self.parked_order(cl_ord_id).and_then(repeated) {
                return Ok(known);
            }
            let mut conn = self.connection().await?;
            let id = &self.session.session_id;
            let fingerprint = OrderFacts::of(message).fingerprint;
            let same = store::find_same_order(&mut conn, id, cl_ord_id, &fingerprint).await?;
            has_same = same.is_some();
            let of_its_day = same.filter(|same| self.days.of_order(same) >= day);
            if let Some(known) = of_its_day.and_then(|same| repeated(same.order)) {
                return Ok(known);
            }
        }
        Ok(if self.used(cl_ord_id, message, now).await?.is_some() {
            Known::Refused(ReportContent::duplicate())
        } else if is_repetition && day < self.days.day(now) {
            Known::Refused(ReportContent::rejected(4, "first sent on an earlier trading day"))
        } else if has_same {
            let text = "duplicate ClOrdID: an earlier trading day has an order with this content";
            Known::Refused(ReportContent::rejected(6, text))
        } else {
            Known::Nothing
        })
    }

    /// What has used the message's ClOrdID, for a message of that day.
    pub(super) async fn used(
        &self,
        cl_ord_id: &str,
        message: MessageRef<'_>,
        now: UtcNanos,
    ) -> Result<Option<FixOrder>, Unavailable> {
        let newest = self.newest(cl_ord_id, None).await?;
        let is_used = |day: i32| self.days.0.is_none() || day >= self.days.of(message, now);
        Ok(newest.filter(|(_, day)| is_used(*day)).map(|(order, _)| order))
    }

    /// The newest order or request with a ClOrdID.
    pub(super) async fn find_order(&self, cl_ord_id: &str) -> Result<Option<FixOrder>, Unavailable> {
        Ok(self.newest(cl_ord_id, None).await?.map(|(order, _)| order))
    }

    /// The order that a request is about: the one with its OrderID(37), or the newest one; and its day.
    pub(super) async fn newest(
        &self,
        cl_ord_id: &str,
        about: Option<MessageRef<'_>>,
    ) -> Result<Option<(FixOrder, i32)>, Unavailable> {
        if let Some(parked) = self.parked_order(cl_ord_id) {
            let day = parked.trading_day;
            return Ok(Some((parked, day)));
        }
        let mut conn = self.connection().await?;
        let order_id = about.and_then(|message| message.text(tags::ORDER_ID));
        let found = store::find_order(&mut conn, &self.session.session_id, cl_ord_id, order_id).await?;
        Ok(found.map(|known| {
            let day = self.days.of_order(&known);
            (known.order, day)
        }))
    }

    /// May a request whose ClOrdID is not used on its day be one of an earlier day that comes again, and was about other
    /// orders than those of `day`? Its times may be those of the repetition.
    pub(super) async fn may_be_earlier(
        &self,
        cl_ord_id: &str,
        message: MessageRef<'_>,
        day: i32,
        now: UtcNanos,
    ) -> Result<bool, Unavailable> {
        if self.days.0.is_none() || !is_repetition(message) || message.get(tags::ORDER_ID).is_some() {
            return Ok(false);
        }
        Ok(self.days.of(message, now) < day || self.newest(cl_ord_id, None).await?.is_some())
    }

    /// Is this an order of an earlier trading day?
    pub(super) fn is_of_earlier_day(&self, message: MessageRef<'_>) -> bool {
        let millis = u64::try_from(context::now().millis()).unwrap_or(0);
        self.days.is_of_earlier(message, UtcNanos(millis.saturating_mul(1_000_000)))
    }
}
