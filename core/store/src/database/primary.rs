//! Which of the servers is the primary, and which servers are refused as one.
//!
//! ```text
//! watch (once a second) ── barrier on the present primary, else on every server ──> follow(server) or lose()
//! relay (each connection) ── opens to the followed server ── barrier ── admit ──> used
//!                            closed when the place changes
//! ```
//!
//! A server is admitted when a barrier returned ([`barrier`](super::barrier)), it waits for a standby if that is
//! required, and its log is not behind what this process has seen. The last rule refuses a former primary (an older
//! timeline), another cluster, and a server that was promoted without commits that were confirmed to this process.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::barrier::{Answer, LogPosition};

/// Where connections go. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Primary(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    place: watch::Sender<Place>,
    /// The furthest confirmed position of the log.
    known: Mutex<Option<Known>>,
    is_alone: bool,
    requires_standby: bool,
}

/// The followed server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// `None`: no server is known to be the primary. A server without alternatives is always tried.
    pub(super) server: Option<usize>,
    /// Grows whenever the connections must be closed.
    generation: u64,
}

#[derive(Debug)]
struct Known {
    system: String,
    log: LogPosition,
}

/// The furthest confirmed position before a barrier began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Floor(Option<LogPosition>);

impl Primary {
    pub(super) fn among(servers: usize, requires_standby: bool) -> Self {
        let is_alone = servers <= 1;
        let place = watch::Sender::new(Place { server: is_alone.then_some(0), generation: 0 });
        Self(Arc::new(Shared { place, known: Mutex::new(None), is_alone, requires_standby }))
    }

    pub(super) fn place(&self) -> Place {
        *self.0.place.borrow()
    }

    /// Returns when a primary is known.
    pub(crate) async fn found(&self) {
        // The sender lives as long as this handle.
        let _ = self.0.place.subscribe().wait_for(|place| place.server.is_some()).await;
    }

    /// Returns when connections that were opened at this place must be closed.
    pub(super) async fn left(&self, place: Place) {
        let mut places = self.0.place.subscribe();
        // The sender lives as long as this handle.
        let _ = places.wait_for(|now| now.generation != place.generation).await;
    }

    /// This server is the primary. `true`: it was not before.
    pub(super) fn follow(&self, server: usize) -> bool {
        self.0.place.send_if_modified(|place| {
            let is_new = place.server != Some(server);
            if is_new {
                *place = Place { server: Some(server), generation: place.generation + 1 };
            }
            is_new
        })
    }

    /// Closes all connections. With several servers none is opened until [`follow`](Self::follow).
    pub(super) fn lose(&self) {
        self.0.place.send_modify(|place| {
            let server = place.server.filter(|_| self.0.is_alone);
            *place = Place { server, generation: place.generation + 1 };
        });
    }

    /// To be taken before the barrier begins, because another connection's may end in between.
    pub(super) fn floor(&self) -> Floor {
        let known = self.0.known.lock();
        Floor(known.as_ref().map(|known| known.log))
    }

    /// Admits a server by its answer to a barrier. One that was promoted since closes all connections, since those that
    /// were opened before lead to another server.
    ///
    /// # Errors
    /// The reason why it is not the primary.
    pub(super) fn admit(&self, answer: Answer, floor: Floor) -> Result<(), String> {
        let Answer { read_only, waits_for_standby, system, log } = answer;
        let log = match log {
            Some(log) if !read_only => log,
            _ => return Err("it takes no writes, as a standby does not".to_owned()),
        };
        if self.0.requires_standby && !waits_for_standby {
            return Err("its commits do not wait for a standby (synchronous_standby_names is empty, or \
                        synchronous_commit is off); database.require_standby"
                .to_owned());
        }
        let mut known = self.0.known.lock();
        if let Some(known) = &*known {
            if known.system != system {
                return Err(format!("it is another database cluster ({system}, not {})", known.system));
            }
            if log.timeline < known.log.timeline {
                let (is, known) = (log.timeline, known.log.timeline);
                return Err(format!("it is a former primary: its timeline is {is}, and {known} is in use"));
            }
        }
        if let Some(before) = floor.0.filter(|before| log.position < before.position) {
            return Err(format!(
                "it lacks confirmed commits: its log is at {}, and {} was confirmed before",
                lsn(log.position),
                lsn(before.position)
            ));
        }
        let is_further = known
            .as_ref()
            .is_none_or(|known| (known.log.timeline, known.log.position) < (log.timeline, log.position));
        // Another server behind the same address has become the primary.
        let is_promoted = known.as_ref().is_some_and(|known| known.log.timeline < log.timeline);
        if is_further {
            *known = Some(Known { system, log });
        }
        drop(known);
        if is_promoted {
            self.0.place.send_modify(|place| place.generation += 1);
        }
        Ok(())
    }
}

/// A position as PostgreSQL writes it.
fn lsn(position: u64) -> String {
    format!("{:X}/{:X}", position >> 32, position & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(timeline: u32, position: u64) -> Answer {
        Answer {
            read_only: false,
            waits_for_standby: true,
            system: "7".into(),
            log: Some(LogPosition { timeline, position }),
        }
    }

    #[test]
    fn a_server_behind_the_confirmed_log_is_refused() {
        let primary = Primary::among(3, true);
        let admit = |answer| primary.admit(answer, primary.floor());
        assert_eq!(admit(answer(1, 100)), Ok(()));
        assert_eq!(admit(answer(1, 120)), Ok(()));
        assert!(admit(answer(1, 110)).unwrap_err().contains("lacks confirmed commits: its log is at 0/6E"));
        assert!(admit(answer(2, 119)).unwrap_err().contains("lacks confirmed commits"));
        assert_eq!(admit(answer(2, 120)), Ok(()));
        assert!(admit(answer(1, 500)).unwrap_err().contains("former primary: its timeline is 1"));
        let other = Answer { system: "8".into(), ..answer(3, 1_000) };
        assert!(admit(other).unwrap_err().contains("another database cluster"));
        assert_eq!(admit(answer(2, 121)), Ok(()));
    }

    #[test]
    fn a_barrier_is_compared_with_the_log_before_it_began() {
        let primary = Primary::among(3, true);
        let floor = primary.floor();
        assert_eq!(primary.admit(answer(1, 100), primary.floor()), Ok(()));
        assert_eq!(primary.admit(answer(1, 90), floor), Ok(()));
        assert!(primary.admit(answer(1, 95), primary.floor()).is_err());
    }

    #[test]
    fn only_a_writable_server_that_waits_for_a_standby_is_the_primary() {
        let standby = Answer { read_only: true, log: None, ..answer(1, 1) };
        let alone = Answer { waits_for_standby: false, ..answer(1, 1) };
        for requires_standby in [true, false] {
            let primary = Primary::among(2, requires_standby);
            assert!(primary.admit(standby.clone(), primary.floor()).unwrap_err().contains("takes no writes"));
            let admitted = primary.admit(alone.clone(), primary.floor());
            assert_eq!(admitted.is_ok(), !requires_standby, "{admitted:?}");
        }
    }

    #[tokio::test]
    async fn connections_are_left_when_the_place_changes() {
        let primary = Primary::among(2, true);
        assert_eq!(primary.place().server, None);
        assert!(primary.follow(1));
        let place = primary.place();
        assert!(!primary.follow(1));
        assert_eq!(primary.place(), place);
        primary.lose();
        primary.left(place).await;
        assert_eq!(primary.place().server, None);
        assert!(primary.follow(1));
        primary.left(place).await;

        let alone = Primary::among(1, true);
        alone.admit(answer(1, 100), alone.floor()).unwrap();
        let place = alone.place();
        alone.admit(answer(1, 110), alone.floor()).unwrap();
        assert_eq!(alone.place(), place);
        alone.admit(answer(2, 120), alone.floor()).unwrap();
        alone.left(place).await;
        assert_eq!(alone.place().server, Some(0));

        let alone = Primary::among(1, false);
        let place = alone.place();
        alone.lose();
        alone.left(place).await;
        assert_eq!(alone.place().server, Some(0));
    }
}
