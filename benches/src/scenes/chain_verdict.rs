//! The verdict on orders of two chains of which one was at fault: a function of plain observations.
//!
//! Every order is there and was paid at most once; it was completed and paid, or failed unpaid, or operators were told
//! about it. Every fault had its effect on its own chain, or the drill showed nothing. The orders of the other chain took
//! about as long as without a fault.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With its receipt.
    Completed,
    /// The input is with the user.
    Failed,
    /// Neither, and operators were told.
    Paged,
    Open,
}

#[derive(Debug, Clone)]
pub struct Order {
    pub reference: String,
    /// `None`: it was accepted, and there is no order.
    pub end: Option<End>,
    /// Payments of its output, by a rail or on a chain.
    pub payments: i64,
    /// What its receipt says was paid, and what its recipient received, where the drill can see it.
    pub received: Option<(u128, u128)>,
}

/// What was seen of a fault on its chain, while it lasted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Frozen {
        followed: i64,
    },
    /// The answer to a new order of the chain.
    Halted {
        answer: String,
    },
    Reorganized {
        taken_back: i64,
    },
    /// Transactions of the relayer that were mined, and its commands that waited at the end.
    OutOfGas {
        mined: u64,
        waiting: i64,
    },
    /// False answers that were given; rows of the service that rest on one, and objections in its log.
    Lying {
        told: u64,
        believed: i64,
        objections: usize,
    },
}

impl Effect {
    /// Why it is none.
    fn lack(&self) -> Option<String> {
        match self {
            Self::Frozen { followed: 0 } => None,
            Self::Frozen { followed } => Some(format!("{followed} blocks were followed")),
            Self::Halted { answer } if answer == "chain_halted" => None,
            Self::Halted { answer } => Some(format!("a new order was answered with {answer}")),
            Self::Reorganized { taken_back } if *taken_back > 0 => None,
            Self::Reorganized { .. } => Some("no block was taken back".to_owned()),
            Self::OutOfGas { mined: 0, waiting } if *waiting > 0 => None,
            Self::OutOfGas { mined, waiting } => Some(format!("{mined} were mined, {waiting} waited")),
            Self::Lying { told, believed: 0, objections } if *told > 0 && *objections > 0 => None,
            Self::Lying { told, believed, objections } => {
                Some(format!("{told} lies were told, {believed} believed, {objections} objected to"))
            }
        }
    }
}

#[derive(Debug, Clone)]
pub struct Turn {
    pub fault: String,
    pub effect: Effect,
    /// Median times of orders of the other chain: without a fault, and during it.
    pub usual: Duration,
    pub during: Duration,
}

impl Turn {
    /// The median during the fault, in hundredths of the usual one.
    pub fn percent(&self) -> u128 {
        self.during.as_millis() * 100 / self.usual.as_millis().max(1)
    }
}

/// What is not as it should be; nothing when every promise was kept. The other chain's orders may take `percent_max` of
/// their usual time.
pub fn breaches(orders: &[Order], turns: &[Turn], percent_max: u128) -> Vec<String> {
    let of_order = orders.iter().filter_map(|order| {
        let Order { reference, end, payments, received } = order;
        let what = match (end, payments) {
            (_, 2..) => format!("was paid {payments} times"),
            (None, _) => "was accepted and is gone".to_owned(),
            (Some(End::Open), _) => "has no end, and nobody was told".to_owned(),
            (Some(End::Completed), 1) | (Some(End::Failed), 0) | (Some(End::Paged), _) => match received {
                Some((stated, received)) if stated != received => {
                    format!("says that {stated} were paid, its recipient received {received}")
                }
                Some(_) | None => return None,
            },
            (Some(end), payments) => format!("ended as {end:?} with {payments} payments"),
        };
        Some(format!("{reference} {what}"))
    });
    let of_turn = turns.iter().flat_map(|turn| {
        let lack = turn.effect.lack().map(|lack| format!("{} had no effect: {lack}", turn.fault));
        let percent = turn.percent();
        let slow = (percent > percent_max).then(|| {
            format!("{}: orders of the other chain took {percent} % of their usual time", turn.fault)
        });
        lack.into_iter().chain(slow)
    });
    let none = turns.is_empty().then(|| "there was no fault".to_owned());
    of_order.chain(of_turn).chain(none).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(end: Option<End>, payments: i64) -> Order {
        Order { reference: "o".into(), end, payments, received: None }
    }

    fn turn(effect: Effect) -> Turn {
        let second = Duration::from_secs(1);
        Turn { fault: "fault".into(), effect, usual: second, during: second }
    }

    const FROZEN: Effect = Effect::Frozen { followed: 0 };

    fn judged(order: Order) -> Vec<String> {
        breaches(&[order], &[turn(FROZEN)], 200)
    }

    #[test]
    fn orders_that_ended_cleanly_are_no_breach() {
        let orders = [
            order(Some(End::Completed), 1),
            order(Some(End::Failed), 0),
            order(Some(End::Paged), 0),
            order(Some(End::Paged), 1),
            Order { received: Some((7, 7)), ..order(Some(End::Completed), 1) },
        ];
        assert_eq!(breaches(&orders, &[turn(FROZEN)], 200), [""; 0]);
    }

    #[test]
    fn a_doctored_order_is_a_breach() {
        for (doctored, says) in [
            (order(Some(End::Completed), 2), "o was paid 2 times"),
            (order(Some(End::Failed), 2), "o was paid 2 times"),
            (order(None, 0), "o was accepted and is gone"),
            (order(None, 1), "o was accepted and is gone"),
            (order(Some(End::Open), 0), "o has no end, and nobody was told"),
            (order(Some(End::Open), 1), "o has no end, and nobody was told"),
            (order(Some(End::Failed), 1), "o ended as Failed with 1 payments"),
            (order(Some(End::Completed), 0), "o ended as Completed with 0 payments"),
            (order(Some(End::Completed), -1), "o ended as Completed with -1 payments"),
            (
                Order { received: Some((7, 14)), ..order(Some(End::Completed), 1) },
                "o says that 7 were paid, its recipient received 14",
            ),
        ] {
            assert_eq!(judged(doctored), [says]);
        }
    }

    #[test]
    fn a_fault_without_an_effect_is_a_breach() {
        let halted = |answer: &str| Effect::Halted { answer: answer.into() };
        let lying = |told, believed, objections| Effect::Lying { told, believed, objections };
        for seen in [
            FROZEN,
            halted("chain_halted"),
            Effect::Reorganized { taken_back: 3 },
            Effect::OutOfGas { mined: 0, waiting: 1 },
            lying(9, 0, 1),
        ] {
            assert_eq!(breaches(&[], &[turn(seen)], 200), [""; 0]);
        }
        for (doctored, says) in [
            (Effect::Frozen { followed: 2 }, "2 blocks were followed"),
            (halted("accepted"), "a new order was answered with accepted"),
            (Effect::Reorganized { taken_back: 0 }, "no block was taken back"),
            (Effect::OutOfGas { mined: 1, waiting: 1 }, "1 were mined, 1 waited"),
            (Effect::OutOfGas { mined: 0, waiting: 0 }, "0 were mined, 0 waited"),
            (lying(0, 0, 0), "0 lies were told, 0 believed, 0 objected to"),
            (lying(0, 0, 1), "0 lies were told, 0 believed, 1 objected to"),
            (lying(9, 0, 0), "9 lies were told, 0 believed, 0 objected to"),
            (lying(9, 1, 1), "9 lies were told, 1 believed, 1 objected to"),
        ] {
            assert_eq!(breaches(&[], &[turn(doctored)], 200), [format!("fault had no effect: {says}")]);
        }
        assert_eq!(breaches(&[], &[], 200), ["there was no fault"]);
    }

    #[test]
    fn a_slower_other_chain_is_a_breach() {
        let took = |millis| Turn { during: Duration::from_millis(millis), ..turn(FROZEN) };
        assert_eq!(breaches(&[], &[took(2_009)], 200), [""; 0]);
        assert_eq!(
            breaches(&[], &[took(2_010)], 200),
            ["fault: orders of the other chain took 201 % of their usual time"]
        );
        let both = Turn { effect: Effect::Frozen { followed: 1 }, ..took(9_000) };
        assert_eq!(breaches(&[order(None, 0)], &[both], 200).len(), 3);
    }
}
