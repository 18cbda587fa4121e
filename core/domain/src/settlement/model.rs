//! A model around the real rules, driven by random moves: workers that claim, query, call, stop and continue late;
//! rails that answer days later, twice or never, and pay every call that arrives in time; a chain with a clock, on
//! which anyone cancels from the fill deadline on and refunds from the timelock on, whose facts are repeated and
//! reverted, and which loses locks and commitments; cancellations, deadlines; operators who pause legs, hold orders and
//! decide in a rail's place, and give up conversions that the desk may carry out; a bank that makes payments which it had refused, and returns payments; a partner that takes
//! its money out. Only what was committed survives a worker.
//!
//! After every move all of an order's amount is accounted for. Each order ends once or is a debt that an operator sees,
//! the maker and the beneficiary are never both paid, no debt is forgotten, and the books agree. Assumption: between
//! the time at which a lock is to be settled and its timelock the service runs for a while.

mod beginning;
mod chain;
mod office;
mod outcome;
mod restored;
mod there;
mod worker;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use self::chain::Chain;
use self::office::Office;
use self::restored::Backup;
use self::worker::Worker;
use super::leg::{CallRecord, First, LegKind, RailResponse, Then, Timer};
use super::*;
use crate::ledger::tests::{Books, check_ended, opening, shared};
use crate::plan::OrderKind;
use crate::screening::{Beginning, ScreeningResult, StartDecision};

/// The timings of the real workers, in milliseconds.
const CLAIM: i64 = 30_000;
const RAIL_TIMEOUT: i64 = 10_000;
const IN_FLIGHT: i64 = 12_000;
/// Milliseconds after the lock. `FILL` and `TIMELOCK` are the chain's deadlines; `MARGIN`, `PAY` and `SETTLE` are those
/// by which the service acts.
const FILL: i64 = 400_000;
const MARGIN: i64 = 100_000;
const PAY: i64 = 500_000;
const SETTLE: i64 = 600_000;
const TIMELOCK: i64 = 800_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Start,
    Leg(LegKind),
    Timelock,
}

/// A row of the effects: due work.
#[derive(Debug, Clone)]
struct Due {
    due: i64,
    called: bool,
    called_at: i64,
    claimed_until: i64,
    fence: u64,
    /// What operators have decided about the beginning.
    decided: Option<StartDecision>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Command {
    Create,
    Swap,
    Transfer,
    Fill,
    Settle,
    GiveBack,
    Anchor,
}

/// The contents of the database: all that survives.
#[derive(Clone)]
struct Database {
    state: State,
    version: u64,
    reported: Vec<EventType>,
    books: Books,
    effects: BTreeMap<Task, Due>,
    commands: Vec<Command>,
    /// The lock or swap is part of a signed transaction.
    is_signed: bool,
    facts: Vec<Happened>,
    /// Facts that came too early, until the settlement changes.
    early: Vec<Happened>,
    /// How many of the chain's facts were indexed.
    indexed: usize,
    /// Positions of conversions that the house has taken over.
    taken_over: i128,
}

/// A rail that pays every call that arrives in time.
#[derive(Default)]
struct Rail {
    calls: Vec<i64>,
    arrived: u32,
    executed: u32,
    finished: bool,
    refuses: bool,
    /// The database has forgotten calls that the rail knows by their reference.
    is_ahead: bool,
}

struct World {
    terms: Terms,
    now: i64,
    db: Database,
    rails: BTreeMap<LegKind, Rail>,
    chain: Chain,
    /// How many more commitments are reverted after they were reported.
    fill_losses: u8,
    workers: Vec<Worker>,
    office: Office,
    /// What the screening service says, and what no answer of it means.
    says: ScreeningResult,
    on_error: ScreeningResult,
    backup: Option<Backup>,
}

fn at(now: i64) -> Timestamp {
    Timestamp::from_millis(now)
}

fn done(now: i64) -> RailAnswer {
    RailAnswer::Done(LegDone { provider_reference: "r".into(), occurred_at: at(now) })
}

impl Rail {
    /// A call arrives; too late, it does nothing.
    fn receive(&mut self, now: i64) {
        let not_after = self.calls.remove(0);
        if now <= not_after {
            self.arrived += 1;
            self.executed += u32::from(!self.refuses);
        }
    }

    fn answer(&self, now: i64) -> Option<RailAnswer> {
        let failed = || RailAnswer::Failed { code: "c".into(), message: "m".into(), retryable: false };
        match (self.arrived, self.refuses, self.finished) {
            (0, ..) => None,
            (_, true, _) => Some(failed()),
            (_, false, true) => Some(done(now)),
            (_, false, false) => Some(RailAnswer::InProgress { provider_reference: "r".into() }),
        }
    }
}

impl World {
    /// `at_once`: an order that locks nothing begins with its acceptance.
    fn new((kind, is_across): (OrderKind, bool), cuts: &[u8], refuses: (bool, bool), at_once: bool) -> Self {
        let mut terms = shared(kind, cuts);
        if is_across {
            (terms.input.chain, terms.output.chain) = (Some("home".into()), Some("away".into()));
        }
        terms.request.deadline = terms.accepted_at.plus_millis(60_000);
        let begun =
            if at_once && !terms.locks() { accept_and_begin(&terms).unwrap() } else { accept(&terms) };
        let now = terms.accepted_at.millis();
        let db = Database {
            state: State::Accepted,
            version: 0,
            reported: Vec::new(),
            books: opening(&terms),
            effects: BTreeMap::new(),
            commands: Vec::new(),
            is_signed: false,
            facts: Vec::new(),
            early: Vec::new(),
            indexed: 0,
            taken_over: 0,
        };
        let rail = |refuses| Rail { refuses, ..Rail::default() };
        let rails = [(LegKind::Offramp, rail(refuses.0)), (LegKind::Payout, rail(refuses.1))].into();
        let (chain, office) = (Chain::default(), Office::default());
        let (says, on_error) = (ScreeningResult::Pass, ScreeningResult::Hold);
        let (fill_losses, workers, backup) = (0, Vec::new(), None);
        let mut world =
            Self { terms, now, db, rails, chain, fill_losses, workers, office, says, on_error, backup };
        world.write(begun);
        world
    }

    fn set(&mut self, task: Task, due: i64) {
        let row = Due { due, called: false, called_at: 0, claimed_until: 0, fence: 0, decided: None };
        assert!(self.db.effects.insert(task, row).is_none(), "{task:?} is due twice");
    }

    /// One transaction: the state, its events, its effects.
    fn write(&mut self, step: Step) {
        self.db.books.carry_out(&step);
        for Emitted { kind, state, .. } in &step.events {
            assert_eq!(kind.is_terminal(), state.is_terminal(), "{kind:?}");
        }
        self.db.reported.extend(step.events.iter().map(|reported| reported.kind));
        for effect in step.effects {
            match effect {
                Effect::StartAt(at) => self.set(Task::Start, at.millis()),
                Effect::CallOfframp => self.set(Task::Leg(LegKind::Offramp), self.now),
                Effect::CallPayout => self.set(Task::Leg(LegKind::Payout), self.now),
                Effect::CreateOnChain => self.db.commands.push(Command::Create),
                Effect::SwapOnChain => self.db.commands.push(Command::Swap),
                Effect::TransferOnChain => self.db.commands.push(Command::Transfer),
                Effect::SettleBy(at) => self.set(Task::Timelock, at.millis()),
                Effect::Fill => self.db.commands.push(Command::Fill),
                Effect::WithdrawLock => {
                    self.db.commands.retain(|command| !matches!(command, Command::Create | Command::Swap));
                }
                Effect::WithdrawFill => self.db.commands.retain(|command| *command != Command::Fill),
                Effect::Settle => self.db.commands.push(Command::Settle),
                Effect::GiveBack => self.db.commands.push(Command::GiveBack),
                Effect::IssueReceipt => self.db.commands.push(Command::Anchor),
                Effect::PublishPermit => {}
                Effect::DropTimers => drop(self.db.effects.remove(&Task::Start)),
                Effect::Rest | Effect::EndRest | Effect::BringForward(_) => {
                    unreachable!("the model's order is accepted: {effect:?}")
                }
                Effect::Post(_) => {}
            }
        }
        let (from, to) = (self.db.state.name(), step.next.name());
        let found_paid = from == "payout_failed" && matches!(to, "releasing" | "owing" | "completed");
        let stays = from == to || (from, to) == ("completed", "reversed") || found_paid;
        assert!(!self.db.state.is_terminal() || stays, "{from} became {to}");
        self.db.state = step.next;
        self.db.version += 1;
        self.db.facts.splice(0..0, std::mem::take(&mut self.db.early));
    }

    fn cancel(&mut self) {
        // What is signed may be included at any time.
        if self.db.state == State::Locking && (self.db.is_signed || self.chain.is_signed) {
            return;
        }
        if let Ok(step) = self.db.state.clone().step(&self.terms, Happened::CancelRequested) {
            self.write(step);
        }
    }

    /// Time passes. Work that must be settled before the timelock is: the service does not stand still for all that
    /// time.
    fn pass(&mut self, millis: i64) {
        let target = self.now + millis;
        if let Some(created) = self.chain.created {
            // Late enough that a worker may have stopped with a claim, which lasts a while.
            let last = created + TIMELOCK - 2 * CLAIM;
            let begun =
                matches!(self.db.state, State::Paying { .. } | State::Owing { .. } | State::Releasing { .. });
            if (begun || self.office.is_booked) && (self.now..target).contains(&last) {
                self.now = self.now.max(created + SETTLE);
                for round in 0..600 {
                    self.work_steadily(round, 100);
                    if self.chain.settled || self.chain.gone || self.now >= created + TIMELOCK - 1_000 {
                        break;
                    }
                }
            }
        }
        self.now = self.now.max(target);
    }

    /// The oldest fact becomes deep enough, and is reported once or twice.
    fn index(&mut self, twice: bool) {
        if self.chain.facts.is_empty() {
            return;
        }
        let fact = self.chain.facts.remove(0);
        self.chain.told.push(fact.clone());
        self.db.indexed += 1;
        if twice {
            self.db.facts.push(fact.clone());
        }
        self.db.facts.push(fact);
    }

    /// A block is reverted before its fact was consumed; the same transaction is included again later.
    fn take_back(&mut self) {
        if let Some(fact) = self.db.facts.pop() {
            self.chain.facts.insert(0, fact);
            self.db.indexed = self.db.indexed.saturating_sub(1);
            self.chain.told.truncate(self.db.indexed);
        }
    }

    /// Facts of one settlement are applied in order.
    fn take_next_fact(&mut self) {
        if self.workers.iter().all(|worker| worker.fact.is_none()) {
            self.take_fact(0);
        }
    }

    fn one(&mut self, (what, pick): (u8, u8)) {
        let n = usize::from(pick);
        // So that many histories commit before the fill deadline, time mostly passes in seconds.
        match what % 48 {
            0 | 1 => self.pass(i64::from(pick) * 40),
            2 => self.pass(i64::from(pick) * if pick < 250 { 60 } else { 2_000 }),
            3..10 => self.claim(n),
            10..24 => self.advance(n / 4, pick.wrapping_mul(67)),
            24 if pick < 80 => drop(self.workers.pop()),
            25 if pick < 24 => self.workers.clear(),
            26..29 => self
                .rails
                .values_mut()
                .filter(|rail| !rail.calls.is_empty())
                .for_each(|rail| if pick < 40 { rail.calls.truncate(0) } else { rail.receive(self.now) }),
            29 | 30 => self.rails.values_mut().for_each(|rail| rail.finished |= pick > 40),
            31..34 => self.relay(n, pick % 16 == 0),
            34..37 => self.index(pick % 4 == 0),
            37..40 => self.take_next_fact(),
            40 if pick < 6 || pick < 30 && self.db.state == State::Locking => self.cancel(),
            40 if pick < 45 && self.db.state == State::Locking => self.sign(0),
            40 if pick < 60 => self.take_back(),
            40 if pick < 100 => self.lose_lock(),
            40..42 => self.find_lock(),
            42 => self.go_on_there(pick),
            43 => {
                self.anyone();
                self.go_on_there(pick);
            }
            other => self.office(other.saturating_sub(44), pick),
        }
        self.watch_booked();
        self.account_for();
    }

    fn is_quiet(&self) -> bool {
        let state = &self.db.state;
        // An operator is paged until the debt is paid or returned.
        let owed = matches!(state, State::Owing { settle_tx: Some(_), failure: Some(_), .. });
        (state.is_terminal() || owed)
            && self.office.is_quiet(state)
            && self.workers.is_empty()
            && self.db.effects.is_empty()
            && self.db.commands.is_empty()
            && self.db.facts.is_empty()
            && self.db.early.is_empty()
            && self.chain.facts.is_empty()
            && (self.chain.created.is_none() || self.chain.settled || self.chain.gone)
    }

    /// Nothing fails for a while, and operators decide.
    fn work_well(&mut self, round: usize, millis: i64) {
        self.clear_office();
        self.work_steadily(round, millis);
    }

    /// Nothing fails for a while.
    fn work_steadily(&mut self, round: usize, millis: i64) {
        self.now += millis;
        self.office.paused = [false; 2];
        self.watch_booked();
        self.find_lock();
        self.find_fill();
        self.lose_fill();
        self.claim(round);
        self.advance(round, 255);
        self.relay(round, false);
        self.index(false);
        self.take_next_fact();
    }

    /// The bank takes longer than the timelock, and nothing else fails.
    fn outlast_the_timelock(&mut self) {
        for round in 0.. {
            let now = self.now;
            self.rails.values_mut().for_each(|rail| {
                while !rail.calls.is_empty() {
                    rail.receive(now);
                }
            });
            self.rails.entry(LegKind::Offramp).or_default().finished = true;
            self.work_well(round, 3_000);
            let over = self.chain.created.is_some_and(|created| self.now > created + TIMELOCK + CLAIM);
            if over || self.is_quiet() || round > 1_000 {
                return;
            }
            self.anyone();
        }
    }

    /// From here on nothing fails, and every order ends. Other callers of the contract are needed for a committed lock
    /// only.
    fn settle_down(&mut self) {
        for round in 0.. {
            assert!(
                round < 5_000,
                "stuck as {:?}: {:?} {:?} {:?}",
                self.db.state,
                self.db.commands,
                self.db.effects,
                self.chain
            );
            if self.is_quiet() {
                return;
            }
            let now = self.now;
            for rail in self.rails.values_mut() {
                rail.finished = true;
                while !rail.calls.is_empty() {
                    rail.receive(now);
                }
            }
            self.recover_there();
            self.work_well(round, 700);
            if self.chain.filled {
                self.anyone();
            }
        }
    }
}

/// The number of histories, and the percentage of them in which random moves alone must reach the commitment.
const HISTORIES: u32 = 2_400;
const COMMITTED_PERCENT_MIN: u32 = 33;

/// Only tokens for money, and for tokens of another chain (`true`), are committed before the payment.
fn any_kind() -> impl Strategy<Value = (OrderKind, bool)> {
    prop_oneof![
        12 => Just((OrderKind::TokenToFiat, false)),
        6 => Just((OrderKind::TokenToToken, true)),
        1 => Just((OrderKind::TokenToToken, false)),
        1 => Just((OrderKind::FiatToFiat, false)),
        1 => Just((OrderKind::FiatToToken, false)),
    ]
}

/// What no answer of the screening service means.
fn any_result() -> impl Strategy<Value = ScreeningResult> {
    prop_oneof![
        6 => Just(ScreeningResult::Hold),
        1 => Just(ScreeningResult::Fail),
        6 => Just(ScreeningResult::Pass),
    ]
}

#[test]
fn every_interleaving_ends_once_pays_one_side_and_balances_the_books() {
    let counts = RefCell::new(BTreeMap::<&str, u32>::new());
    let config = ProptestConfig { source_file: Some(file!()), ..ProptestConfig::with_cases(HISTORIES) };
    let histories = (
        any_kind(),
        prop::collection::vec(any::<u8>(), 0..3),
        (prop::bool::weighted(0.05), prop::bool::weighted(0.2)),
        any::<bool>(),
        prop::bool::weighted(0.25),
        0..3_u8,
        any_result(),
        prop::collection::vec(any::<(u8, u8)>(), 100..700),
    );
    let checked = TestRunner::new(config).run(
        &histories,
        |(kind, cuts, refuses, at_once, takes_days, fill_losses, on_error, history)| {
            let mut world = World::new(kind, &cuts, refuses, at_once);
            (world.fill_losses, world.on_error) = (fill_losses, on_error);
            for choice in history {
                world.one(choice);
            }
            let is_committed = world.chain.filled;
            if takes_days {
                world.outlast_the_timelock();
            }
            world.settle_down();
            world.check();
            let (state, office) = (&world.db.state, &world.office);
            let is_kept = matches!(state, State::ConversionFailed { desk: DeskOutcome::Executed(_), .. });
            for (what, is) in [
                ("committed", is_committed),
                (REVERSED, matches!(state, State::Completed { reversal: Some(_), .. })),
                (DECIDED, !office.verdicts.is_empty()),
                (FOUND, office.was_found),
                ("conversion given up", office.has_given_up),
                ("conversion given up and carried out", office.has_given_up && is_kept),
                ("held", office.was_held),
                ("released", office.released),
                ("refused by operators", office.refused && matches!(state, State::Failed { .. })),
                ("expired while held", office.was_held && matches!(state, State::Expired)),
            ] {
                *counts.borrow_mut().entry(what).or_default() += u32::from(is);
            }
            Ok(())
        },
    );
    if let Err(broken) = checked {
        panic!("{broken}");
    }
    let counts = counts.into_inner();
    println!("{counts:?} of {HISTORIES}");
    for (what, count) in &counts {
        let least = if [REVERSED, DECIDED, FOUND].contains(what) { 20 } else { 5 };
        assert!(*count > least, "{what}: {counts:?}");
    }
    assert!(counts["committed"] * 100 >= HISTORIES * COMMITTED_PERCENT_MIN, "{counts:?}");
}

const REVERSED: &str = "reversed";
const DECIDED: &str = "decided";
const FOUND: &str = "made after it had failed";
