//! The calls that the contracts permit and refuse, on a real node.

use crate::support::{FUNDS, Order, Scene, key};
use alloy::primitives::{B256, TxKind, U256};
use alloy::sol_types::{SolCall, SolEvent};
use dvp_chain_indexer::contracts::{anchor, escrow, permit, settler};
use dvp_chain_indexer::deploy::{DeployPlan, TokenSpec, deploy};
use dvp_chain_indexer::rpc;
use escrow::{Escrow, Orders as EscrowTerms};
use permit::Permit;
use settler::IntentSettler;

#[tokio::test]
async fn committed_artifacts_match_a_fresh_compile() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/contracts");
    let run = |program: &str, args: &[&str]| {
        let output = std::process::Command::new(program).args(args).current_dir(dir).output();
        let output = output.unwrap_or_else(|error| {
            panic!(
                "{program} does not start ({error}): this check compiles the contracts and needs node 18 or \
                 later with npm (Debian: apt-get install nodejs npm)"
            )
        });
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {args:?} in {dir} failed:\n{said}");
    };
    if !std::path::Path::new(dir).join("node_modules/solc").exists() {
        run("npm", &["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    }
    run("node", &["compile.mjs", "--check"]);
}

#[tokio::test]
async fn an_intent_goes_from_created_to_settled_and_the_solver_is_paid() {
    let scene = Scene::new().await;
    let (at, order) = (scene.deployment.settler, scene.order(1).await);
    let before = scene.view(at, IntentSettler::seqCall {}).await;
    scene.lock(&order).await;
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS - 100);
    assert_eq!(scene.balance(scene.deployment.escrow).await, 100);

    let early = scene.settle_call(&order);
    let refused = scene.outcome_of(scene.relayer.address(), at, &early).await;
    assert_eq!(refused, "WrongState", "settled before it was filled");

    scene.fill(&order).await;
    let guess = IntentSettler::settleCall { preimage: order.id, ..scene.settle_call(&order) };
    let refused = scene.outcome_of(scene.relayer.address(), at, &guess).await;
    assert_eq!(refused, "WrongPreimage");

    let receipt = scene.send(&scene.relayer, TxKind::Call(at), early.abi_encode()).await;
    assert!(receipt.status());
    assert_eq!(scene.balance(scene.solver.address()).await, 100);
    let seqs: Vec<u64> = receipt
        .logs()
        .iter()
        .filter_map(|log| IntentSettler::Settled::decode_log(&log.inner).ok())
        .map(|event| event.seq)
        .collect();
    assert_eq!(seqs, [before + 3], "created, filled, settled");
    assert_eq!(scene.view(at, IntentSettler::seqCall {}).await, before + 3);
    assert_eq!(scene.view(scene.deployment.escrow, Escrow::seqCall {}).await, 2);
}

#[tokio::test]
async fn a_permit_is_valid_once_for_its_spender_until_its_deadline() {
    let scene = Scene::new().await;
    let (at, relayer) = (scene.deployment.settler, scene.relayer.address());
    let order = scene.order(1).await;
    let refusal = async |order: &_, signature| {
        scene.outcome_of(relayer, at, &scene.create_call(order, signature)).await
    };

    let other_spender = scene.sign(&scene.maker, &order, at);
    assert_eq!(refusal(&order, other_spender).await, "InvalidSigner");
    let other_signer = scene.sign(&scene.solver, &order, scene.deployment.escrow);
    assert_eq!(refusal(&order, other_signer).await, "InvalidSigner");
    assert_eq!(refusal(&order, malleated(scene.signed(&order))).await, "ECDSAInvalidSignatureS");
    let mut short = scene.signed(&order);
    short.pop();
    assert_eq!(refusal(&order, short).await, "ECDSAInvalidSignatureLength");

    let mut expired = order.clone();
    expired.permit_deadline = scene.now().await - 1;
    assert_eq!(refusal(&expired, scene.signed(&expired)).await, "PermitExpired");
    let mut above = order.clone();
    above.amount = U256::from(101);
    assert_eq!(refusal(&above, scene.signed(&above)).await, "AmountAbovePermit");

    scene.lock(&order).await;
    let mut replay = order.clone();
    replay.id = key(9).address().into_word();
    assert_eq!(refusal(&replay, scene.signed(&order)).await, "InvalidNonce");
    assert_eq!(refusal(&order, scene.signed(&order)).await, "WrongState");
}

#[tokio::test]
async fn only_the_named_spender_pulls_with_a_permit() {
    let scene = Scene::new().await;
    let order = scene.order(1).await;
    let permit = Permit::PermitSingle {
        token: order.token,
        amount: order.permitted,
        spender: scene.deployment.escrow,
        nonce: order.nonce,
        deadline: U256::from(order.permit_deadline),
    };
    let thief = scene.admin.address();
    let call = Permit::pullCall {
        owner: scene.maker.address(),
        receiver: thief,
        requested: order.amount,
        permit,
        signature: scene.signed(&order).into(),
    };
    let refused = scene.outcome_of(thief, scene.deployment.permit, &call).await;
    assert_eq!(refused, "NotSpender");
}

#[tokio::test]
async fn refund_is_open_exactly_from_the_timelock_on_and_ends_the_order() {
    let scene = Scene::new().await;
    let (at, order) = (scene.deployment.settler, scene.order(1).await);
    scene.lock(&order).await;
    scene.next_block_at(order.timelock).await;
    let refund = scene.refund_call(&order);
    assert!(scene.succeeds(&scene.admin, scene.deployment.escrow, &refund).await);
    assert!(!scene.succeeds(&scene.admin, scene.deployment.escrow, &refund).await, "refunded twice");
    assert!(!scene.succeeds(&scene.admin, at, &scene.cancel_call(&order)).await, "refunded twice");
    assert_eq!(scene.state(order.id).await, 4, "cancelled");
    assert_eq!(scene.balance(scene.maker.address()).await, FUNDS);
}

#[tokio::test]
async fn an_order_cannot_be_locked_after_its_lock_by() {
    let scene = Scene::new().await;
    let (at, relayer) = (scene.deployment.settler, scene.relayer.address());
    let order = scene.order(1).await;
    let create = scene.create_call(&order, scene.signed(&order));
    scene.mine_at(order.lock_by).await;
    assert_eq!(scene.outcome_of(relayer, at, &create).await, "ok", "the last second is in time");
    scene.next_block_at(order.lock_by + 1).await;
    assert!(!scene.succeeds(&scene.relayer, at, &create).await);
    assert_eq!(scene.outcome_of(relayer, at, &create).await, "LockByPassed");
}

#[tokio::test]
async fn a_relayer_cannot_lock_funds_for_longer_than_the_contract_allows() {
    let scene = Scene::new().await;
    let (at, relayer) = (scene.deployment.settler, scene.relayer.address());
    let order = scene.order(1).await;
    let of = |fill_deadline, timelock| Order { fill_deadline, timelock, ..order.clone() };
    let refusal = async |order: Order| {
        scene.outcome_of(relayer, at, &scene.create_call(&order, scene.signed(&order))).await
    };
    let days = 86_400;
    let long = of(order.fill_deadline + 8 * days, order.timelock + 9 * days);
    assert_eq!(refusal(long).await, "WindowTooLong");
    let long = of(order.fill_deadline, order.timelock + 61 * days);
    assert_eq!(refusal(long).await, "WindowTooLong");
    let crossed = of(order.fill_deadline, order.fill_deadline);
    assert_eq!(refusal(crossed).await, "TimelockBeforeDeadline");
}

#[tokio::test]
async fn a_call_with_other_terms_than_the_locked_ones_is_refused() {
    let scene = Scene::new().await;
    let (escrow, order) = (scene.deployment.escrow, scene.order(1).await);
    scene.lock(&order).await;
    let thief = scene.admin.address();
    let terms = scene.escrow_terms(&order);
    let others = [
        ("maker", EscrowTerms::Order { maker: thief, ..terms.clone() }),
        ("solver", EscrowTerms::Order { solver: thief, ..terms.clone() }),
        ("token", EscrowTerms::Order { token: thief, ..terms.clone() }),
        ("amount", EscrowTerms::Order { amount: U256::from(101), ..terms.clone() }),
        ("fill deadline", EscrowTerms::Order { fillDeadline: 1, ..terms.clone() }),
        ("timelock", EscrowTerms::Order { timelock: 1, ..terms.clone() }),
        ("hashlock", EscrowTerms::Order { hashlock: order.id, ..terms.clone() }),
        ("terms", EscrowTerms::Order { terms: order.id, ..terms }),
    ];
    for (field, terms) in others {
        let refund = Escrow::refundCall { id: order.id, order: terms };
        let refused = scene.outcome_of(thief, escrow, &refund).await;
        assert_eq!(refused, "WrongTerms", "another {field}");
    }
}

#[tokio::test]
async fn unauthorized_accounts_are_refused_and_receivers_are_listed() {
    let scene = Scene::new().await;
    let (at, unauthorized) = (scene.deployment.settler, scene.solver.address());
    let order = scene.order(1).await;
    let create = scene.create_call(&order, scene.signed(&order));
    assert_eq!(scene.outcome_of(unauthorized, at, &create).await, "AccessControlUnauthorizedAccount");
    let fill = scene.fill_call(&order);
    assert_eq!(scene.outcome_of(unauthorized, at, &fill).await, "AccessControlUnauthorizedAccount");
    let settle = scene.settle_call(&order);
    assert_eq!(scene.outcome_of(unauthorized, at, &settle).await, "AccessControlUnauthorizedAccount");
    let terms = scene.escrow_terms(&order);
    let back = Escrow::giveBackCall { id: order.id, order: terms.clone(), filled: true };
    let hold = Escrow::fillCall { id: order.id, order: terms.clone() };
    let settled = Escrow::settleCall { id: order.id, order: terms, preimage: order.preimage };
    for by in [unauthorized, scene.relayer.address(), scene.admin.address()] {
        let escrow = scene.deployment.escrow;
        assert_eq!(scene.outcome_of(by, escrow, &back).await, "OnlySettler");
        assert_eq!(scene.outcome_of(by, escrow, &hold).await, "OnlySettler");
        assert_eq!(scene.outcome_of(by, escrow, &settled).await, "OnlySettler");
    }

    let mut elsewhere = create;
    elsewhere.params.order.solver = scene.admin.address();
    let refused = scene.outcome_of(scene.relayer.address(), at, &elsewhere).await;
    assert_eq!(refused, "ReceiverNotAllowed");
}

#[tokio::test]
async fn an_anchor_is_the_submitters_own_event_and_a_repeat_a_later_one() {
    let scene = Scene::new().await;
    let at = scene.deployment.anchor;
    let hash = key(7).address().into_word();
    let call = anchor::ReceiptAnchor::anchorCall { contentHash: hash };
    let first = scene.send(&scene.relayer, TxKind::Call(at), call.abi_encode()).await;
    let again = scene.send(&scene.relayer, TxKind::Call(at), call.abi_encode()).await;
    let other = scene.send(&scene.maker, TxKind::Call(at), call.abi_encode()).await;
    let reported: Vec<_> = [&first, &again, &other]
        .into_iter()
        .flat_map(|receipt| receipt.logs())
        .map(|log| anchor::ReceiptAnchor::Anchored::decode_log(&log.inner).unwrap().data)
        .map(|event| (event.contentHash, event.submitter, event.seq))
        .collect();
    let (ours, theirs) = (scene.relayer.address(), scene.maker.address());
    assert_eq!(reported, [(hash, ours, 1), (hash, ours, 2), (hash, theirs, 3)]);
    let many = anchor::ReceiptAnchor::anchorManyCall { contentHashes: vec![hash, hash, B256::ZERO] };
    let many = scene.send(&scene.relayer, TxKind::Call(at), many.abi_encode()).await;
    let seqs: Vec<u64> = many
        .logs()
        .iter()
        .map(|log| anchor::ReceiptAnchor::Anchored::decode_log(&log.inner).unwrap().seq)
        .collect();
    assert_eq!(seqs, [4, 5, 6]);
    assert_eq!(scene.view(at, anchor::ReceiptAnchor::seqCall {}).await, 6);
}

#[tokio::test]
async fn deploying_again_with_the_record_changes_nothing() {
    let scene = Scene::new().await;
    let mut plan = DeployPlan {
        tokens: vec![TokenSpec { symbol: "USDC".into(), name: "USD Coin".into(), decimals: 6 }],
        solvers: vec![scene.solver.address()],
        relayers: vec![scene.relayer.address()],
        ..DeployPlan::default()
    };
    let before = rpc::head(&scene.provider).await.unwrap().number;
    let record = Some(scene.deployment.clone());
    let again = deploy(&scene.node.rpc_url(), &scene.admin, &plan, record.clone()).await.unwrap();
    assert_eq!(again, scene.deployment);
    assert_eq!(rpc::head(&scene.provider).await.unwrap().number, before);

    plan.tokens.push(TokenSpec { symbol: "WETH".into(), name: "Wrapped Ether".into(), decimals: 18 });
    let more = deploy(&scene.node.rpc_url(), &scene.admin, &plan, record).await.unwrap();
    assert_eq!((more.escrow, more.tokens.len()), (scene.deployment.escrow, 2));
}

/// The same signature with the other `s`, which a careless verifier would also accept.
fn malleated(signature: Vec<u8>) -> Vec<u8> {
    let order = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141";
    let order = U256::from_str_radix(order, 16).expect("64 hex digits");
    let s = U256::from_be_slice(&signature[32..64]);
    let mut other = signature;
    other[32..64].copy_from_slice(&(order - s).to_be_bytes::<32>());
    other[64] = if other[64] == 27 { 28 } else { 27 };
    other
}
