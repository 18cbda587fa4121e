use super::*;

fn tenant(name: &str) -> Tenant {
    Tenant { partner_id: name.to_owned(), livemode: false }
}

fn rest(name: &str) -> Flow {
    Flow { tenant: tenant(name), source: UnitSource::Rest }
}

fn session(name: &str, id: &str) -> Flow {
    Flow { tenant: tenant(name), source: UnitSource::Session(id.to_owned()) }
}

fn settlement(name: &str) -> Flow {
    Flow { tenant: tenant(name), source: UnitSource::Settlement }
}

fn suspect(name: &str) -> Flow {
    Flow { tenant: tenant(name), source: UnitSource::Suspect }
}

fn flows() -> FairQueue<u32> {
    FairQueue::new(Places { entry: 16, service: 4 })
}

fn fill(flows: &mut FairQueue<u32>, flow: &Flow, units: std::ops::Range<u32>) {
    for unit in units {
        flows.push(flow.clone(), unit);
    }
}

fn taken(flows: &mut FairQueue<u32>, max: usize) -> Vec<u32> {
    flows.take(max).map(|taken| taken.units.into_iter().map(|(_, unit)| unit).collect()).unwrap_or_default()
}

#[test]
fn a_flood_takes_turns_with_a_single_unit() {
    let mut flows = flows();
    fill(&mut flows, &rest("flood"), 0..8);
    fill(&mut flows, &rest("quiet"), 100..101);
    assert_eq!(taken(&mut flows, 4), [0, 1, 2, 100]);
    assert_eq!(taken(&mut flows, 9), [3, 4, 5, 6, 7]);
    assert!(flows.take(9).is_none());
}

#[test]
fn settlement_and_order_entry_take_turns() {
    let mut flows = flows();
    fill(&mut flows, &rest("a"), 0..8);
    fill(&mut flows, &settlement("a"), 100..104);
    let first = taken(&mut flows, 4);
    assert_eq!(first, [0, 1, 100, 101]);
}

#[test]
fn flows_of_a_tenant_take_turns_and_keep_their_order() {
    let mut flows = flows();
    fill(&mut flows, &session("a", "one"), 0..4);
    fill(&mut flows, &session("a", "two"), 10..12);
    fill(&mut flows, &rest("a"), 20..21);
    assert_eq!(taken(&mut flows, 7), [0, 10, 20, 1, 11, 2, 3]);
}

#[test]
fn a_tenant_alone_fills_half_of_the_places() {
    let mut flows = flows();
    let flood = rest("flood");
    let mut in_line = 0;
    while flows.admits(&flood) {
        flows.push(flood.clone(), 0);
        in_line += 1;
    }
    assert_eq!(in_line, 8);
    assert!(flows.admits(&rest("quiet")));
    assert!(!flows.admits(&session("flood", "one")), "all interfaces of a tenant share its places");
    assert!(flows.admits(&settlement("flood")), "the service's own work has places of its own");
    flows.take(2);
    assert!(flows.admits(&flood));
}

#[test]
fn the_services_own_work_is_bounded_too() {
    let mut flows = flows();
    fill(&mut flows, &settlement("a"), 0..4);
    assert!(!flows.admits(&settlement("b")));
    assert!(flows.admits(&rest("a")));
}

#[test]
fn units_that_are_put_back_are_first_in_their_order() {
    let mut flows = flows();
    fill(&mut flows, &session("a", "one"), 0..4);
    let mut units = flows.take(3).unwrap().units;
    let rest: Vec<_> = units.drain(1..).collect();
    flows.put_back(rest);
    assert_eq!(taken(&mut flows, 9), [1, 2, 3]);
}

#[test]
fn an_isolated_tenant_shares_no_batch_until_its_batches_succeed() {
    let mut flows = flows();
    fill(&mut flows, &rest("bad"), 0..2);
    fill(&mut flows, &rest("good"), 10..14);
    flows.set_apart(&rest("bad"));
    assert_eq!(flows.tenants_apart(), 1);
    let apart = flows.take(9).unwrap();
    assert!(apart.apart);
    assert_eq!(apart.units.len(), 2);
    fill(&mut flows, &rest("bad"), 2..4);
    let shared = flows.take(2).unwrap();
    assert!(!shared.apart, "the others have every second batch");
    assert_eq!(taken(&mut flows, 9), [2, 3]);
    for _ in 0..APART_BATCHES {
        flows.was_good(&rest("bad"));
    }
    assert_eq!(flows.tenants_apart(), 0);
    fill(&mut flows, &rest("bad"), 4..5);
    assert_eq!(taken(&mut flows, 9), [12, 13, 4]);
}

#[test]
fn a_waiting_tenant_is_isolated_without_losing_units() {
    let mut flows = flows();
    fill(&mut flows, &rest("a"), 0..2);
    flows.set_apart(&rest("a"));
    for _ in 0..APART_BATCHES {
        flows.was_good(&rest("a"));
    }
    let shared = flows.take(9).unwrap();
    assert!(!shared.apart);
    assert_eq!(shared.units.len(), 2);
    assert!(flows.take(9).is_none());
}

#[test]
fn suspect_units_are_taken_one_at_a_time_between_others() {
    let mut flows = flows();
    fill(&mut flows, &suspect("a"), 0..2);
    fill(&mut flows, &rest("a"), 10..12);
    let batches: Vec<_> = std::iter::from_fn(|| flows.take(1)).map(|t| (t.apart, t.units[0].1)).collect();
    assert_eq!(batches, [(true, 0), (false, 10), (true, 1), (false, 11)]);
}

#[test]
fn taking_all_empties_every_flow() {
    let mut flows = flows();
    fill(&mut flows, &suspect("a"), 0..2);
    fill(&mut flows, &session("a", "one"), 2..5);
    fill(&mut flows, &settlement("b"), 5..6);
    let mut all: Vec<u32> = flows.take_all().into_iter().map(|(_, unit)| unit).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    assert!(flows.take(9).is_none());
    assert_eq!(Class::ALL.map(|class| flows.queued(class)), [0; 3]);
}
