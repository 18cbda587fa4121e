//! Every call in every state at every time has the result in the committed table.

use crate::support::{OPERATORS, Order, Scene, at_epoch, expect};
use std::fmt::Write;

/// Every call of the two contracts that moves funds, by an authorized account.
async fn calls(scene: &Scene, order: &Order) -> [(&'static str, String); 8] {
    let (settler, at) = (scene.deployment.settler, scene.deployment.escrow);
    let (relayer, anyone) = (scene.relayer.address(), scene.admin.address());
    let mut fresh = order.clone();
    fresh.nonce = scene.permit_nonce().await;
    fresh.permit_deadline = order.timelock + 10_000;
    let create = scene.create_call(&fresh, scene.signed(&fresh));
    let (fill, settle) = (scene.fill_call(order), scene.settle_call(order));
    let cancel = scene.cancel_call(order);
    let deadline = order.timelock + 10_000;
    let back = scene.return_call(order, OPERATORS, deadline);
    [
        ("create", scene.outcome_of(relayer, settler, &create).await),
        ("fill", scene.outcome_of(relayer, settler, &fill).await),
        ("settle", scene.outcome_of(relayer, settler, &settle).await),
        ("cancel", scene.outcome_of(anyone, settler, &cancel).await),
        ("give back", scene.outcome_of(relayer, settler, &cancel).await),
        ("return", scene.outcome_of(anyone, settler, &back).await),
        ("release", scene.outcome_of(anyone, at, &scene.release_call(order)).await),
        ("refund", scene.outcome_of(anyone, at, &scene.refund_call(order)).await),
    ]
}

async fn reach(scene: &Scene, order: &Order, state: &str) {
    if state != "none" {
        scene.lock(order).await;
    }
    if matches!(state, "filled" | "settled" | "filled, released" | "returned") {
        scene.fill(order).await;
    }
    match state {
        "settled" => scene.settle(order).await,
        "cancelled" => {
            scene.next_block_at(order.fill_deadline).await;
            scene.cancel(order).await;
        }
        "returned" => {
            let back = scene.return_call(order, OPERATORS, order.timelock);
            assert!(scene.succeeds(&scene.relayer, scene.deployment.settler, &back).await);
        }
        "filled, released" => {
            let release = scene.release_call(order);
            assert!(scene.succeeds(&scene.admin, scene.deployment.escrow, &release).await);
        }
        _ => {}
    }
}

/// What every call would do in a state, from when it is reached.
async fn rows(scene: &Scene, state: &str) -> String {
    let order = scene.order(1).await;
    let order = Order { lock_by: order.fill_deadline, ..order };
    reach(scene, &order, state).await;
    let times = [
        ("in time", order.fill_deadline - 1),
        ("from the fill deadline", order.fill_deadline),
        ("before the timelock", order.timelock - 1),
        ("at the timelock", order.timelock),
    ];
    let (now, mut rows) = (scene.now().await, String::new());
    for (when, time) in times.into_iter().filter(|(_, time)| *time >= now) {
        if time > now {
            scene.mine_at(time).await;
        }
        for (call, outcome) in calls(scene, &order).await {
            writeln!(rows, "{state:18} {when:23} {call:9} {outcome}").unwrap_or_default();
        }
    }
    rows
}

#[tokio::test]
async fn every_call_in_every_state_does_what_the_table_says() {
    let scene = at_epoch().await;
    let mut table = String::new();
    for state in ["none", "created", "filled", "settled", "cancelled", "returned", "filled, released"] {
        let rows = scene.undone(async || rows(&scene, state).await).await;
        table.push_str(&rows);
    }
    expect("contracts/states.txt", &table);
}
