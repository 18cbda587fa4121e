use super::*;

fn tenant(partner: &str, livemode: bool) -> Tenant {
    Tenant { partner_id: partner.into(), livemode }
}

fn acme() -> Tenant {
    tenant("ptn_acme", false)
}

fn status(reference: &str, body: impl Into<Bytes>, at: Instant) -> Status {
    Status {
        tenant: acme(),
        reference: reference.into(),
        client_reference: Some(format!("ref-{reference}").into()),
        body: body.into(),
        at,
    }
}

/// Hears of everything up to `now`.
fn listening(now: Instant) -> Shelf {
    let mut shelf = Shelf::default();
    shelf.listen();
    shelf.heard(now);
    shelf
}

fn ask(shelf: &mut Shelf, reference: &str, now: Instant) -> Result<Bytes, Ticket> {
    shelf.find(&acme(), RefType::ExecutionId, reference, now)
}

fn one(reference: &str) -> HashSet<String> {
    HashSet::from([reference.to_owned()])
}

#[test]
fn a_status_is_found_by_both_names_and_by_its_tenant_alone() {
    let now = Instant::now();
    let mut shelf = listening(now);
    let ticket = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.keep(ticket, status("exe_1", "one", now));
    assert_eq!(ask(&mut shelf, "exe_1", now).unwrap(), "one");
    assert_eq!(shelf.find(&acme(), RefType::ClientReference, "ref-exe_1", now).unwrap(), "one");
    for other in [tenant("ptn_acme", true), tenant("ptn_globex", false)] {
        assert!(shelf.find(&other, RefType::ExecutionId, "exe_1", now).is_err());
        assert!(shelf.find(&other, RefType::ClientReference, "ref-exe_1", now).is_err());
    }
    assert!(shelf.find(&acme(), RefType::ClientReference, "exe_1", now).is_err());
    assert!(ask(&mut shelf, "ref-exe_1", now).is_err());
}

#[test]
fn what_was_read_before_a_change_is_not_kept_after_it() {
    let now = Instant::now();
    let mut shelf = listening(now);
    let began = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.forget("exe_1");
    shelf.keep(began, status("exe_1", "old", now));
    let again = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.forget("exe_2");
    shelf.keep(again, status("exe_1", "new", now));
    assert_eq!(ask(&mut shelf, "exe_1", now).unwrap(), "new");
}

#[test]
fn a_reading_that_outlives_what_is_remembered_of_changes_is_not_kept() {
    let now = Instant::now();
    let mut shelf = listening(now);
    let began = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.forget("exe_1");
    for n in 0..3 * CHANGES_MAX {
        shelf.forget(&format!("exe_other_{n}"));
    }
    shelf.keep(began, status("exe_1", "old", now));
    assert!(ask(&mut shelf, "exe_1", now).is_err());
    assert!(shelf.changes.recent.len() + shelf.changes.older.len() <= 2 * CHANGES_MAX);
}

#[test]
fn nothing_is_given_or_kept_of_an_execution_that_is_being_changed() {
    let now = Instant::now();
    let mut shelf = listening(now);
    let began = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.keep(began, status("exe_1", "old", now));
    shelf.begin(&one("exe_1"));
    shelf.begin(&one("exe_1"));
    let during = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.keep(during, status("exe_1", "either", now));
    assert!(ask(&mut shelf, "exe_1", now).is_err());
    shelf.end(&one("exe_1"));
    let between = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.keep(between, status("exe_1", "either", now));
    assert!(ask(&mut shelf, "exe_1", now).is_err());
    shelf.end(&one("exe_1"));
    shelf.keep(between, status("exe_1", "either", now));
    let after = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.keep(after, status("exe_1", "new", now));
    assert_eq!(ask(&mut shelf, "exe_1", now).unwrap(), "new");
    assert!(shelf.changing.is_empty());
}

#[test]
fn nothing_is_given_once_hearing_was_proved_too_long_ago() {
    let now = Instant::now();
    let mut shelf = listening(now);
    let began = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.keep(began, status("exe_1", "one", now));
    assert!(ask(&mut shelf, "exe_1", now + BELIEVED).is_ok());
    let late = now + BELIEVED + Duration::from_nanos(1);
    assert!(ask(&mut shelf, "exe_1", late).is_err());
    shelf.heard(late);
    assert!(ask(&mut shelf, "exe_1", late).is_ok());
}

#[test]
fn nothing_survives_the_time_in_which_nobody_listened() {
    let now = Instant::now();
    let mut shelf = Shelf::default();
    let before = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.heard(now);
    shelf.keep(before, status("exe_1", "old", now));
    assert!(ask(&mut shelf, "exe_1", now).is_err());
    shelf.listen();
    shelf.heard(now);
    shelf.keep(before, status("exe_1", "old", now));
    let began = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.keep(began, status("exe_1", "one", now));
    shelf.deaf();
    shelf.heard(now);
    assert!(ask(&mut shelf, "exe_1", now).is_err());
    shelf.listen();
    shelf.heard(now);
    shelf.keep(began, status("exe_1", "old", now));
    assert!(ask(&mut shelf, "exe_1", now).is_err());
}

#[test]
fn a_status_is_read_again_after_a_while_even_if_nothing_was_heard_of_it() {
    let now = Instant::now();
    let mut shelf = listening(now);
    let began = ask(&mut shelf, "exe_1", now).unwrap_err();
    shelf.keep(began, status("exe_1", "one", now));
    let late = now + KEPT + Duration::from_nanos(1);
    shelf.heard(late);
    assert!(ask(&mut shelf, "exe_1", late).is_err());
}

#[test]
fn memory_is_bounded_and_what_is_asked_for_stays_longest() {
    let now = Instant::now();
    let mut shelf = listening(now);
    let body = Bytes::from(vec![b'x'; 64 * 1024]);
    for n in 0..4096 {
        let began = ask(&mut shelf, &format!("exe_{n}"), now).unwrap_err();
        shelf.keep(began, status(&format!("exe_{n}"), body.clone(), now));
        assert!(ask(&mut shelf, "exe_0", now).is_ok());
        let kept = shelf.fresh.statuses.values().chain(shelf.ageing.statuses.values());
        let bytes: usize = kept.map(Status::bytes).sum();
        assert_eq!(bytes, shelf.fresh.bytes + shelf.ageing.bytes);
        assert!(bytes <= BYTES_MAX);
        let names = |of: &Generation| of.named.values().map(HashMap::len).sum::<usize>();
        assert_eq!(names(&shelf.fresh), shelf.fresh.statuses.len());
        assert_eq!(names(&shelf.ageing), shelf.ageing.statuses.len());
    }
    assert!(ask(&mut shelf, "exe_1", now).is_err());
    let began = ask(&mut shelf, "exe_huge", now).unwrap_err();
    shelf.keep(began, status("exe_huge", vec![b'x'; BYTES_MAX], now));
    assert!(ask(&mut shelf, "exe_huge", now).is_err());
}
