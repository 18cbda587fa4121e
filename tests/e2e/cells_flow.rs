//! A partner's orders over REST while it moves between cells.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dvp_domain::cell::CellId;
use serde_json::Value;
use uuid::Uuid;

use crate::cells::PATIENCE;
use crate::partner::Partner;

/// Orders of one partner, one after the other, each repeated under its key until it is answered.
pub(crate) struct Flow {
    pub(crate) partner: Partner,
    /// The partner's view of its cell, and of the one that it moves to: there its permits name other contracts.
    views: Vec<(&'static str, Value)>,
    wallet: usize,
    pub(crate) accepted: Vec<(String, Uuid, Value, Value)>,
    pub(crate) refused_as_moving: usize,
}

impl Flow {
    pub(crate) fn new(views: Vec<(&'static str, Value)>, wallet: usize) -> Self {
        let partner = Partner::of(&Box::new(views[0].1.clone()));
        Self { partner, views, wallet, accepted: Vec::new(), refused_as_moving: 0 }
    }

    /// The cells of the accepted orders, in their order.
    pub(crate) fn cells(&self) -> Vec<String> {
        let cell = |answer: &Value| CellId::of_id(answer["reference"].as_str().unwrap()).unwrap().to_string();
        self.accepted.iter().map(|(.., answer)| cell(answer)).collect()
    }

    /// One order, until it is accepted, or its permit is refused because its partner has moved.
    pub(crate) async fn order(&mut self) {
        let (cell, view) = self.views[0].clone();
        let view = Box::new(view);
        let here = self.cells().iter().filter(|other| *other == cell).count();
        let nonce = u64::try_from(here).unwrap();
        let body = Partner::of(&view).order_from(&view, self.wallet, "000123456789", nonce).await;
        let operation = Uuid::new_v4();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.partner.try_submit(&body, operation).await {
                Some((202, answer)) => {
                    let id = body["intentId"].as_str().unwrap().to_owned();
                    self.accepted.push((id, operation, body, answer));
                    return;
                }
                Some((503, answer)) if answer["error"]["code"] == "PARTNER_MOVING" => {
                    self.refused_as_moving += 1
                }
                Some((503, answer)) => assert_eq!(answer["error"]["code"], "SERVICE_UNAVAILABLE", "{answer}"),
                // The other cell has its own contracts: the partner signs for them from now on.
                Some((400 | 422, answer)) if self.views.len() > 1 => {
                    assert_ne!(answer["error"]["code"], "INVALID_SIGNATURE", "{answer}");
                    self.views.remove(0);
                    return;
                }
                Some((status, answer)) => panic!("{status} {answer}"),
                None => {}
            }
            assert!(Instant::now() < deadline, "an order is not accepted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Orders until it is stopped.
    pub(crate) async fn run(mut self, stopped: Arc<AtomicBool>) -> Self {
        while !stopped.load(Ordering::Relaxed) {
            self.order().await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        self
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.accepted.iter().map(|(id, ..)| id.clone()).collect()
    }
}
