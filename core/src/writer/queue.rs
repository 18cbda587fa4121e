//! The writer's queue: [`FairQueue`] between tasks.
//!
//! A unit without a free place is refused, or its caller waits for one: the unit is parked, and its caller continues
//! when it gets a place. Nothing polls.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::WriteError;
use super::fair_queue::{Class, FairQueue, Flow, NextBatch, Places};

struct Parked<T> {
    flow: Flow,
    unit: T,
    admitted: oneshot::Sender<()>,
}

struct State<T> {
    flows: FairQueue<T>,
    /// In the order of arrival.
    parked: VecDeque<Parked<T>>,
    /// All senders are gone.
    closed: bool,
    /// The receiver is gone.
    stopped: bool,
}

impl<T> State<T> {
    /// Gives free places to parked units.
    fn admit(&mut self) {
        for parked in std::mem::take(&mut self.parked) {
            if self.flows.admits(&parked.flow) {
                self.flows.push(parked.flow, parked.unit);
                // The caller no longer waits; its outcome is in the database.
                let _ = parked.admitted.send(());
            } else {
                self.parked.push_back(parked);
            }
        }
    }
}

struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Notify,
}

/// Both ends of a new queue.
pub(super) fn queue<T>(places: Places) -> (Adding<T>, Taking<T>) {
    let state =
        State { flows: FairQueue::new(places), parked: VecDeque::new(), closed: false, stopped: false };
    let queue = Arc::new(Queue { state: Mutex::new(state), filled: Notify::new() });
    (Adding(Arc::clone(&queue)), Taking(queue))
}

/// The sending end. When it is dropped, the receiver gets the remaining units and then nothing.
pub(super) struct Adding<T>(Arc<Queue<T>>);

impl<T> Adding<T> {
    pub(super) fn is_taken(&self) -> bool {
        !self.0.state.lock().stopped
    }

    /// Queues a unit, if there is a free place.
    pub(super) fn try_push(&self, flow: Flow, unit: T) -> Result<(), WriteError> {
        let mut state = self.0.state.lock();
        if state.stopped {
            return Err(WriteError::Stopped);
        }
        if !state.flows.admits(&flow) {
            return Err(WriteError::Busy);
        }
        state.flows.push(flow, unit);
        drop(state);
        self.0.filled.notify_one();
        Ok(())
    }

    /// Queues a unit, or parks it; the future ends when it has a place. The unit is written even if its caller stops
    /// waiting.
    pub(super) fn push(&self, flow: Flow, unit: T) -> impl Future<Output = Result<(), WriteError>> + use<T> {
        let place = self.push_or_park(flow, unit);
        self.0.filled.notify_one();
        async move {
            match place? {
                None => Ok(()),
                Some(has_place) => has_place.await.map_err(|_| WriteError::Stopped),
            }
        }
    }

    fn push_or_park(&self, flow: Flow, unit: T) -> Result<Option<oneshot::Receiver<()>>, WriteError> {
        let mut state = self.0.state.lock();
        if state.stopped {
            return Err(WriteError::Stopped);
        }
        if state.flows.admits(&flow) {
            state.flows.push(flow, unit);
            return Ok(None);
        }
        let (admitted, has_place) = oneshot::channel();
        state.parked.push_back(Parked { flow, unit, admitted });
        Ok(Some(has_place))
    }
}

impl<T> Drop for Adding<T> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.filled.notify_one();
    }
}

/// The receiving end. When it is dropped, the queued units are dropped with it.
pub(super) struct Taking<T>(Arc<Queue<T>>);

/// The number of waiting units.
pub(super) struct Depth {
    pub(super) queued: [(Class, usize); 3],
    pub(super) parked: usize,
    pub(super) tenants_apart: usize,
}

impl<T> Taking<T> {
    /// The next batch, as soon as there is one. `None`: the queue has ended.
    pub(super) async fn next(&self, max: usize) -> Option<NextBatch<T>> {
        self.wait(|state| {
            let taken = state.flows.take(max);
            state.admit();
            taken
        })
        .await
    }

    /// All waiting units, parked ones included, as soon as there is one. `None`: the queue has ended.
    pub(super) async fn all(&self) -> Option<Vec<(Flow, T)>> {
        self.wait(|state| {
            let mut all = state.flows.take_all();
            for parked in state.parked.drain(..) {
                let _ = parked.admitted.send(());
                all.push((parked.flow, parked.unit));
            }
            (!all.is_empty()).then_some(all)
        })
        .await
    }

    async fn wait<R>(&self, mut take: impl FnMut(&mut State<T>) -> Option<R>) -> Option<R> {
        loop {
            let filled = self.0.filled.notified();
            {
                let mut state = self.0.state.lock();
                if let Some(taken) = take(&mut state) {
                    return Some(taken);
                }
                if state.closed {
                    return None;
                }
            }
            filled.await;
        }
    }

    pub(super) fn put_back(&self, units: Vec<(Flow, T)>) {
        self.0.state.lock().flows.put_back(units);
        self.0.filled.notify_one();
    }

    pub(super) fn set_apart(&self, flow: &Flow) {
        self.0.state.lock().flows.set_apart(flow);
    }

    pub(super) fn was_good(&self, flow: &Flow) {
        self.0.state.lock().flows.was_good(flow);
    }

    pub(super) fn gauge(&self) -> Gauge<T> {
        Gauge(Arc::downgrade(&self.0))
    }
}

/// Reads the number of waiting units as long as the queue exists.
pub(super) struct Gauge<T>(Weak<Queue<T>>);

impl<T> Gauge<T> {
    pub(super) fn depth(&self) -> Option<Depth> {
        let queue = self.0.upgrade()?;
        let state = queue.state.lock();
        Some(Depth {
            queued: Class::ALL.map(|class| (class, state.flows.queued(class))),
            parked: state.parked.len(),
            tenants_apart: state.flows.tenants_apart(),
        })
    }
}

impl<T> Drop for Taking<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.stopped = true;
        let units = state.flows.take_all();
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        // Dropped units notify their callers, who may read the queue.
        drop((units, parked));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::writer::fair_queue::UnitSource;
    use dvp_store::orders::intents::Tenant;

    fn flow(name: &str) -> Flow {
        Flow { tenant: Tenant { partner_id: name.to_owned(), livemode: false }, source: UnitSource::Rest }
    }

    #[tokio::test]
    async fn a_caller_without_a_place_waits_until_a_batch_is_taken() {
        let (adding, taking) = queue(Places { entry: 2, service: 1 });
        adding.try_push(flow("a"), 1).unwrap();
        assert!(matches!(adding.try_push(flow("a"), 2), Err(WriteError::Busy)));
        let mut waits = pin!(adding.push(flow("a"), 2));
        assert!(waits.as_mut().now_or_never().is_none(), "there is no place");
        assert_eq!(taking.gauge().depth().unwrap().parked, 1);
        assert_eq!(taking.next(1).await.unwrap().units, [(flow("a"), 1)]);
        waits.await.unwrap();
        assert_eq!(taking.next(1).await.unwrap().units, [(flow("a"), 2)]);
    }

    #[tokio::test]
    async fn a_waiting_caller_does_not_take_another_tenants_place() {
        let (adding, taking) = queue(Places { entry: 4, service: 1 });
        for unit in 0..2 {
            adding.try_push(flow("flood"), unit).unwrap();
        }
        let mut waits = pin!(adding.push(flow("flood"), 2));
        assert!(waits.as_mut().now_or_never().is_none());
        adding.try_push(flow("quiet"), 9).unwrap();
        let first = taking.next(2).await.unwrap();
        assert!(first.units.contains(&(flow("quiet"), 9)));
    }

    #[tokio::test]
    async fn remaining_units_are_taken_after_the_last_handle_is_dropped() {
        let (adding, taking) = queue(Places { entry: 4, service: 1 });
        adding.try_push(flow("a"), 1).unwrap();
        drop(adding);
        assert_eq!(taking.next(9).await.unwrap().units.len(), 1);
        assert!(taking.next(9).await.is_none() && taking.all().await.is_none());
    }

    #[tokio::test]
    async fn a_stopped_queue_notifies_waiting_and_new_callers() {
        let (adding, taking) = queue(Places { entry: 2, service: 1 });
        adding.try_push(flow("a"), 1).unwrap();
        let mut waits = pin!(adding.push(flow("a"), 2));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(taking);
        assert!(matches!(waits.await, Err(WriteError::Stopped)));
        assert!(matches!(adding.try_push(flow("a"), 3), Err(WriteError::Stopped)));
    }

    #[tokio::test]
    async fn taking_everything_includes_parked_callers() {
        let (adding, taking) = queue(Places { entry: 2, service: 1 });
        adding.try_push(flow("a"), 1).unwrap();
        let mut waits = pin!(adding.push(flow("a"), 2));
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(taking.all().await.unwrap().len(), 2);
        waits.await.unwrap();
    }
}
