//! The administration of the contracts, the effect of a pause, and the return of a filled order's funds by two
//! operators.

use crate::support::{FUNDS, OPERATORS, PAUSER, Scene, key};
use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::sol_types::SolEvent;
use dvp_chain_indexer::contracts::{payouts::Payouts, settler::IntentSettler};
use dvp_chain_indexer::deploy::{CapSpec, DeployError, DeployPlan, Deployment, deploy};
use std::time::Duration;

#[tokio::test]
async fn the_administration_is_handed_over_in_two_steps_after_its_delay() {
    let scene = Scene::new().await;
    let plan = DeployPlan { admin_delay: Duration::from_secs(86_400), ..DeployPlan::default() };
    let deployed = deploy(&scene.node.rpc_url(), &scene.admin, &plan, None).await.unwrap();
    let heir = &scene.maker;
    for at in [deployed.settler, deployed.payouts] {
        let begin = IntentSettler::beginDefaultAdminTransferCall { newAdmin: heir.address() };
        let accept = IntentSettler::acceptDefaultAdminTransferCall {};
        assert!(!scene.succeeds(heir, at, &begin).await, "anybody may take it");
        assert!(scene.succeeds(&scene.admin, at, &begin).await);
        assert!(!scene.succeeds(heir, at, &accept).await, "before the delay is over");
        scene.next_block_at(scene.now().await + 86_402).await;
        assert!(!scene.succeeds(&scene.relayer, at, &accept).await, "another account");
        assert!(scene.succeeds(heir, at, &accept).await);
        let owner = scene.view(at, IntentSettler::defaultAdminCall {}).await;
        assert_eq!(owner, heir.address());
        let role = scene.view(at, IntentSettler::RELAYER_ROLECall {}).await;
        let grant = IntentSettler::grantRoleCall { role, account: scene.admin.address() };
        assert!(!scene.succeeds(&scene.admin, at, &grant).await, "the old administrator still has the role");
        assert!(scene.succeeds(heir, at, &grant).await);
    }
}

#[tokio::test]
async fn every_change_of_a_role_a_list_or_a_cap_is_a_numbered_event() {
    let scene = Scene::new().await;
    let (settler, payouts, account) = (scene.deployment.settler, scene.deployment.payouts, key(9).address());
    for at in [settler, payouts] {
        let role = scene.view(at, IntentSettler::PAUSER_ROLECall {}).await;
        let before = scene.view(at, IntentSettler::seqCall {}).await;
        let grant = IntentSettler::grantRoleCall { role, account };
        let receipt = scene.send_with_gas(&scene.admin, at, &grant, 200_000).await;
        let reported =
            receipt.logs().iter().find_map(|log| IntentSettler::RoleSet::decode_log(&log.inner).ok());
        let reported = reported.unwrap().data;
        assert_eq!(
            (reported.role, reported.account, reported.granted, reported.seq),
            (role, account, true, before + 1)
        );
        assert!(scene.succeeds(&scene.admin, at, &grant).await);
        assert_eq!(scene.view(at, IntentSettler::seqCall {}).await, before + 1, "nothing changed");
        let revoke = IntentSettler::revokeRoleCall { role, account };
        assert!(scene.succeeds(&scene.admin, at, &revoke).await);
        assert_eq!(scene.view(at, IntentSettler::seqCall {}).await, before + 2);
        assert!(scene.succeeds(&scene.admin, at, &IntentSettler::pauseCall {}).await);
        assert!(scene.succeeds(&scene.admin, at, &IntentSettler::unpauseCall {}).await);
        assert_eq!(scene.view(at, IntentSettler::seqCall {}).await, before + 4);
    }
    let before = scene.view(settler, IntentSettler::seqCall {}).await;
    let list = IntentSettler::setReceiverCall { receiver: account, allowed: false };
    assert!(scene.succeeds(&scene.admin, settler, &list).await);
    assert!(!scene.succeeds(&scene.relayer, settler, &list).await);
    assert_eq!(scene.view(settler, IntentSettler::seqCall {}).await, before + 1);
    let before = scene.view(payouts, Payouts::seqCall {}).await;
    scene.set_cap(scene.token, 1).await;
    assert_eq!(scene.view(payouts, Payouts::seqCall {}).await, before + 1);
}

#[tokio::test]
async fn a_pause_stops_new_orders_and_no_exit() {
    let scene = Scene::new().await;
    scene.fund_solver(1_000).await;
    let (settler, payouts, escrow) =
        (scene.deployment.settler, scene.deployment.payouts, scene.deployment.escrow);
    let mut open = Vec::new();
    for id in 1..=4 {
        open.push(scene.order(id).await);
        scene.lock(&open[open.len() - 1]).await;
    }
    let pauser = key(PAUSER);
    for at in [settler, payouts] {
        let pause = IntentSettler::pauseCall {};
        for (by, outcome) in [(scene.relayer.address(), false), (pauser.address(), true)] {
            assert_eq!(scene.revert_of(by, at, &pause).await.is_none(), outcome);
        }
        assert!(scene.succeeds(&scene.admin, at, &pause).await);
        let resume = scene.outcome_of(pauser.address(), at, &IntentSettler::unpauseCall {}).await;
        assert_eq!(resume, "AccessControlUnauthorizedAccount", "a pauser resumes");
    }
    let relayer = scene.relayer.address();
    let order = scene.order(5).await;
    let create = scene.create_call(&order, scene.signed(&order));
    assert_eq!(scene.outcome_of(relayer, settler, &create).await, "PausedNow");
    let params = scene.swap_params(&order, scene.output(relayer, 1));
    let swap = IntentSettler::swapCall { params };
    assert_eq!(scene.outcome_of(relayer, settler, &swap).await, "PausedNow");
    let pay = Payouts::payCall { payment: scene.payment(9, 1), authorization: Default::default() };
    assert_eq!(scene.outcome_of(relayer, payouts, &pay).await, "PausedNow");

    for order in &open[..3] {
        scene.fill(order).await;
    }
    scene.settle(&open[0]).await;
    assert!(scene.succeeds(&scene.admin, escrow, &scene.release_call(&open[1])).await);
    scene.cancel(&open[3]).await;
    scene.next_block_at(open[2].timelock).await;
    assert!(scene.succeeds(&scene.admin, escrow, &scene.refund_call(&open[2])).await);
    assert_eq!(scene.balance(escrow).await, 0);
}

#[tokio::test]
async fn only_two_operators_return_a_filled_order() {
    let scene = Scene::new().await;
    let at = scene.deployment.settler;
    let (order, mut other) = (scene.order(1).await, scene.order(2).await);
    other.nonce = order.nonce + U256::from(1);
    for order in [&order, &other] {
        scene.lock(order).await;
    }
    let anyone = scene.admin.address();
    let outcome = async |call| scene.outcome_of(anyone, at, &call).await;
    let deadline = scene.now().await + 500;
    assert_eq!(outcome(scene.return_call(&order, OPERATORS, deadline)).await, "WrongState", "not filled");
    for order in [&order, &other] {
        scene.fill(order).await;
    }
    let [one, two] = OPERATORS;
    for by in [[one, one], [one, 0xa2], [0xa1, two], [0xa2, 0xa5], [one, 0xee]] {
        assert_eq!(outcome(scene.return_call(&order, by, deadline)).await, "NotTwoOperators", "{by:?}");
    }
    let right = scene.return_call(&order, OPERATORS, deadline);
    let swapped = IntentSettler::returnFilledCall {
        first: right.second.clone(),
        second: right.first.clone(),
        ..right.clone()
    };
    assert_eq!(outcome(swapped).await, "NotTwoOperators", "in the wrong order");
    let elsewhere =
        IntentSettler::returnFilledCall { intentId: other.id, order: scene.terms(&other), ..right.clone() };
    assert_eq!(outcome(elsewhere).await, "NotTwoOperators", "for another order");
    let longer = IntentSettler::returnFilledCall { deadline: U256::MAX, ..right.clone() };
    assert_eq!(outcome(longer).await, "NotTwoOperators", "for longer");
    let past = scene.return_call(&order, OPERATORS, scene.now().await - 1);
    assert_eq!(outcome(past).await, "ApprovalExpired");

    // An operator that becomes a relayer is no longer an operator.
    scene.make_relayer(at, key(one).address()).await;
    assert_eq!(outcome(right.clone()).await, "NotTwoOperators");
    let role = scene.view(at, IntentSettler::RELAYER_ROLECall {}).await;
    let revoke = IntentSettler::revokeRoleCall { role, account: key(one).address() };
    assert!(scene.succeeds(&scene.admin, at, &revoke).await);

    assert!(scene.succeeds(&scene.admin, at, &right).await);
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS - 100, "the other one is still locked");
    assert_eq!(outcome(right).await, "WrongState", "twice");
    let settled = scene.outcome_of(scene.relayer.address(), at, &scene.settle_call(&order)).await;
    assert_eq!(settled, "WrongState", "the solver is paid too");
}

#[tokio::test]
async fn the_deployer_refuses_a_relayer_as_operator_and_a_cap_of_an_unknown_token() {
    let scene = Scene::new().await;
    let both = vec![scene.relayer.address()];
    let plan = DeployPlan { relayers: both.clone(), operators: both, ..DeployPlan::default() };
    let refused = deploy(&scene.node.rpc_url(), &scene.admin, &plan, None).await;
    assert!(matches!(refused, Err(DeployError::OperatorIsRelayer(_))), "{refused:?}");
    let plan = DeployPlan {
        caps: vec![CapSpec { payer: Address::ZERO, token: "NONE".into(), per_day: Default::default() }],
        ..DeployPlan::default()
    };
    let refused = deploy(&scene.node.rpc_url(), &scene.admin, &plan, Some(scene.deployment.clone())).await;
    assert!(matches!(refused, Err(DeployError::UnknownToken(_))), "{refused:?}");
    let plan = DeployPlan { pausers: vec![scene.admin.address()], ..DeployPlan::default() };
    let refused = deploy(&scene.node.rpc_url(), &scene.admin, &plan, None).await;
    assert!(matches!(refused, Err(DeployError::AdminHasRole(_))), "{refused:?}");
}

/// A node that has lost them, or is of another chain, is no reason to deploy them again.
#[tokio::test]
async fn contracts_of_a_record_are_never_deployed_anew() {
    let scene = Scene::new().await;
    let known = scene.deployment.clone();
    let elsewhere = Deployment { chain_id: known.chain_id + 1, ..known.clone() };
    let lost = Deployment { anchor: Address::repeat_byte(9), ..known.clone() };
    let before = scene.provider.get_transaction_count(scene.admin.address()).await.unwrap();
    let again = async |record| {
        deploy(&scene.node.rpc_url(), &scene.admin, &DeployPlan::default(), Some(record)).await
    };
    assert!(matches!(again(elsewhere).await, Err(DeployError::OtherChain { .. })));
    assert!(matches!(again(lost).await, Err(DeployError::NotThere(at)) if at == Address::repeat_byte(9)));
    assert_eq!(again(known.clone()).await.unwrap().settler, known.settler);
    let after = scene.provider.get_transaction_count(scene.admin.address()).await.unwrap();
    assert_eq!(before, after, "nothing was sent");
}
