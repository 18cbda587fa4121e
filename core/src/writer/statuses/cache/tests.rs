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

/// Processes everything up to `now`.
fn listening(now: Instant) -> StatusCache {
    let mut cache = StatusCache::default();
    cache.listen();
    cache.heartbeat(now);
    cache
}

fn ask(cache: &mut StatusCache, reference: &str, now: Instant) -> Result<Bytes, Ticket> {
    cache.find(&acme(), RefType::ExecutionId, reference, now)
}

fn one(reference: &str) -> HashSet<String> {
    HashSet::from([reference.to_owned()])
}

#[test]
fn a_status_is_found_by_both_names_and_only_by_its_tenant() {
    let now = Instant::now();
    let mut cache = listening(now);
    let ticket = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.keep(ticket, status("exe_1", "one", now));
    assert_eq!(ask(&mut cache, "exe_1", now).unwrap(), "one");
    assert_eq!(cache.find(&acme(), RefType::ClientReference, "ref-exe_1", now).unwrap(), "one");
    for other in [tenant("ptn_acme", true), tenant("ptn_globex", false)] {
        assert!(cache.find(&other, RefType::ExecutionId, "exe_1", now).is_err());
        assert!(cache.find(&other, RefType::ClientReference, "ref-exe_1", now).is_err());
    }
    assert!(cache.find(&acme(), RefType::ClientReference, "exe_1", now).is_err());
    assert!(ask(&mut cache, "ref-exe_1", now).is_err());
}

#[test]
fn a_status_read_before_a_change_is_not_cached_after_it() {
    let now = Instant::now();
    let mut cache = listening(now);
    let began = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.forget("exe_1");
    cache.keep(began, status("exe_1", "old", now));
    let again = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.forget("exe_2");
    cache.keep(again, status("exe_1", "new", now));
    assert_eq!(ask(&mut cache, "exe_1", now).unwrap(), "new");
}

#[test]
fn a_reading_older_than_the_recorded_changes_is_not_cached() {
    let now = Instant::now();
    let mut cache = listening(now);
    let began = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.forget("exe_1");
    for n in 0..3 * CHANGES_MAX {
        cache.forget(&format!("exe_other_{n}"));
    }
    cache.keep(began, status("exe_1", "old", now));
    assert!(ask(&mut cache, "exe_1", now).is_err());
    assert!(cache.changes.recent.len() + cache.changes.older.len() <= 2 * CHANGES_MAX);
}

#[test]
fn a_status_is_not_used_or_cached_while_its_execution_changes() {
    let now = Instant::now();
    let mut cache = listening(now);
    let began = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.keep(began, status("exe_1", "old", now));
    cache.begin(&one("exe_1"));
    cache.begin(&one("exe_1"));
    let during = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.keep(during, status("exe_1", "either", now));
    assert!(ask(&mut cache, "exe_1", now).is_err());
    cache.end(&one("exe_1"));
    let between = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.keep(between, status("exe_1", "either", now));
    assert!(ask(&mut cache, "exe_1", now).is_err());
    cache.end(&one("exe_1"));
    cache.keep(between, status("exe_1", "either", now));
    let after = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.keep(after, status("exe_1", "new", now));
    assert_eq!(ask(&mut cache, "exe_1", now).unwrap(), "new");
    assert!(cache.changing.is_empty());
}

#[test]
fn the_cache_is_not_used_after_the_heartbeats_stop() {
    let now = Instant::now();
    let mut cache = listening(now);
    let began = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.keep(began, status("exe_1", "one", now));
    assert!(ask(&mut cache, "exe_1", now + STALENESS_MAX).is_ok());
    let late = now + STALENESS_MAX + Duration::from_nanos(1);
    assert!(ask(&mut cache, "exe_1", late).is_err());
    cache.heartbeat(late);
    assert!(ask(&mut cache, "exe_1", late).is_ok());
}

#[test]
fn no_entry_survives_an_interruption_of_listening() {
    let now = Instant::now();
    let mut cache = StatusCache::default();
    let before = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.heartbeat(now);
    cache.keep(before, status("exe_1", "old", now));
    assert!(ask(&mut cache, "exe_1", now).is_err());
    cache.listen();
    cache.heartbeat(now);
    cache.keep(before, status("exe_1", "old", now));
    let began = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.keep(began, status("exe_1", "one", now));
    cache.stop_listening();
    cache.heartbeat(now);
    assert!(ask(&mut cache, "exe_1", now).is_err());
    cache.listen();
    cache.heartbeat(now);
    cache.keep(began, status("exe_1", "old", now));
    assert!(ask(&mut cache, "exe_1", now).is_err());
}

#[test]
fn a_cached_status_expires_without_a_notification() {
    let now = Instant::now();
    let mut cache = listening(now);
    let began = ask(&mut cache, "exe_1", now).unwrap_err();
    cache.keep(began, status("exe_1", "one", now));
    let late = now + KEPT + Duration::from_nanos(1);
    cache.heartbeat(late);
    assert!(ask(&mut cache, "exe_1", late).is_err());
}

#[test]
fn memory_is_bounded_and_the_most_recently_used_entries_stay() {
    let now = Instant::now();
    let mut cache = listening(now);
    let body = Bytes::from(vec![b'x'; 64 * 1024]);
    for n in 0..4096 {
        let began = ask(&mut cache, &format!("exe_{n}"), now).unwrap_err();
        cache.keep(began, status(&format!("exe_{n}"), body.clone(), now));
        assert!(ask(&mut cache, "exe_0", now).is_ok());
        let kept = cache.fresh.statuses.values().chain(cache.ageing.statuses.values());
        let bytes: usize = kept.map(Status::bytes).sum();
        assert_eq!(bytes, cache.fresh.bytes + cache.ageing.bytes);
        assert!(bytes <= BYTES_MAX);
        let names = |of: &Generation| of.named.values().map(HashMap::len).sum::<usize>();
        assert_eq!(names(&cache.fresh), cache.fresh.statuses.len());
        assert_eq!(names(&cache.ageing), cache.ageing.statuses.len());
    }
    assert!(ask(&mut cache, "exe_1", now).is_err());
    let began = ask(&mut cache, "exe_huge", now).unwrap_err();
    cache.keep(began, status("exe_huge", vec![b'x'; BYTES_MAX], now));
    assert!(ask(&mut cache, "exe_huge", now).is_err());
}
