//! The same for an order of a token for a token of another chain: the lock and its clock on the one chain, the payment
//! with its last second on the other.
//!
//! The other chain has a clock of its own, which lags as far as it likes: it stands still at any moment and for as long
//! as it likes, because nothing makes its actions happen. A reorganization there takes back what is not final, and its
//! next block may be earlier than the one that was taken back. A payment that was sent stays on its way until it is in a
//! block, whatever the service has decided meanwhile.
//!
//! Assumed, and enforced here: what is final is not taken back, and a block is not earlier than the one before it.

use std::sync::LazyLock;

use stateright::{Checker as _, Property};

use super::super::leg::Timer;
use super::super::tests::across;
use super::super::{Effect, Happened, RailAnswer};
use super::world::{Bounds, Defect, Payout, Slot, World, done, refused};
use super::{NEVER_BOTH, Protocol, reorgs};
use crate::terms::Terms;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Payment {
    None,
    /// A signed transaction is on its way.
    Sent,
    Included,
    Final,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Report {
    Paid,
    NeverPaid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    Rings,
    Sent,
    Included,
    /// The last block is after the payment's last second.
    PastLastSecond,
    BecomesFinal,
    Reorganized,
    /// The relayer learns that the payment can never be made.
    Judged,
    Reported,
    ReportedAgain,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Away {
    has_timer: bool,
    /// The command that pays is open.
    is_requested: bool,
    payment: Payment,
    /// The last block, and the final one, are after the payment's last second.
    is_past: bool,
    is_past_for_good: bool,
    reports: Vec<Report>,
    last_report: Option<Report>,
}

const NEVER_NEITHER: &str = "the maker has the output, or a debt that pages, for a lock that was settled";

impl Payout for Away {
    type Action = There;

    const ACTIONS: &'static [There] = &[
        There::Rings,
        There::Sent,
        There::Included,
        There::PastLastSecond,
        There::BecomesFinal,
        There::Reorganized,
        There::Judged,
        There::Reported,
        There::ReportedAgain,
    ];

    fn new(_: Bounds) -> Self {
        Self {
            has_timer: false,
            is_requested: false,
            payment: Payment::None,
            is_past: false,
            is_past_for_good: false,
            reports: Vec::new(),
            last_report: None,
        }
    }

    fn terms() -> &'static Terms {
        static TERMS: LazyLock<Terms> = LazyLock::new(across);
        &TERMS
    }

    fn properties() -> Vec<Property<Protocol<Self>>> {
        vec![
            Property::always(NEVER_NEITHER, |_, world: &World<Self>| !world.maker_has_neither()),
            Property::always("no payment is sent before the chain is committed", |_, world: &World<Self>| {
                world.payout.payment == Payment::None || world.was_filled
            }),
            Property::sometimes("never paid, given back", |_, world: &World<Self>| {
                world.is_end("payout_failed", Slot::Returned) && world.was_filled
            }),
            Property::sometimes(
                "a debt that pages while the other chain stands still",
                |_, world: &World<Self>| {
                    let is_included = world.payout.payment == Payment::Included;
                    world.is_owing() && world.slot == Slot::Settled && is_included
                },
            ),
        ]
    }

    fn act(world: &mut World<Self>, action: There) -> Option<()> {
        world.there(action)
    }

    fn stepped(world: &mut World<Self>, effects: &[Effect]) {
        let is_foreign = |effect: &Effect| matches!(effect, Effect::SwapOnChain | Effect::CallPayout);
        assert!(!effects.iter().any(is_foreign), "{effects:?} of an order of two chains");
        if effects.contains(&Effect::TransferOnChain) {
            let payout = &mut world.payout;
            assert!(!payout.is_requested && payout.payment == Payment::None, "requested twice");
            payout.is_requested = true;
        }
        if effects.iter().any(|effect| matches!(effect, Effect::SettleBy(_))) {
            world.payout.has_timer = !world.has(Defect::NoTimer);
        }
    }

    fn is_settling(world: &World<Self>) -> bool {
        world.payout.has_timer && world.state.timer(world.now(), false) == Timer::Settle
    }

    fn is_paid(&self) -> bool {
        self.payment == Payment::Final
    }
}

impl World<Away> {
    /// The service has the input, and the maker neither the output nor a debt in the books that pages.
    fn maker_has_neither(&self) -> bool {
        self.slot == Slot::Settled && !self.payout.is_paid() && !self.is_owing() && !self.debt_returned
    }

    fn there(&mut self, action: There) -> Option<()> {
        let (proof_at_head, gate_at_head) = (self.has(Defect::ProofAtHead), self.has(Defect::GateAtHead));
        let is_in_time = !self.payout.is_past || self.has(Defect::NoLastSecond);
        let payout = &mut self.payout;
        match action {
            There::Rings => return self.ring(),
            There::Sent if payout.is_requested && payout.payment == Payment::None => {
                payout.payment = Payment::Sent;
            }
            There::Included if payout.payment == Payment::Sent && is_in_time => {
                payout.payment = Payment::Included;
                if gate_at_head {
                    payout.report(Report::Paid);
                }
            }
            There::PastLastSecond => payout.is_past = true,
            There::BecomesFinal => {
                payout.is_past_for_good = payout.is_past;
                if payout.payment == Payment::Included {
                    payout.payment = Payment::Final;
                    if !gate_at_head {
                        payout.report(Report::Paid);
                    }
                }
            }
            There::Reorganized => {
                self.left.reorgs = self.left.reorgs.checked_sub(1)?;
                payout.is_past = payout.is_past_for_good;
                if payout.payment == Payment::Included {
                    payout.payment = Payment::Sent;
                    payout.is_requested = true;
                    payout.reports.retain(|report| *report != Report::Paid);
                }
            }
            There::Judged => {
                let is_proved = payout.is_past_for_good || proof_at_head && payout.is_past;
                let is_unpaid = matches!(payout.payment, Payment::None | Payment::Sent);
                if !(payout.is_requested && is_proved && is_unpaid) {
                    return None;
                }
                payout.report(Report::NeverPaid);
            }
            There::Reported => {
                let report = *payout.reports.first()?;
                payout.reports.remove(0);
                payout.last_report = Some(report);
                // One that does not apply is consumed.
                let _ = self.take_report(report);
            }
            There::ReportedAgain => {
                let report = payout.last_report?;
                return self.take_report(report);
            }
            There::Sent | There::Included => return None,
        }
        Some(())
    }

    fn ring(&mut self) -> Option<()> {
        if !self.payout.has_timer {
            return None;
        }
        let timer = self.state.timer(self.now(), false);
        self.payout.has_timer = matches!(timer, Timer::Later(_));
        match timer {
            Timer::Settle => self.step(Happened::TimelockNear),
            Timer::Later(_) => None,
            Timer::Nothing => Some(()),
        }
    }

    fn take_report(&mut self, report: Report) -> Option<()> {
        let answer = match report {
            Report::Paid => RailAnswer::Done(done()),
            Report::NeverPaid => refused(),
        };
        self.step(Happened::Payout { answer, at: self.now() })
    }
}

impl Away {
    fn report(&mut self, report: Report) {
        self.is_requested = false;
        self.reports.push(report);
    }
}

#[test]
fn no_interleaving_of_two_chains_pays_both_sides_or_neither() {
    let checker = Protocol::<Away>::explore(Bounds { reorgs: reorgs(), ..Bounds::default() });
    checker.assert_properties();
    assert!(checker.unique_state_count() > 5_000, "the world has shrunk");
}

#[test]
fn a_planted_defect_of_two_chains_is_found() {
    for (defect, property) in [
        (Defect::ProofAtHead, NEVER_BOTH),
        (Defect::GateAtHead, NEVER_NEITHER),
        (Defect::NoTimer, NEVER_BOTH),
        (Defect::NoLastSecond, NEVER_BOTH),
    ] {
        Protocol::<Away>::finds(Bounds { reorgs: 1, defect: Some(defect), ..Bounds::default() }, property);
    }
}
