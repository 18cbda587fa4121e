//! The deadlines of orders, and the windows that the contract accepts.

use super::*;
use crate::beneficiary::Beneficiary;
use crate::plan::OrderKind;
use crate::settlement::tests::terms_of;

const HOUR: u64 = 60 * 60;
const BANK: Windows = Windows {
    fill_secs: HOUR,
    margin_secs: 24 * HOUR,
    payout: PayoutTime::BusinessDays,
    finality_secs: 4 * HOUR,
};
const METHODS: [Option<PayoutMethod>; 5] = [
    None,
    Some(PayoutMethod::Wire),
    Some(PayoutMethod::Sepa),
    Some(PayoutMethod::Ach),
    Some(PayoutMethod::Swift),
];

fn at(text: &str) -> Timestamp {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc().into()
}

fn secs(text: &str) -> u64 {
    at(text).unix_secs()
}

fn paid_by(method: PayoutMethod) -> Terms {
    let mut terms = terms_of(OrderKind::TokenToFiat);
    terms.request.beneficiary = Some(Beneficiary { payout_method: Some(method), ..Beneficiary::default() });
    terms
}

#[test]
fn a_timelock_includes_the_rails_business_days() {
    for (method, now, payout_ends) in [
        // Monday; Tuesday for the cut-off, Wednesday for the wire.
        (PayoutMethod::Wire, "2026-11-16T09:00:00Z", "2026-11-19T00:00:00Z"),
        // Over a weekend.
        (PayoutMethod::Sepa, "2026-11-20T09:00:00Z", "2026-11-26T00:00:00Z"),
        // Over Thanksgiving.
        (PayoutMethod::Ach, "2026-11-24T09:00:00Z", "2026-12-02T00:00:00Z"),
        // Thanksgiving is a business day of TARGET.
        (PayoutMethod::Sepa, "2026-11-24T09:00:00Z", "2026-11-28T00:00:00Z"),
        // Over Christmas and New Year.
        (PayoutMethod::Swift, "2026-12-23T09:00:00Z", "2027-01-05T00:00:00Z"),
        // The fill deadline, from which the payout counts, is on the next day.
        (PayoutMethod::Wire, "2026-11-16T23:30:00Z", "2026-11-20T00:00:00Z"),
    ] {
        let times = BANK.of(&paid_by(method), at(now));
        assert_eq!(times.fill_deadline, secs(now) + HOUR, "{method:?} {now}");
        assert_eq!(times.timelock, secs(payout_ends) + 24 * HOUR, "{method:?} {now}");
    }
}

#[test]
fn without_a_bank_the_timelock_follows_the_fill_deadline() {
    let now = at("2026-12-24T09:00:00Z");
    let simulated = Windows { payout: PayoutTime::Elapsed(60), ..BANK };
    let timelock = |windows: Windows, terms: &Terms| windows.of(terms, now).timelock - now.unix_secs();
    assert_eq!(timelock(simulated, &paid_by(PayoutMethod::Wire)), 25 * HOUR + 60);
    assert_eq!(timelock(BANK, &terms_of(OrderKind::TokenToToken)), 25 * HOUR, "paid on the chain");
}

#[test]
fn an_unknown_method_gets_the_slowest_rails_time() {
    let mut unknown = paid_by(PayoutMethod::Swift);
    unknown.request.beneficiary = None;
    let now = at("2026-11-16T09:00:00Z");
    assert_eq!(BANK.of(&unknown, now), BANK.of(&paid_by(PayoutMethod::Swift), now));
}

#[test]
fn funds_are_locked_until_the_earliest_of_three_deadlines() {
    let now = at("2026-11-16T09:00:00Z");
    let lock_by = |deadline: u64, path: u64| {
        let mut terms = paid_by(PayoutMethod::Sepa);
        let after = |secs: u64| now.plus_millis(i64::try_from(secs * 1000).unwrap());
        terms.request.deadline = after(deadline);
        terms.plan.path.expires_at = after(path);
        BANK.of(&terms, now).lock_by - now.unix_secs()
    };
    assert_eq!(lock_by(600, 300), 300);
    assert_eq!(lock_by(60, 300), 60);
    assert_eq!(lock_by(9 * HOUR, 8 * HOUR), HOUR, "the fill deadline");
}

#[test]
fn no_bank_payout_takes_longer_than_the_bound() {
    // Midnight: the payout takes the longest when the whole day remains.
    let first = secs("2026-01-01T00:00:00Z");
    let mut longest = 0;
    for day in 0..36_525 {
        let begun = first + day * DAY_SECS;
        for method in METHODS {
            longest = longest.max(PayoutTime::BusinessDays.ends_by(method, begun) - begun);
        }
    }
    assert_eq!(longest, BANK_DAYS_MAX * DAY_SECS);
}

#[test]
fn the_end_of_the_calendar_does_not_panic() {
    for begun in [u64::MAX, u64::MAX / 2, 8_210_266_876_000] {
        let ends = PayoutTime::BusinessDays.ends_by(None, begun);
        assert!(ends >= begun, "{begun}");
    }
}

#[test]
fn windows_that_the_contract_refuses_are_refused() {
    let day = 24 * HOUR;
    let most = TIMELOCK_SECS_MAX - HOUR - BANK_DAYS_MAX * day;
    for (windows, expected) in [
        (BANK, Ok(())),
        (Windows { fill_secs: PATH_SECS, ..BANK }, Err(WindowsError::FillTooShort)),
        (Windows { fill_secs: FILL_SECS_MAX, ..BANK }, Ok(())),
        (Windows { fill_secs: FILL_SECS_MAX + 1, ..BANK }, Err(WindowsError::FillTooLong)),
        (Windows { margin_secs: HOUR - 1, ..BANK }, Err(WindowsError::MarginTooShort)),
        (Windows { margin_secs: most, ..BANK }, Ok(())),
        (
            Windows { margin_secs: most + 1, ..BANK },
            Err(WindowsError::MarginTooLong { payout_secs: BANK_DAYS_MAX * day }),
        ),
        (
            Windows { margin_secs: u64::MAX, payout: PayoutTime::Elapsed(60), ..BANK },
            Err(WindowsError::MarginTooLong { payout_secs: 4 * HOUR }),
        ),
    ] {
        assert_eq!(windows.check(), expected, "{windows:?}");
    }
}

#[test]
fn a_payment_on_another_chain_is_final_before_its_lock_is_settled() {
    let now = at("2026-11-16T23:30:00Z");
    let terms = crate::settlement::tests::across();
    let times = BANK.of(&terms, now);
    let begun = now.unix_secs() + HOUR;
    assert_eq!((times.fill_deadline, times.timelock), (begun, begun + 4 * HOUR + 24 * HOUR));
    let lock = crate::settlement::Lock {
        deadlines: BANK.deadlines(&terms, times.fill_deadline, times.timelock),
        ..crate::settlement::tests::lock()
    };
    // At any moment: an hour from then, and never so late that it is not final when the lock is settled.
    for (secs, expected) in
        [(0, HOUR), (12 * HOUR, 13 * HOUR), (13 * HOUR, 13 * HOUR), (20 * HOUR, 13 * HOUR)]
    {
        let asked = now.plus_millis(i64::try_from(secs).unwrap() * 1000);
        let last = BANK.pay_by(Some(&lock), asked);
        assert_eq!(last, now.unix_secs() + expected, "{secs}");
        assert!(last + 4 * HOUR <= lock.deadlines.settle_at.unix_secs());
    }
    assert_eq!(BANK.pay_by(None, now), begun);
}

#[test]
fn a_payout_that_begins_in_time_has_ended_before_its_lock_is_settled() {
    // Friday evening: a payout of the next day is received on Monday.
    for (method, now) in [
        (PayoutMethod::Wire, "2026-11-20T20:00:00Z"),
        (PayoutMethod::Sepa, "2026-11-20T22:30:00Z"),
        (PayoutMethod::Ach, "2026-11-25T12:00:00Z"),
        (PayoutMethod::Swift, "2026-12-23T23:30:00Z"),
    ] {
        let terms = paid_by(method);
        let times = BANK.of(&terms, at(now));
        let deadlines = BANK.deadlines(&terms, times.fill_deadline, times.timelock);
        let last = deadlines.pay_before.unix_secs() - 1;
        assert!(last >= times.fill_deadline, "{method:?} {now}: after the fill deadline");
        let ends = BANK.payout_ends_by(&terms, last);
        assert!(ends <= deadlines.settle_at.unix_secs(), "{method:?} {now}: {ends}");
    }
    let now = at("2026-11-16T09:00:00Z");
    let simulated = Windows { payout: PayoutTime::Elapsed(60), ..BANK };
    let terms = paid_by(PayoutMethod::Wire);
    let times = simulated.of(&terms, now);
    let deadlines = simulated.deadlines(&terms, times.fill_deadline, times.timelock);
    assert_eq!(deadlines.pay_before.unix_secs(), times.fill_deadline + 12 * HOUR);
}
