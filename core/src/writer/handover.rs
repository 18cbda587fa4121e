//! Due work that a committed step hands to this process's workers directly, already claimed, instead of leaving it for
//! the next claim. A place is reserved before the row is written; without a free place the row is written unclaimed.
//! After a crash the claim expires like any other, and whoever claims the work then finds it as called.
//!
//! The work carries the execution as the step left it, so that it is neither claimed nor read again. Pauses and
//! disabled destinations are read after the commit, because the batch may have waited long for locks. After a COMMIT
//! without acknowledgement the work is handed over only if its rows stand as they were inserted (order, kind, fence
//! and time of the claim): a new primary may give out the same id again.
//!
//! Kept by `core/tests/it/handed_over.rs::work_is_handed_over_under_the_pauses_of_the_moment_of_the_commit`,
//! `core/tests/it/unknown.rs::work_of_a_lost_commit_is_not_handed_over_when_other_work_has_its_id` and
//! `core/tests/it/at_once.rs::an_order_whose_payout_is_due_begins_in_the_commit_of_its_acceptance`.

use std::sync::Arc;

use dvp_domain::beneficiary::destination::Destination;
use dvp_domain::pause::Pauses;
use dvp_domain::terms::Terms;
use dvp_store::orders::effects::{Claimed, EffectKind, Rooms};
use dvp_store::orders::executions::Execution;
use dvp_store::partners::beneficiaries::Destinations;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The duration of a claim.
pub(crate) const CLAIM_SECS: i32 = 30;

/// The places for work in progress, by kind.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    own: Arc<Semaphore>,
    offramp: Arc<Semaphore>,
    payout: Arc<Semaphore>,
}

impl Places {
    pub(crate) fn new(own: u16, offramp: u16, payout: u16) -> Self {
        let places = |count: u16| Arc::new(Semaphore::new(count.into()));
        Self { own: places(own), offramp: places(offramp), payout: places(payout) }
    }

    const fn of(&self, kind: EffectKind) -> &Arc<Semaphore> {
        match kind {
            EffectKind::Lock | EffectKind::Reversal | EffectKind::Timelock => &self.own,
            EffectKind::Offramp => &self.offramp,
            EffectKind::Payout => &self.payout,
        }
    }

    /// Whether the work of a kind has no free place.
    pub(crate) fn is_full(&self) -> bool {
        [&self.own, &self.offramp, &self.payout].iter().any(|places| places.available_permits() == 0)
    }

    /// Takes half of the free places of each kind for a claim, so that steps committed meanwhile find some too.
    pub(crate) fn take_half(&self) -> HeldPlaces {
        let half = |places: &Arc<Semaphore>| {
            let half = u32::try_from(places.available_permits().div_ceil(2)).unwrap_or(0);
            Arc::clone(places).try_acquire_many_owned(half).ok()
        };
        HeldPlaces { own: half(&self.own), offramp: half(&self.offramp), payout: half(&self.payout) }
    }
}

/// Places held for a claim; those that it does not use are free again when this is dropped.
pub(crate) struct HeldPlaces {
    own: Option<OwnedSemaphorePermit>,
    offramp: Option<OwnedSemaphorePermit>,
    payout: Option<OwnedSemaphorePermit>,
}

impl HeldPlaces {
    pub(crate) fn rooms(&self) -> Rooms {
        let count = |held: &Option<OwnedSemaphorePermit>| {
            held.as_ref().map_or(0, |held| i64::try_from(held.num_permits()).unwrap_or(i64::MAX))
        };
        Rooms { own: count(&self.own), offramp: count(&self.offramp), payout: count(&self.payout) }
    }

    /// The place of one claimed effect.
    pub(crate) fn take(&mut self, kind: EffectKind) -> Option<OwnedSemaphorePermit> {
        let held = match kind {
            EffectKind::Lock | EffectKind::Reversal | EffectKind::Timelock => &mut self.own,
            EffectKind::Offramp => &mut self.offramp,
            EffectKind::Payout => &mut self.payout,
        };
        held.as_mut()?.split(1)
    }
}

/// The registered destination of the payee that an order names.
#[derive(Debug, Clone, Default)]
pub(crate) enum Payee {
    /// It is still to be read.
    #[default]
    Unread,
    /// As the transaction that claimed the work has read it; `None`: it is not registered.
    Read(Option<Box<Destination>>),
}

impl Payee {
    /// The payee of an order among destinations that were looked up.
    pub(crate) fn among(destinations: &Destinations, terms: &Terms) -> Self {
        let key = destination_of(terms).map(|(partner, beneficiary, destination)| {
            (partner.to_owned(), format!("{beneficiary}:{destination}"))
        });
        key.and_then(|key| destinations.get(&key))
            .map_or(Self::Unread, |found| Self::Read(found.clone().map(Box::new)))
    }
}

/// The registered destination that an order names: its partner's id, `bene_…` and `dest_…`.
pub(crate) fn destination_of(terms: &Terms) -> Option<(&str, &str, &str)> {
    let (beneficiary, destination) = terms.request.beneficiary.as_ref()?.reference()?;
    Some((terms.partner_id.as_str(), beneficiary, destination))
}

/// Claimed work with its place. `execution`: as the step left it, or as it was read after the claim.
pub(crate) struct ClaimedWork {
    pub(crate) claim: Claimed,
    pub(crate) execution: Option<Execution>,
    /// Free again when the work is done; none if the claim exceeded its places.
    pub(crate) place: Option<OwnedSemaphorePermit>,
    /// In force when it was claimed.
    pub(crate) pauses: Arc<Pauses>,
    pub(crate) payee: Payee,
}

/// Connects the writer with the workers of the same process. Closed while no workers run.
#[derive(Default)]
pub(crate) struct Handover {
    open: Mutex<Option<Open>>,
}

#[derive(Clone)]
struct Open {
    places: Places,
    to: UnboundedSender<ClaimedWork>,
}

impl Handover {
    /// Opens it for the workers that have these places.
    pub(crate) fn open(&self, places: Places) -> UnboundedReceiver<ClaimedWork> {
        let (to, taken) = unbounded_channel();
        *self.open.lock() = Some(Open { places, to });
        taken
    }

    /// Closes it. The receiver ends after the work that places were reserved for.
    pub(crate) fn close(&self) {
        *self.open.lock() = None;
    }

    /// Whether workers run and have a free place for work of this kind. It may be taken by the time it is reserved.
    pub(crate) fn has_place(&self, kind: EffectKind) -> bool {
        let open = self.open.lock();
        let is_free = |open: &Open| !open.to.is_closed() && open.places.of(kind).available_permits() > 0;
        open.as_ref().is_some_and(is_free)
    }

    /// A place for work of this kind, if workers run and one is free.
    pub(crate) fn reserve(&self, kind: EffectKind) -> Option<Reserved> {
        let open = self.open.lock().clone()?;
        if open.to.is_closed() {
            return None;
        }
        let place = Arc::clone(open.places.of(kind)).try_acquire_owned().ok()?;
        Some(Reserved { place, to: open.to })
    }
}

/// Work of a transaction that inserts it as claimed, until the transaction is known to be committed.
pub(crate) struct Committing {
    pub(crate) claim: Claimed,
    pub(crate) execution: Execution,
    pub(crate) place: Reserved,
    pub(crate) payee: Payee,
}

impl Committing {
    /// Hands the committed work over. Where the workers have ended since, its claim expires.
    pub(crate) fn hand_over(self, pauses: Arc<Pauses>) {
        let Self { claim, execution, place: Reserved { place, to }, payee } = self;
        let _ = to.send(ClaimedWork { claim, execution: Some(execution), place: Some(place), pauses, payee });
    }
}

/// A place for work that is about to be committed as claimed.
pub(crate) struct Reserved {
    place: OwnedSemaphorePermit,
    to: UnboundedSender<ClaimedWork>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_reserved_while_workers_run_and_one_is_free() {
        let handover = Handover::default();
        assert!(handover.reserve(EffectKind::Payout).is_none(), "no workers");
        let taken = handover.open(Places::new(1, 1, 1));
        let reserved = handover.reserve(EffectKind::Payout);
        assert!(reserved.is_some());
        assert!(handover.reserve(EffectKind::Payout).is_none(), "full");
        assert!(handover.reserve(EffectKind::Offramp).is_some(), "another kind has places of its own");
        drop(reserved);
        assert!(handover.reserve(EffectKind::Payout).is_some(), "free again");
        drop(taken);
        assert!(handover.reserve(EffectKind::Payout).is_none(), "the workers have ended");
    }

    #[tokio::test]
    async fn a_closed_handover_ends_after_the_reserved_work() {
        let handover = Handover::default();
        let mut taken = handover.open(Places::new(1, 1, 1));
        let reserved = handover.reserve(EffectKind::Offramp);
        handover.close();
        assert!(handover.reserve(EffectKind::Payout).is_none());
        assert!(taken.try_recv().is_err_and(|error| error == tokio::sync::mpsc::error::TryRecvError::Empty));
        drop(reserved);
        assert!(taken.recv().await.is_none());
    }

    #[test]
    fn a_claim_leaves_half_of_the_places_to_steps() {
        let places = Places::new(4, 1, 3);
        let mut held = places.take_half();
        assert_eq!(held.rooms(), Rooms { own: 2, offramp: 1, payout: 2 });
        let used = held.take(EffectKind::Lock);
        assert!(used.is_some());
        drop(held);
        assert_eq!(places.own.available_permits(), 3, "one is used");
        assert!(!places.is_full());
    }
}
