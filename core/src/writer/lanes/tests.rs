use super::*;

fn tenant(name: &str) -> Tenant {
    Tenant { partner_id: name.to_owned(), livemode: false }
}

fn rest(name: &str) -> Lane {
    Lane { tenant: tenant(name), source: UnitSource::Rest }
}

fn session(name: &str, id: &str) -> Lane {
    Lane { tenant: tenant(name), source: UnitSource::Session(id.to_owned()) }
}

fn settlement(name: &str) -> Lane {
    Lane { tenant: tenant(name), source: UnitSource::Settlement }
}

fn suspect(name: &str) -> Lane {
    Lane { tenant: tenant(name), source: UnitSource::Suspect }
}

fn lanes() -> Lanes<u32> {
    Lanes::new(Places { entry: 16, service: 4 })
}

fn fill(lanes: &mut Lanes<u32>, lane: &Lane, units: std::ops::Range<u32>) {
    for unit in units {
        lanes.push(lane.clone(), unit);
    }
}

fn taken(lanes: &mut Lanes<u32>, max: usize) -> Vec<u32> {
    lanes.take(max).map(|taken| taken.units.into_iter().map(|(_, unit)| unit).collect()).unwrap_or_default()
}

#[test]
fn a_flood_takes_turns_with_a_single_unit() {
    let mut lanes = lanes();
    fill(&mut lanes, &rest("flood"), 0..8);
    fill(&mut lanes, &rest("quiet"), 100..101);
    assert_eq!(taken(&mut lanes, 4), [0, 1, 2, 100]);
    assert_eq!(taken(&mut lanes, 9), [3, 4, 5, 6, 7]);
    assert!(lanes.take(9).is_none());
}

#[test]
fn settlement_and_order_entry_take_turns() {
    let mut lanes = lanes();
    fill(&mut lanes, &rest("a"), 0..8);
    fill(&mut lanes, &settlement("a"), 100..104);
    let first = taken(&mut lanes, 4);
    assert_eq!(first, [0, 1, 100, 101]);
}

#[test]
fn lanes_of_a_tenant_take_turns_and_keep_their_order() {
    let mut lanes = lanes();
    fill(&mut lanes, &session("a", "one"), 0..4);
    fill(&mut lanes, &session("a", "two"), 10..12);
    fill(&mut lanes, &rest("a"), 20..21);
    assert_eq!(taken(&mut lanes, 7), [0, 10, 20, 1, 11, 2, 3]);
}

#[test]
fn a_tenant_alone_fills_half_of_the_places_and_the_next_finds_room() {
    let mut lanes = lanes();
    let flood = rest("flood");
    let mut in_line = 0;
    while lanes.admits(&flood) {
        lanes.push(flood.clone(), 0);
        in_line += 1;
    }
    assert_eq!(in_line, 8);
    assert!(lanes.admits(&rest("quiet")));
    assert!(!lanes.admits(&session("flood", "one")), "all doors of a tenant share its places");
    assert!(lanes.admits(&settlement("flood")), "the service's own work has places of its own");
    lanes.take(2);
    assert!(lanes.admits(&flood));
}

#[test]
fn the_services_own_work_is_bounded_too() {
    let mut lanes = lanes();
    fill(&mut lanes, &settlement("a"), 0..4);
    assert!(!lanes.admits(&settlement("b")));
    assert!(lanes.admits(&rest("a")));
}

#[test]
fn what_is_put_back_is_first_again_in_its_order() {
    let mut lanes = lanes();
    fill(&mut lanes, &session("a", "one"), 0..4);
    let mut units = lanes.take(3).unwrap().units;
    let rest: Vec<_> = units.drain(1..).collect();
    lanes.put_back(rest);
    assert_eq!(taken(&mut lanes, 9), [1, 2, 3]);
}

#[test]
fn a_tenant_set_apart_shares_no_batch_until_it_was_good_for_a_while() {
    let mut lanes = lanes();
    fill(&mut lanes, &rest("bad"), 0..2);
    fill(&mut lanes, &rest("good"), 10..14);
    lanes.set_apart(&rest("bad"));
    assert_eq!(lanes.tenants_apart(), 1);
    let apart = lanes.take(9).unwrap();
    assert!(apart.apart);
    assert_eq!(apart.units.len(), 2);
    fill(&mut lanes, &rest("bad"), 2..4);
    let shared = lanes.take(2).unwrap();
    assert!(!shared.apart, "the others have every second batch");
    assert_eq!(taken(&mut lanes, 9), [2, 3]);
    for _ in 0..APART_BATCHES {
        lanes.was_good(&rest("bad"));
    }
    assert_eq!(lanes.tenants_apart(), 0);
    fill(&mut lanes, &rest("bad"), 4..5);
    assert_eq!(taken(&mut lanes, 9), [12, 13, 4]);
}

#[test]
fn a_tenant_that_waits_changes_sides_without_losing_units() {
    let mut lanes = lanes();
    fill(&mut lanes, &rest("a"), 0..2);
    lanes.set_apart(&rest("a"));
    for _ in 0..APART_BATCHES {
        lanes.was_good(&rest("a"));
    }
    let shared = lanes.take(9).unwrap();
    assert!(!shared.apart);
    assert_eq!(shared.units.len(), 2);
    assert!(lanes.take(9).is_none());
}

#[test]
fn suspects_are_taken_one_at_a_time_between_the_others() {
    let mut lanes = lanes();
    fill(&mut lanes, &suspect("a"), 0..2);
    fill(&mut lanes, &rest("a"), 10..12);
    let batches: Vec<_> = std::iter::from_fn(|| lanes.take(1)).map(|t| (t.apart, t.units[0].1)).collect();
    assert_eq!(batches, [(true, 0), (false, 10), (true, 1), (false, 11)]);
}

#[test]
fn taking_all_empties_every_lane() {
    let mut lanes = lanes();
    fill(&mut lanes, &suspect("a"), 0..2);
    fill(&mut lanes, &session("a", "one"), 2..5);
    fill(&mut lanes, &settlement("b"), 5..6);
    let mut all: Vec<u32> = lanes.take_all().into_iter().map(|(_, unit)| unit).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    assert!(lanes.take(9).is_none());
    assert_eq!(Class::ALL.map(|class| lanes.queued(class)), [0; 3]);
}
