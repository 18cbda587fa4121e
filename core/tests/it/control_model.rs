//! Random orders over both interfaces against random controls, with crashes: limits, pauses, price bands, disabled
//! partners. An account of its own, kept here, says which orders may be accepted; after every move each posting sums to
//! zero and each balance is the sum of its entries. `DVP_CONTROL_SEEDS=20` runs more seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use dvp_core::engine::{Engine, SubmitCommand};
use dvp_core::operators::approvals::approve;
use dvp_core::operators::bands;
use dvp_core::operators::limits::{self, LimitChange};
use dvp_core::operators::requests::Maker;
use dvp_core::writer::{FixChain, Outcome, Refusal};
use dvp_domain::decision::Reason;
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_domain::pause::Scope;
use dvp_domain::plan::Plan;
use dvp_store::operators::pauses::{self, Decided};
use dvp_store::partners::registry::switch_partner;
use dvp_testing::Harness;
use dvp_testing::dice::Dice;
use dvp_testing::orders::{Terms, order_at};
use sqlx::Acquire as _;

use crate::scenes::{self, fix_session, part_of};

const BY: Decided<'_> = Decided { operator: "jo", reason: "drawn" };
const MAKER: Maker<'_> = Maker { operator: "jo", reason: "drawn", evidence: "none" };
const START_MILLIS: i64 = 1_961_899_200_000;
const MOVES: usize = 120;

/// What is limited, by our own reckoning: scope, target, asset.
type Key = (&'static str, String, &'static str);

/// An accepted order: what it adds to each sum, and the day.
struct Accepted {
    reference: String,
    adds: BTreeMap<Key, u128>,
    day: usize,
}

struct World {
    harness: Harness,
    engine: Engine,
    dice: Dice,
    session: String,
    chain: FixChain,
    next_out: u64,
    day: usize,
    limits: BTreeMap<(Key, &'static str), u128>,
    pauses: BTreeSet<(&'static str, String)>,
    /// Deviation in basis points and the middle in ten-thousandths.
    band: Option<(u128, u128)>,
    is_disabled: bool,
    accepted: Vec<Accepted>,
    counts: BTreeMap<String, u32>,
}

/// The pair of an order and what its sides are.
const PAIRS: [(&str, &str); 2] = [("USD", "EUR"), ("USDC", "USD")];

fn adds(partner: &str, (input, output): (&'static str, &'static str), plan: &Plan) -> BTreeMap<Key, u128> {
    let (paid, given) = (plan.priced.input.get(), plan.priced.output.get());
    let mut adds = BTreeMap::from([
        (("everything", String::new(), input), paid),
        (("partner", partner.to_owned(), input), paid),
        (("pair", format!("{input}/{output}"), input), paid),
        (("rail", "payout".to_owned(), output), given),
    ]);
    if input == "USDC" {
        adds.insert(("rail", "offramp".to_owned(), input), paid);
        adds.insert(("chain", "anvil".to_owned(), input), paid);
    }
    for slice in &plan.slices {
        *adds.entry(("provider", slice.provider_id.clone(), output)).or_default() += slice.output.get();
    }
    adds
}

impl World {
    async fn begin(seed: u64) -> Self {
        let market = scenes::market().with_funds("north", "USD", 1_000_000_000);
        let market =
            market.with_funds("north", "EUR", 1_000_000_000).with_funds("south", "EUR", 1_000_000_000);
        let start = dvp_domain::time::Timestamp::from_millis(START_MILLIS);
        let harness = Harness::in_virtual_time(market, start).await;
        harness.deposit("USD", 1_000_000_000).await;
        let session = fix_session(harness.pool(), &harness.tenant, "ACME").await;
        let engine = harness.another_engine();
        Self {
            harness,
            engine,
            dice: Dice(seed),
            session,
            chain: FixChain::from_loaded(1),
            next_out: 1,
            day: 0,
            limits: BTreeMap::new(),
            pauses: BTreeSet::new(),
            band: None,
            is_disabled: false,
            accepted: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    async fn one(&mut self) {
        match self.dice.index(24) {
            0..11 => self.submit().await,
            11..14 => self.change_limit().await,
            14..16 => self.change_pause().await,
            16 => self.change_band().await,
            17 | 23 if self.dice.index(4) == 0 || self.is_disabled => self.switch_partner().await,
            18 => self.cancel().await,
            19 => self.crash(),
            20..22 => self.settle().await,
            22 => {
                self.harness.advance(Duration::from_secs(24 * 3_600)).await;
                self.day += 1;
            }
            _ => {}
        }
        self.harness.check_books().await;
    }

    async fn submit(&mut self) {
        let pair = PAIRS[self.dice.index(2)];
        let units = 200 + u128::try_from(self.dice.index(30_000)).unwrap();
        let amount = if pair.0 == "USDC" { units * 10_000 } else { units };
        let terms = Terms { input: (pair.0, amount), output: pair.1, account: "000123456789" };
        let at = self.harness.clock().now();
        let request = order_at(at, &PrivateKeySigner::random(), 0, &terms);
        let by_fix = self.dice.index(2) == 0;
        let fix = by_fix.then(|| part_of(&self.session, &self.chain, self.next_out, b"report"));
        let tenant = self.harness.tenant.clone();
        let command = SubmitCommand { tenant, request, idempotency: None, fix };
        let outcome = self.engine.submit(command).await.unwrap().outcome;
        self.next_out += u64::from(by_fix);
        let door = if by_fix { "FIX" } else { "REST" };
        match outcome {
            Outcome::Accepted(accepted) => {
                let adds = adds(&self.harness.tenant.partner_id, pair, &accepted.plan);
                self.may_accept(pair, &adds, &accepted.plan).await;
                self.count(&format!("accepted over {door}"));
                let reference = accepted.reference.clone();
                self.accepted.push(Accepted { reference, adds, day: self.day });
            }
            Outcome::Rejected { reason: Reason::Limit(exceeded), .. } => {
                let (scope, period) = (exceeded.scope.as_str(), exceeded.period.as_str());
                let is_set = self.limits.keys().any(|((of, ..), per)| *of == scope && *per == period);
                assert!(is_set, "{} without such a limit", exceeded.as_str());
                self.count(&format!("limited over {door}"));
            }
            Outcome::Rejected { .. } => {
                let reason = !self.pauses.is_empty() || self.band.is_some() || !self.limits.is_empty();
                assert!(reason, "an order was refused without any control");
                self.count(&format!("rejected over {door}"));
            }
            Outcome::Refused(Refusal::PartnerDisabled) => {
                assert!(self.is_disabled);
                self.count(&format!("disabled over {door}"));
            }
            other => panic!("{other:?}"),
        }
    }

    /// No control in force refuses this order.
    async fn may_accept(&self, pair: (&str, &str), adds: &BTreeMap<Key, u128>, plan: &Plan) {
        assert!(!self.is_disabled, "accepted for a disabled partner");
        for (scope, target) in &self.pauses {
            let stops = match *scope {
                "everything" => true,
                "partner" => *target == self.harness.tenant.partner_id,
                "pair" => *target == format!("{}/{}", pair.0, pair.1),
                "provider" => plan.slices.iter().any(|slice| slice.provider_id == *target),
                "chain" => pair.0 == "USDC",
                _ => false,
            };
            assert!(!stops, "accepted while {scope} {target} is paused");
        }
        if let Some((bps, middle)) = self.band.filter(|_| pair == ("USD", "EUR")) {
            let net = plan.priced.input.get() - plan.priced.protocol_fee.get();
            let (gross, of) = (plan.priced.gross_output.get(), net * middle);
            let is_within = (gross + 2) * 100_000_000 >= of * (10_000 - bps)
                && gross * 100_000_000 <= of * (10_000 + bps);
            assert!(is_within, "{gross} for {net} is outside of {bps} around {middle}");
        }
        let open = self.open().await;
        for ((key, period), limit) in &self.limits {
            let Some(amount) = adds.get(key) else { continue };
            let of = |is: &dyn Fn(&Accepted) -> bool| -> u128 {
                self.accepted.iter().filter(|one| is(one)).filter_map(|one| one.adds.get(key)).sum()
            };
            let before = match *period {
                "order" => 0,
                "day" => of(&|one| one.day == self.day),
                _ => of(&|one| open.contains(&one.reference)),
            };
            assert!(before + amount <= *limit, "{amount} after {before} exceeds {limit} of {key:?} {period}");
        }
    }

    async fn open(&self) -> BTreeSet<String> {
        let rows: Vec<(String,)> =
            self.harness.rows("select reference from execution where terminal_at is null").await;
        rows.into_iter().map(|row| row.0).collect()
    }

    async fn change_limit(&mut self) {
        let partner = self.harness.tenant.partner_id.clone();
        let keys: [(LimitScope, &str, &'static str); 9] = [
            (LimitScope::Everything, "", "USD"),
            (LimitScope::Partner, &partner, "USDC"),
            (LimitScope::Pair, "USD/EUR", "USD"),
            (LimitScope::Provider, "north", "EUR"),
            (LimitScope::Provider, "south", "EUR"),
            (LimitScope::Rail, "offramp", "USDC"),
            (LimitScope::Rail, "payout", "EUR"),
            (LimitScope::Rail, "payout", "USD"),
            (LimitScope::Chain, "anvil", "USDC"),
        ];
        let (scope, target, asset) = keys[self.dice.index(keys.len())];
        let period = Period::ALL[self.dice.index(3)];
        let key = ((scope.as_str(), target.to_owned(), asset), period.as_str());
        let amount = if self.limits.contains_key(&key) && self.dice.index(2) == 0 {
            None
        } else {
            let units = 1 + u128::try_from(self.dice.index(60_000)).unwrap();
            Some(if asset == "USDC" { units * 10_000 } else { units })
        };
        let change = LimitChange {
            scope,
            target: target.to_owned(),
            asset: asset.to_owned(),
            period,
            amount_minor: amount.map(Minor::new),
        };
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let requested =
            limits::request(&mut conn, &self.harness.market.targets(), &change, MAKER).await.unwrap();
        approve(&mut conn, &requested.approval.id, "mika", "seen").await.unwrap();
        match amount {
            Some(amount) => self.limits.insert(key, amount),
            None => self.limits.remove(&key),
        };
    }

    async fn change_pause(&mut self) {
        let partner = self.harness.tenant.partner_id.clone();
        let all = [
            (Scope::Everything, ""),
            (Scope::Partner, &partner),
            (Scope::Pair, "USD/EUR"),
            (Scope::Provider, "north"),
            (Scope::Provider, "south"),
            (Scope::Chain, "anvil"),
            (Scope::Rail, "payout"),
        ];
        let mut conn = self.harness.pool().acquire().await.unwrap();
        // What is paused goes on first, so that most orders meet few pauses.
        if let Some((scope, target)) = self.pauses.pop_first() {
            let scope = Scope::parse(scope).unwrap();
            assert!(pauses::delete(&mut conn, scope, &target, BY).await.unwrap());
        } else {
            let (scope, target) = all[self.dice.index(all.len())];
            assert!(pauses::insert(&mut conn, scope, target, BY).await.unwrap());
            self.pauses.insert((scope.as_str(), target.to_owned()));
        }
    }

    async fn change_band(&mut self) {
        let drawn = [Some((50, 9_200)), Some((15, 9_200)), Some((50, 11_000)), None, None];
        let band = drawn[self.dice.index(drawn.len())];
        if band.is_none() && self.band.is_none() {
            return;
        }
        let change = bands::BandChange {
            input: "USD".into(),
            output: "EUR".into(),
            deviation_bps: band.map(|(bps, _)| u32::try_from(bps).unwrap()),
            middle: band
                .map(|(_, middle): (u128, u128)| format!("{}.{:04}", middle / 10_000, middle % 10_000))
                .map(|text| text.parse().unwrap()),
        };
        let mut conn = self.harness.pool().acquire().await.unwrap();
        if let Ok(requested) = bands::request(&mut conn, &self.harness.market.targets(), &change, MAKER).await
        {
            approve(&mut conn, &requested.approval.id, "mika", "seen").await.unwrap();
            self.band = band;
            *self.counts.entry("band changed".to_owned()).or_default() += 1;
        }
    }

    async fn switch_partner(&mut self) {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let mut tx = conn.begin().await.unwrap();
        let partner = self.harness.tenant.partner_id.as_str();
        assert!(switch_partner(&mut tx, partner, self.is_disabled, "jo", "drawn").await.unwrap());
        tx.commit().await.unwrap();
        self.is_disabled = !self.is_disabled;
    }

    async fn cancel(&mut self) {
        if self.accepted.is_empty() {
            return;
        }
        let reference = self.accepted[self.dice.index(self.accepted.len())].reference.clone();
        self.engine.cancel(&self.harness.tenant, &reference, None).await.unwrap();
    }

    /// The process is gone with all that it remembered; another one takes its place.
    fn crash(&mut self) {
        self.engine = self.harness.another_engine();
        self.chain = FixChain::from_loaded(self.next_out);
    }

    /// Workers do what is due, and stop dead. No rail is called while it is paused.
    async fn settle(&mut self) {
        let paid = "select count(*) from simulated_rail where leg = 'payout'";
        let before = self.harness.count(paid).await;
        self.harness.advance(Duration::from_secs(5)).await;
        let workers = self.harness.start_workers();
        self.harness.wait_for_count("select count(*) from effect where run_at <= now()", 0).await;
        workers.abort();
        let _ = workers.await;
        let is_paused = self.pauses.iter().any(|(scope, _)| matches!(*scope, "everything" | "rail"));
        let after = self.harness.count(paid).await;
        assert!(!is_paused || after == before, "{} payouts were ordered while paused", after - before);
        self.count(if is_paused { "settled while paused" } else { "settled" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_control_is_bypassed_over_either_interface_and_the_books_balance_after_every_move() {
    let seeds = std::env::var("DVP_CONTROL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_u64);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 1..=seeds {
        let mut world = World::begin(seed).await;
        for _ in 0..MOVES {
            world.one().await;
        }
        let moved = "select count(*) from simulated_rail where executed > 1";
        assert_eq!(world.harness.count(moved).await, 0, "seed {seed}: paid twice");
        for (what, count) in world.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{counts:?}");
    assert!(counts.contains_key("band changed"), "{counts:?}");
    for what in
        ["accepted over FIX", "accepted over REST", "limited over FIX", "limited over REST", "settled"]
    {
        assert!(counts.get(what).is_some_and(|count| *count > 3), "{what}: {counts:?}");
    }
}
