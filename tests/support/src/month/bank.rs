//! A bank with one account a currency, hours, and a statement of account.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};
use dvp_core::context::Clock;
use dvp_domain::calendar::Calendar;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::{LegKind, Rail, RailError, RailFuture, RailRequest, RailStatus};
use dvp_sandbox::bank::statement::{Line, StatementOf};
use dvp_store::orders::effects::{self, EffectKind, ManualResolution};
use sqlx::PgPool;

use crate::dice::Dice;

/// Payments to this account are refused.
pub(super) const REFUSED: &str = "000123450002";
/// Payments to this account are booked, and come back.
pub(super) const RETURNED: &str = "000123450013";
/// From this hour on a payment is processed on the next business day.
const CUT_OFF_HOUR: u32 = 17;
/// The hour at which a payment is booked, on the business day after the one that processes it.
const BOOKING_HOUR: u32 = 9;

/// When a payment that is ordered at a time is booked.
pub fn booked_at(ordered: DateTime<Utc>) -> DateTime<Utc> {
    let hour = |hour| NaiveTime::from_hms_opt(hour, 0, 0).expect("an hour");
    let calendar = Calendar::FederalReserve;
    let is_late = ordered.time() >= hour(CUT_OFF_HOUR);
    let today = ordered.date_naive();
    let from = if is_late { today } else { today.pred_opt().expect("a day") };
    let processed_on = calendar.business_day_after(from, 1);
    calendar.business_day_after(processed_on, 1).and_time(hour(BOOKING_HOUR)).and_utc()
}

/// An entry of the statement: positive amounts are credits.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) currency: String,
    pub(super) amount: i128,
    /// An execution, a deposit or an operation.
    pub(super) about: String,
    pub(super) at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Ordered,
    Booked(DateTime<Utc>),
    Refused,
}

#[derive(Debug)]
struct Payment {
    execution: String,
    currency: String,
    amount: i128,
    account: String,
    standing: Standing,
}

#[derive(Debug, Default)]
struct Books {
    payments: HashMap<String, Payment>,
    /// Bookings and returns by when they happen; `true`: a return.
    due: BTreeMap<(DateTime<Utc>, u64), (String, bool)>,
    turns: u64,
    statement: Vec<Entry>,
    calls: HashMap<String, u32>,
}

impl Books {
    fn plan(&mut self, at: DateTime<Utc>, reference: &str, is_return: bool) {
        self.turns += 1;
        self.due.insert((at, self.turns), (reference.to_owned(), is_return));
    }
}

pub(super) struct Bank {
    clock: Clock,
    books: Mutex<Books>,
}

pub(super) fn minor(amount: u128) -> i128 {
    i128::try_from(amount).expect("an amount of money")
}

impl Bank {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, books: Mutex::default() }
    }

    /// An entry that another part of the bank has made.
    pub(super) fn note(&self, about: &str, currency: &str, amount: i128, at: DateTime<Utc>) {
        let entry = Entry { currency: currency.to_owned(), amount, about: about.to_owned(), at };
        self.books.lock().unwrap().statement.push(entry);
    }

    fn book(&self, about: &str, currency: &str, amount: i128) {
        let (at, about) = (self.clock.now().to_utc(), about.to_owned());
        let entry = Entry { currency: currency.to_owned(), amount, about, at };
        self.books.lock().unwrap().statement.push(entry);
    }

    /// Money comes in.
    pub(super) fn deposit(&self, from: &str, currency: &str, amount: u128) {
        self.book(from, currency, minor(amount));
    }

    /// Sends money without an order.
    pub(super) fn send(&self, to: &str, currency: &str, amount: u128) {
        self.book(to, currency, -minor(amount));
    }

    pub(super) fn statement(&self) -> Vec<Entry> {
        self.books.lock().unwrap().statement.clone()
    }

    /// A statement for each day on which an account had entries, as files.
    pub(super) fn statements(&self, currency: &str, account: &str) -> Vec<StatementOf> {
        let mut days: BTreeMap<NaiveDate, Vec<Line>> = BTreeMap::new();
        for (number, entry) in self.statement().into_iter().enumerate() {
            if entry.currency == currency {
                let line = Line {
                    currency: entry.currency,
                    amount: i64::try_from(entry.amount).unwrap(),
                    end_to_end_id: None,
                    bank_reference: format!("B{number}"),
                    text: Some(entry.about),
                    at: entry.at,
                };
                days.entry(entry.at.date_naive()).or_default().push(line);
            }
        }
        let mut opening = 0;
        days.into_iter()
            .map(|(day, lines)| {
                let from = day.and_time(NaiveTime::MIN).and_utc();
                let statement = StatementOf {
                    account: account.to_owned(),
                    currency: currency.to_owned(),
                    id: format!("{currency} {day}"),
                    from,
                    to: from + TimeDelta::days(1),
                    opening,
                    lines,
                };
                opening = statement.closing();
                statement
            })
            .collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.books.lock().unwrap().due.is_empty()
    }

    /// Payments that were ordered more than once.
    pub(super) fn repeated(&self) -> usize {
        self.books.lock().unwrap().calls.values().filter(|calls| **calls > 1).count()
    }

    /// Books the payments that are due, and reports them to the service as a bank's file does.
    pub(super) async fn turn(&self, pool: &PgPool, now: DateTime<Utc>, dice: &mut Dice) {
        let mut conn = pool.acquire().await.unwrap();
        loop {
            let (execution, came_back) = {
                let mut books = self.books.lock().unwrap();
                let Some(first) = books.due.first_entry().filter(|first| first.key().0 <= now) else {
                    return;
                };
                let (at, _) = *first.key();
                let (reference, is_return) = first.remove();
                let payment = books.payments.get_mut(&reference).unwrap();
                let (execution, account) = (payment.execution.clone(), payment.account.clone());
                let (currency, amount) = (payment.currency.clone(), payment.amount);
                let entry = |amount| Entry { currency, amount, about: execution.clone(), at };
                if is_return {
                    books.statement.push(entry(amount));
                } else if account == REFUSED {
                    payment.standing = Standing::Refused;
                } else {
                    payment.standing = Standing::Booked(at);
                    books.statement.push(entry(-amount));
                    if account == RETURNED {
                        let days = 1 + i64::try_from(dice.throw(3)).unwrap();
                        books.plan(at + TimeDelta::days(days), &reference, true);
                    }
                }
                (execution, is_return.then_some(at))
            };
            if let Some(at) = came_back {
                let verdict = ManualResolution::PaymentReturned {
                    provider_reference: format!("R-{execution}"),
                    occurred_at: at,
                    came: None,
                    code: "beneficiary_account_closed".into(),
                    message: "the bank returned the payment".into(),
                };
                let verdict = serde_json::to_value(verdict).unwrap();
                effects::insert_verdict(&mut conn, &execution, EffectKind::Reversal, &verdict).await.unwrap();
            } else {
                let nudge = "update effect set run_at = least(run_at, now()) \
                             where reference = $1 and kind = 'payout' and claimed_until is null";
                sqlx::query(nudge).bind(&execution).execute(&mut *conn).await.unwrap();
            }
        }
    }

    fn ordered(&self, request: &RailRequest) -> RailAnswer {
        let now = self.clock.now().to_utc();
        let mut books = self.books.lock().unwrap();
        *books.calls.entry(request.reference.clone()).or_default() += 1;
        if !books.payments.contains_key(&request.reference) {
            let payment = Payment {
                execution: request.execution.clone(),
                currency: request.currency.clone(),
                amount: minor(request.amount.get()),
                account: request.account.clone(),
                standing: Standing::Ordered,
            };
            books.payments.insert(request.reference.clone(), payment);
            books.plan(booked_at(now), &request.reference, false);
        }
        let standing = books.payments[&request.reference].standing.clone();
        answer(&standing, &request.reference)
    }
}

fn answer(standing: &Standing, reference: &str) -> RailAnswer {
    let provider_reference = reference.to_owned();
    match standing {
        Standing::Ordered => RailAnswer::InProgress { provider_reference },
        Standing::Booked(at) => RailAnswer::Done(LegDone { provider_reference, occurred_at: (*at).into() }),
        Standing::Refused => RailAnswer::Failed {
            code: "beneficiary_account_closed".into(),
            message: "the account is closed".into(),
            retryable: false,
        },
    }
}

impl Rail for Bank {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async {
            match request.leg {
                LegKind::Payout => Ok(self.ordered(request)),
                LegKind::Offramp => Err(RailError::Down("this bank converts nothing".into())),
            }
        })
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        let books = self.books.lock().unwrap();
        let found = books.payments.get(&request.reference).map(|payment| payment.standing.clone());
        drop(books);
        let status = found.map_or(RailStatus::NeverSeen, |standing| {
            RailStatus::Known(answer(&standing, &request.reference))
        });
        Box::pin(std::future::ready(Ok(status)))
    }

    /// It makes a payment's work due itself.
    fn poll_max(&self) -> Duration {
        Duration::from_secs(3 * 24 * 60 * 60)
    }
}
