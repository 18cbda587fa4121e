//! The world around one order: its lock and the chain of it, its conversion, and the people who sign. The payout is made
//! by a [bank](super::bank), or on [another chain](super::across).

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use stateright::Property;

use super::super::leg::{CallRecord, First, LegKind, RailResponse, Then};
use super::super::{Deadlines, Effect, Happened, LegDone, Lock, RailAnswer, State};
use super::Protocol;
use crate::terms::Terms;
use crate::time::Timestamp;

/// The positions of the chain's clock that matter to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Clock {
    /// The order may be locked.
    LockBy,
    TooLateToBegin,
    /// Nothing is filled any more, and anyone may cancel an unfilled lock.
    FillDeadline,
    /// No payout begins any more.
    TooLateToPay,
    /// A payout without a final answer is settled.
    TimelockNear,
    /// Nothing is released any more, and anyone may refund.
    Timelock,
}

impl Clock {
    const fn next(self) -> Option<Self> {
        match self {
            Self::LockBy => Some(Self::TooLateToBegin),
            Self::TooLateToBegin => Some(Self::FillDeadline),
            Self::FillDeadline => Some(Self::TooLateToPay),
            Self::TooLateToPay => Some(Self::TimelockNear),
            Self::TimelockNear => Some(Self::Timelock),
            Self::Timelock => None,
        }
    }

    /// A moment at this position.
    fn time(self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + 1_000 * self as i64)
    }
}

/// The commands to the relayer, and to two operators together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Command {
    Create,
    Fill,
    Settle,
    GiveBack,
    ReturnFilled,
}

/// The escrow's state of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    None,
    Locked,
    Filled,
    Settled,
    /// The maker has the funds back.
    Returned,
}

/// The reports of the indexer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Fact {
    Locked,
    LockFailed,
    LockLost,
    Filled,
    FillFailed,
    Settled,
    Refunded,
}

impl Fact {
    fn happened(self, at: Timestamp) -> Happened {
        let (code, message, tx_hash) = ("c".to_owned(), "m".to_owned(), "0xt".to_owned());
        match self {
            Fact::Locked => Happened::Locked { lock: lock(), at },
            Fact::LockFailed => Happened::LockFailed { code, message, at },
            Fact::LockLost => Happened::LockLost { at },
            Fact::Filled => Happened::Filled { at },
            Fact::FillFailed => Happened::FillFailed { code, message, at },
            Fact::Settled => Happened::Settled { tx_hash, at },
            Fact::Refunded => Happened::Refunded { tx_hash, at },
        }
    }
}

fn lock() -> Lock {
    let deadlines = Deadlines {
        begin_before: Clock::TooLateToBegin.time(),
        pay_before: Clock::TooLateToPay.time(),
        overdue_at: Clock::TimelockNear.time(),
        settle_at: Clock::TimelockNear.time(),
    };
    Lock::new("0xl".into(), Clock::Timelock.time(), deadlines)
}

/// Applies the contract's rules to a transaction.
fn mined(command: Command, slot: Slot, clock: Clock) -> Option<(Slot, Fact)> {
    match (command, slot) {
        (Command::Create, Slot::None) if clock == Clock::LockBy => Some((Slot::Locked, Fact::Locked)),
        (Command::Fill, Slot::Locked) if clock < Clock::FillDeadline => Some((Slot::Filled, Fact::Filled)),
        (Command::Settle, Slot::Filled) if clock < Clock::Timelock => Some((Slot::Settled, Fact::Settled)),
        (Command::GiveBack, Slot::Locked) | (Command::ReturnFilled, Slot::Filled) => {
            Some((Slot::Returned, Fact::Refunded))
        }
        _ => None,
    }
}

/// Takes the last transaction back. A reported commitment is past its payout gate, and is not reverted.
fn reverted(slot: Slot, facts: &mut Vec<Fact>) -> Option<Slot> {
    let unreported = |fact| facts.iter().rposition(|one| *one == fact);
    match slot {
        Slot::Locked => {
            match unreported(Fact::Locked) {
                Some(at) => drop(facts.remove(at)),
                None => facts.push(Fact::LockLost),
            }
            Some(Slot::None)
        }
        Slot::Filled => {
            let at = unreported(Fact::Filled)?;
            facts.remove(at);
            Some(Slot::Locked)
        }
        Slot::None | Slot::Settled | Slot::Returned => None,
    }
}

/// A mistake that the checker must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Defect {
    /// The timelock leaves no time for a worker's turn and a transaction.
    NoMargin,
    /// The payout begins before the commitment is on the chain.
    NoCommitment,
    /// An order whose payout has failed has ended, whatever the bank says afterwards, and what the bank takes back is not
    /// heard.
    EndsUnpaid,
    /// The same, and operators may record as failed what the bank has and has not refused.
    FailsSent,
    /// The relayer reports that a payment can never be made by a block that is not final.
    ProofAtHead,
    /// A payment is reported before it is final.
    GateAtHead,
    /// Nothing settles the lock before its timelock.
    NoTimer,
    /// The other contract pays at any time.
    NoLastSecond,
}

/// How much of the world is explored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Bounds {
    pub(super) reorgs: u8,
    pub(super) restores: u8,
    /// How often the bank changes its word.
    pub(super) changes: u8,
    pub(super) defect: Option<Defect>,
}

/// `A`: what happens to the payout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action<A> {
    Tick,
    /// The relayer's transaction is in a block.
    Mined(Command),
    /// The relayer reports that a command can never succeed.
    GivenUp(Command),
    /// The oldest fact is applied, or the last one again.
    Reported,
    ReportedAgain,
    /// A reorganization reverts what no payout gate has passed.
    Reorganized,
    ConversionBegins,
    ConversionEnds {
        well: bool,
    },
    /// Operators fail a conversion that the desk has not answered.
    ConversionGivenUp,
    /// An operator signs for the return of the funds once the beneficiary can no longer be paid; another one signs
    /// whenever requested.
    CarefulOperatorSigns,
    CarelessOperatorSigns,
    DebtGivenBack,
    /// The user empties the wallet, or fills it again.
    UserMovesFunds,
    UserCancels,
    AnybodyRefunds,
    Payout(A),
}

impl<A: Copy> Action<A> {
    const OF_LOCK: [Self; 21] = [
        Self::Tick,
        Self::Mined(Command::Create),
        Self::Mined(Command::Fill),
        Self::Mined(Command::Settle),
        Self::Mined(Command::GiveBack),
        Self::Mined(Command::ReturnFilled),
        Self::GivenUp(Command::Create),
        Self::GivenUp(Command::Fill),
        Self::Reported,
        Self::ReportedAgain,
        Self::Reorganized,
        Self::ConversionBegins,
        Self::ConversionEnds { well: true },
        Self::ConversionEnds { well: false },
        Self::ConversionGivenUp,
        Self::CarefulOperatorSigns,
        Self::CarelessOperatorSigns,
        Self::DebtGivenBack,
        Self::UserMovesFunds,
        Self::UserCancels,
        Self::AnybodyRefunds,
    ];
}

/// Who makes the payout, and what is known of it.
pub(super) trait Payout: Clone + Debug + Eq + Hash + Send + Sync + Sized + 'static {
    type Action: Copy + Debug + PartialEq + Send + Sync + 'static;
    const ACTIONS: &'static [Self::Action];

    fn new(bounds: Bounds) -> Self;
    fn terms() -> &'static Terms;
    fn properties() -> Vec<Property<Protocol<Self>>>;
    /// `None`: the action is not possible.
    fn act(world: &mut World<Self>, action: Self::Action) -> Option<()>;
    /// A step of the order was written.
    fn stepped(world: &mut World<Self>, effects: &[Effect]);
    /// The order is about to be settled, for a payout that may have been made.
    fn is_settling(world: &World<Self>) -> bool;
    fn is_paid(&self) -> bool;

    /// The payment was refused, or stopped before it was made.
    fn is_refused(&self) -> bool {
        false
    }

    /// What was heard says that the payment is made.
    fn is_booked(&self) -> bool {
        false
    }

    /// The maker has the input again.
    fn returned(&mut self) {}

    fn is_paid_twice(&self) -> bool {
        false
    }

    /// The payer changed its word, and the service could not know it when it did its part.
    fn is_the_payers(&self) -> bool {
        false
    }

    /// An operator is paged until what the payer said is put right.
    fn is_contradicted(&self) -> bool {
        false
    }
}

/// The settlement of the code that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored(State);

impl Hash for Stored {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        serde_json::to_string(&self.0).unwrap_or_default().hash(hasher);
    }
}

impl Deref for Stored {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World<P> {
    pub(super) clock: Clock,
    pub(super) state: Stored,
    pub(super) payout: P,
    /// The conversion was called.
    is_converting: bool,
    /// The desk has: its answer is the moment.
    pub(super) has_converted: bool,
    is_wallet_empty: bool,
    pub(super) slot: Slot,
    pub(super) commands: BTreeSet<Command>,
    /// Not applied yet, oldest first.
    facts: Vec<Fact>,
    last_reported: Option<Fact>,
    pub(super) left: Bounds,
    signatures: [bool; 2],
    pub(super) was_filled: bool,
    pub(super) was_owing: bool,
    pub(super) cancelled_by_user: bool,
    pub(super) returned_by_operators: bool,
    pub(super) debt_returned: bool,
}

impl<P: Payout> World<P> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            clock: Clock::LockBy,
            state: Stored(State::Locking),
            payout: P::new(bounds),
            is_converting: false,
            has_converted: false,
            is_wallet_empty: false,
            slot: Slot::None,
            commands: BTreeSet::from([Command::Create]),
            facts: Vec::new(),
            last_reported: None,
            left: bounds,
            signatures: [false; 2],
            was_filled: false,
            was_owing: false,
            cancelled_by_user: false,
            returned_by_operators: false,
            debt_returned: false,
        }
    }

    /// The possible actions that change something, with their results.
    pub(super) fn possible(&self) -> impl Iterator<Item = (Action<P::Action>, Self)> + '_ {
        let payout = P::ACTIONS.iter().map(|action| Action::Payout(*action));
        Action::OF_LOCK.into_iter().chain(payout).filter_map(|action| Some((action, self.after(action)?)))
    }

    /// The world after an action. `None`: it is not possible, or changes nothing.
    pub(super) fn after(&self, action: Action<P::Action>) -> Option<Self> {
        let mut world = self.clone();
        world.act(action)?;
        world.was_owing |= world.is_owing();
        (world != *self).then_some(world)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.time()
    }

    pub(super) fn has(&self, defect: Defect) -> bool {
        self.left.defect == Some(defect)
    }

    /// An order whose payout has failed has ended.
    pub(super) fn ends_unpaid(&self) -> bool {
        self.has(Defect::EndsUnpaid) || self.has(Defect::FailsSent)
    }

    /// The books have a debt, and an operator is paged.
    pub(super) fn is_owing(&self) -> bool {
        matches!(*self.state, State::Owing { .. })
    }

    /// The maker has the input again, and the recipient has the output.
    pub(super) fn maker_has_both(&self) -> bool {
        self.payout.is_paid() && (self.slot == Slot::Returned || self.debt_returned)
    }

    /// No action remains: what was owed is paid, or is a debt in the books and pages an operator. What the payer has done
    /// to both sides pages, too.
    pub(super) fn is_settled_up(&self) -> bool {
        let is_excused = self.payout.is_the_payers() && self.payout.is_contradicted();
        match self.slot {
            // Paid again, or given back, and then the bank took its return back.
            _ if self.maker_has_both() || self.payout.is_paid_twice() => is_excused,
            Slot::Settled if self.payout.is_paid() => matches!(self.state.name(), "completed" | "reversed"),
            _ if self.payout.is_paid() => is_excused,
            Slot::None | Slot::Returned => true,
            Slot::Settled => self.is_owing() || self.debt_returned,
            Slot::Locked | Slot::Filled => false,
        }
    }

    pub(super) fn is_end(&self, name: &str, slot: Slot) -> bool {
        self.state.name() == name && self.slot == slot
    }

    fn act(&mut self, action: Action<P::Action>) -> Option<()> {
        match action {
            Action::Tick => self.tick(),
            Action::Mined(command) => self.mine(command),
            Action::GivenUp(command) => self.give_up(command),
            Action::Reported => self.tell(),
            Action::ReportedAgain => self.last_reported.and_then(|fact| self.step(fact.happened(self.now()))),
            Action::Reorganized => self.reorganize(),
            Action::ConversionBegins | Action::ConversionEnds { .. } | Action::ConversionGivenUp => {
                self.convert(action)
            }
            Action::CarefulOperatorSigns
            | Action::CarelessOperatorSigns
            | Action::DebtGivenBack
            | Action::UserMovesFunds
            | Action::UserCancels
            | Action::AnybodyRefunds => self.people(action),
            Action::Payout(action) => P::act(self, action),
        }
    }

    /// Between the time to settle and the timelock a worker has a turn and the relayer a transaction.
    fn tick(&mut self) -> Option<()> {
        let next = self.clock.next()?;
        let is_last = next == Clock::Timelock && self.slot == Slot::Filled && !self.has(Defect::NoMargin);
        if is_last && (self.commands.contains(&Command::Settle) || P::is_settling(self)) {
            return None;
        }
        self.clock = next;
        Some(())
    }

    fn mine(&mut self, command: Command) -> Option<()> {
        let is_requested = self.commands.contains(&command);
        if command == Command::Create && self.is_wallet_empty {
            return None;
        }
        let (slot, fact) = mined(command, self.slot, self.clock)?;
        self.was_filled |= slot == Slot::Filled;
        self.returned_by_operators |= command == Command::ReturnFilled;
        self.happens(slot, fact);
        is_requested.then_some(())
    }

    fn happens(&mut self, slot: Slot, fact: Fact) {
        if slot == Slot::Returned {
            self.payout.returned();
        }
        self.slot = slot;
        self.facts.push(fact);
    }

    /// Gives up only what the contract will never accept any more.
    fn give_up(&mut self, command: Command) -> Option<()> {
        let fact = match command {
            Command::Create if self.slot == Slot::None && self.clock > Clock::LockBy => Fact::LockFailed,
            Command::Fill if self.slot == Slot::Returned || self.clock >= Clock::FillDeadline => {
                Fact::FillFailed
            }
            Command::Create | Command::Fill | Command::Settle | Command::GiveBack | Command::ReturnFilled => {
                return None;
            }
        };
        let is_filled = matches!(self.slot, Slot::Filled | Slot::Settled);
        if command == Command::Fill && is_filled || !self.commands.remove(&command) {
            return None;
        }
        self.facts.push(fact);
        Some(())
    }

    fn tell(&mut self) -> Option<()> {
        let fact = *self.facts.first()?;
        self.facts.remove(0);
        self.last_reported = Some(fact);
        // A fact that does not apply is recorded and consumed.
        let _ = self.step(fact.happened(self.now()));
        Some(())
    }

    pub(super) fn step(&mut self, happened: Happened) -> Option<()> {
        let reopens = matches!(happened, Happened::FoundPaid { .. } | Happened::TimelockNear);
        if reopens && self.ends_unpaid() && self.state.name() == "payout_failed" {
            return None;
        }
        let step = self.state.0.clone().step(P::terms(), happened).ok()?;
        self.state = Stored(step.next);
        // What is withdrawn stays possible: its transaction may be on its way.
        for (effect, command) in [
            (Effect::Fill, Command::Fill),
            (Effect::Settle, Command::Settle),
            (Effect::GiveBack, Command::GiveBack),
        ] {
            if step.effects.contains(&effect) {
                self.commands.insert(command);
            }
        }
        P::stepped(self, &step.effects);
        if self.has(Defect::NoCommitment) && matches!(*self.state, State::Committing { .. }) {
            return self.step(Happened::Filled { at: self.now() });
        }
        Some(())
    }

    fn reorganize(&mut self) -> Option<()> {
        self.left.reorgs = self.left.reorgs.checked_sub(1)?;
        self.slot = reverted(self.slot, &mut self.facts)?;
        Some(())
    }

    fn convert(&mut self, action: Action<P::Action>) -> Option<()> {
        let claim = CallRecord { called_before: self.is_converting, in_flight: false };
        let at = self.now();
        let answer = match (action, self.state.first(LegKind::Offramp, claim, at)) {
            (Action::ConversionBegins, First::Call) => {
                self.is_converting = true;
                return Some(());
            }
            // The desk has never seen it.
            (Action::ConversionBegins, First::Ask) if !self.is_converting => {
                return match self.state.requested(claim, RailResponse::NeverSeen, at) {
                    Then::Withhold(why) => self.step(Happened::Withheld { why, at }),
                    Then::Take(_) | Then::Call | Then::Settle | Then::Later { .. } => None,
                };
            }
            (Action::ConversionEnds { well }, First::Ask) if self.is_converting => {
                self.has_converted = well;
                if well { RailAnswer::Done(done()) } else { refused() }
            }
            (Action::ConversionGivenUp, First::Call | First::Ask) => {
                let (code, message) = ("c".to_owned(), "m".to_owned());
                return self.step(Happened::ConversionGivenUp { code, message, at });
            }
            _ => return None,
        };
        self.step(Happened::Offramp { answer, at })
    }

    fn people(&mut self, action: Action<P::Action>) -> Option<()> {
        match action {
            Action::CarefulOperatorSigns => {
                let is_stopped = self.state.name() == "payout_failed" || self.payout.is_refused();
                self.signatures[0] |= is_stopped && !self.payout.is_booked();
            }
            Action::CarelessOperatorSigns => self.signatures[1] = true,
            Action::DebtGivenBack if !self.payout.is_booked() => {
                self.step(Happened::DebtReturned { done: done(), at: self.now() })?;
                self.debt_returned = true;
            }
            // It matters before the lock only.
            Action::UserMovesFunds if self.slot == Slot::None && self.clock == Clock::LockBy => {
                self.is_wallet_empty ^= true;
            }
            Action::UserCancels if self.slot == Slot::Locked && self.clock >= Clock::FillDeadline => {
                self.cancelled_by_user = true;
                self.happens(Slot::Returned, Fact::Refunded);
            }
            Action::AnybodyRefunds
                if matches!(self.slot, Slot::Locked | Slot::Filled) && self.clock == Clock::Timelock =>
            {
                self.happens(Slot::Returned, Fact::Refunded);
            }
            _ => return None,
        }
        if self.signatures == [true; 2] && !self.payout.is_booked() {
            self.commands.insert(Command::ReturnFilled);
        }
        Some(())
    }
}

/// The same at every moment, so that worlds which differ in nothing else are equal.
pub(super) fn done() -> LegDone {
    LegDone { provider_reference: "r".to_owned(), occurred_at: Clock::LockBy.time() }
}

pub(super) fn refused() -> RailAnswer {
    RailAnswer::Failed { code: "c".to_owned(), message: "m".to_owned(), retryable: false }
}
