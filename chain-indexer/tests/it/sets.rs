//! Contracts that are replaced while orders are open: each order ends in those that took it.

use crate::support::{Chain, OPERATORS, Order, Running, anchor, key, until};
use alloy::primitives::aliases::U112;
use alloy::primitives::{B256, U256};
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::coin::CoinGate;
use dvp_chain_indexer::contracts::escrow::Escrow;
use dvp_chain_indexer::contracts::payouts::Payouts;
use dvp_chain_indexer::contracts::settler::IntentSettler;
use dvp_chain_indexer::deploy::{
    CapSpec, DeployError, DeployPlan, Deployment, TokenGrant, deploy, fund_solvers,
};
use dvp_chain_indexer::reconcile::{Options, reconcile};
use dvp_domain::chain::ChainCommand;
use dvp_domain::reconcile::BreakKind;
use dvp_store::chain::{OpenInSet, list_open_sets};

const SETTLED: u8 = 3;

/// Deploys a set beside the chain's own, which takes new orders from then on. The solver may pay there, too.
async fn replace(chain: &mut Chain) -> [Deployment; 2] {
    let old = chain.config.deployment.clone();
    let scene = &chain.scene;
    let (url, solver) = (scene.node.rpc_url(), scene.solver.address());
    let plan = DeployPlan {
        solvers: vec![solver],
        relayers: vec![scene.relayer.address(), scene.other_relayer.address()],
        operators: OPERATORS.map(|byte| key(byte).address()).into(),
        caps: vec![CapSpec { payer: solver, token: "USDC".into(), per_day: U112::from(1_000) }],
        new_set: true,
        ..DeployPlan::default()
    };
    let new = deploy(&url, &scene.admin, &plan, Some(old.clone())).await.unwrap();
    let approval = [TokenGrant { token: scene.token, amount: U256::ZERO }];
    let solvers = [scene.solver.clone()];
    fund_solvers(&url, &scene.admin, &new, &solvers, &approval).await.unwrap().mined().await.unwrap();
    chain.scene.deployment = new.clone();
    chain.config.deployment = new.clone();
    [old, new]
}

async fn state_in(chain: &Chain, set: &Deployment, order: &Order) -> u8 {
    chain.scene.view(set.settler, IntentSettler::stateOfCall { intentId: order.id }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_set_is_deployed_beside_the_recorded_one_and_keeps_permits_and_the_wrapped_coin() {
    let mut chain = Chain::new().await;
    let [old, new] = replace(&mut chain).await;
    assert_eq!((new.permit, new.coin.unwrap().wrapped), (old.permit, old.coin.unwrap().wrapped));
    assert_eq!((&new.tokens, &new.earlier), (&old.tokens, &vec![old.clone()]));
    let [before, after] =
        [&old, &new].map(|set| [set.escrow, set.settler, set.anchor, set.payouts, set.coin.unwrap().gate]);
    assert!(before.iter().all(|contract| !after.contains(contract)), "{new:?}");
    assert_eq!((new.first_block(), new.fault()), (old.deployed_block, None));
    assert!(new.deployed_block > old.deployed_block);
    let kept: Deployment = serde_json::from_value(serde_json::to_value(&new).unwrap()).unwrap();
    assert_eq!(kept, new);
    // Deployed again, both are left alone; a further one keeps all before it.
    let plan = DeployPlan { relayers: vec![key(0x77).address()], ..DeployPlan::default() };
    let again = async |plan: &DeployPlan, record| {
        deploy(&chain.scene.node.rpc_url(), &chain.scene.admin, plan, record).await
    };
    let granted = again(&plan, Some(new.clone())).await.unwrap();
    assert_eq!(granted.sets().map(|set| set.escrow).collect::<Vec<_>>(), [new.escrow, old.escrow]);
    assert!(granted.sets().all(|set| set.relayers.contains(&key(0x77).address())), "in both");
    let beside = DeployPlan { new_set: true, ..plan };
    let third = again(&beside, Some(granted)).await.unwrap();
    assert_eq!(third.sets().skip(1).map(|set| set.escrow).collect::<Vec<_>>(), [new.escrow, old.escrow]);
    assert!(matches!(again(&beside, None).await, Err(DeployError::NothingBeside)));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_orders_end_in_their_contracts_while_new_ones_take_orders() {
    let mut chain = Chain::new().await;
    let running = Running::start(&chain);
    let [filled, waiting] = [1, 2].map(|id| (id, format!("old-{id}")));
    let first = chain.scene.order(filled.0).await;
    chain.create_and_fill(&filled.1, &first).await;
    chain.state(&filled.1, "fill", "done").await;
    // Killed, with orders that are committed, that wait for their lock, their payment, their deposit, their anchor.
    drop(running);
    let second = chain.scene.order(waiting.0).await;
    let receiver = key(0xbb).address();
    let transfer = chain.scene.transfer(B256::repeat_byte(0x77), receiver, 40);
    chain.scene.fund_solver(100).await;
    chain.command(&waiting.1, chain.scene.create_command(&second)).await;
    chain.command("old-paid", ChainCommand::Transfer(Box::new(transfer.clone()))).await;
    chain.command("old-anchor", anchor(0x5e)).await;
    let deposited = Order { token: chain.scene.coin().wrapped, ..chain.scene.order(5).await };
    let ChainCommand::Create(mut command) = chain.scene.create_command(&deposited) else { unreachable!() };
    command.permit = None;
    chain.command("old-coin", ChainCommand::Create(command)).await;

    let [old, new] = replace(&mut chain).await;
    let maker = chain.scene.maker.address();
    assert!(chain.scene.deposits(maker, deposited.id, 100).await, "at the new gate, which does not count");
    let third = Order { nonce: second.nonce + U256::from(1), ..chain.scene.order(3).await };
    chain.command("new-3", chain.scene.create_command(&third)).await;
    let paid_there = chain.scene.transfer(B256::repeat_byte(0x78), receiver, 2);
    chain.command("new-paid", ChainCommand::Transfer(Box::new(paid_there))).await;
    chain.command("new-anchor", anchor(0x5f)).await;
    let running = Running::start(&chain);
    // Killed again in the middle of it.
    chain.until_attempts(4).await;
    drop(running);
    let running = Running::start(&chain);
    for (id, fact) in [(second.id, "created"), (third.id, "created")] {
        chain.fact(id, fact).await;
    }
    for (byte, fact) in [(0x77, "transferred"), (0x78, "transferred"), (0x5e, "anchored"), (0x5f, "anchored")]
    {
        chain.fact(B256::repeat_byte(byte), fact).await;
    }
    assert_eq!(chain.scene.balance(old.escrow).await, 200);
    assert_eq!(chain.scene.balance(new.escrow).await, 100);
    assert_eq!(chain.scene.balance(receiver).await, 42);
    let paid = Payouts::paidAtCall { id: B256::repeat_byte(0x77) };
    assert!(chain.scene.view(old.payouts, paid.clone()).await > 0);
    assert_eq!(chain.scene.view(new.payouts, paid).await, 0);
    let locked = Escrow::slotOfCall { id: deposited.id };
    assert_eq!(chain.scene.view(old.escrow, locked.clone()).await.slot, 0);
    assert_eq!(chain.scene.view(new.escrow, locked.clone()).await.slot, 0);
    let mut conn = chain.pool().acquire().await.unwrap();
    let open = list_open_sets(&mut conn, chain.config.chain_id).await.unwrap();
    assert_eq!(open, [OpenInSet { escrow: old.escrow, orders: 0, commands: 1 }], "the deposit");
    drop(conn);

    // Each escrow is compared with what it holds.
    let locked_by = chain.cursor().await.unwrap().head_number;
    chain.mined(200).await;
    let pool = chain.pool();
    let compared =
        async || reconcile(&pool, &chain.config, &Options { full: true, ..Options::default() }).await;
    let is_final = async || compared().await.is_ok_and(|report| report.block_number >= locked_by);
    until("the locks are final", is_final).await;
    let report = compared().await.unwrap();
    assert_eq!(report.unread, []);
    let wrong = [BreakKind::IndexMismatch, BreakKind::EscrowShort];
    assert!(!report.breaks.iter().any(|found| wrong.contains(&found.kind)), "{:?}", report.breaks);

    let deposit = CoinGate::depositCall { id: deposited.id }.abi_encode();
    assert!(chain.scene.send_coin(maker, old.coin.unwrap().gate, deposit, 100).await.status());
    chain.fact(deposited.id, "created").await;
    assert_eq!(chain.scene.view(old.escrow, locked).await.slot, 1);
    chain.command_at(old.escrow, &filled.1, chain.scene.settle_command(&first)).await;
    chain.command_at(old.escrow, &waiting.1, chain.scene.fill_command(&second)).await;
    chain.command_at(old.escrow, &waiting.1, chain.scene.settle_command(&second)).await;
    chain.command("new-3", chain.scene.fill_command(&third)).await;
    chain.command("new-3", chain.scene.settle_command(&third)).await;
    for (order, own, other) in [(&first, &old, &new), (&second, &old, &new), (&third, &new, &old)] {
        chain.fact(order.id, "settled").await;
        assert_eq!(state_in(&chain, own, order).await, SETTLED);
        assert_eq!(state_in(&chain, other, order).await, 0);
    }
    for escrow in [old.escrow, new.escrow] {
        assert_eq!(chain.scene.balance(escrow).await, 0);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_for_contracts_that_the_record_does_not_name_waits_and_is_reported() {
    let (chain, _running) = Chain::running().await;
    let (order, other) = (chain.scene.order(1).await, key(0x99).address());
    chain.command_at(other, "lost", anchor(0x61)).await;
    chain.command("one", chain.scene.create_command(&order)).await;
    chain.fact(order.id, "created").await;
    let why = chain.troubled("lost", "anchor").await;
    assert!(why.contains(&other.to_string()) && why.contains("record"), "{why}");
}
