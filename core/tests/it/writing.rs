//! The group-commit writer: completely or not at all, once, in order.

use dvp_core::engine::{CancelOutcome, EngineError};
use dvp_core::writer::{FixChain, Outcome, Refusal, WriterLimits};
use dvp_domain::decision::Reason;
use dvp_domain::intent::Bounds;
use dvp_domain::money::Minor;
use dvp_store::orders::intents::Tenant;

use crate::proxy::Mode;
use crate::scenes::{self, engine_behind_proxy, key_of, part_of};
use dvp_testing::orders::{order, order_of};
use dvp_testing::wait::wait_for;

/// More than a tenant's share of the queue and one batch take together.
const TOO_MANY: usize = 6_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_share_refuses_its_tenant_at_once_and_others_have_room() {
    let harness = scenes::harness().await;
    let other = harness.other_tenant().await;
    let (engine, proxy) = engine_behind_proxy(&harness, WriterLimits::default()).await;
    proxy.set(Mode::Hang);
    let refusal = |tenant: &Tenant| {
        let (engine, part) = (engine.clone(), key_of(tenant, uuid::Uuid::new_v4(), "/v1/intents"));
        tokio::spawn(async move { engine.keep_refusal(part).await })
    };
    let sent: Vec<_> = (0..TOO_MANY).map(|_| refusal(&harness.tenant)).collect();
    // Nothing can be written, so an answered unit was refused.
    let refused_one = || async { sent.iter().any(tokio::task::JoinHandle::is_finished).then_some(()) };
    wait_for("a refusal", refused_one).await;
    let of_other: Vec<_> = (0..100).map(|_| refusal(&other)).collect();
    proxy.set(Mode::Pass);
    for one in of_other {
        one.await.unwrap().unwrap();
    }
    let (mut written, mut refused) = (100, 0);
    for one in sent {
        match one.await.unwrap() {
            Ok(_) => written += 1,
            Err(EngineError::Busy) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0 && written > 100);
    assert_eq!(harness.count("select count(*) from idempotency").await, written);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_intent_is_stored_completely_when_it_is_answered() {
    let harness = scenes::harness().await;
    let accepted = harness.accept(order("000123456789")).await;
    assert_eq!(harness.events(&accepted.reference).await, ["intent.accepted"]);
    assert_eq!(harness.count("select count(*) from intent where reference is not null").await, 1);
    assert_eq!(harness.count("select count(*) from effect where kind = 'lock'").await, 1);
    assert_eq!(harness.count("select count(*) from permit_use").await, 1);
    let reserved = "select sum(reserved)::int8 from account_balance";
    assert_eq!(harness.count(reserved).await, 9_985);
    assert_eq!(harness.count("select position from feed_counter").await, 1);
    assert_eq!(harness.count("select count(*) from event where observed_at < occurred_at").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_intent_leaves_only_its_id() {
    let harness = scenes::harness().await;
    let mut request = order("000123456789");
    request.beneficiary = None;
    let outcome = harness.submit(request.clone()).await;
    let reason = Reason::BeneficiaryAccountRequiredForFiatOutput;
    assert!(matches!(outcome, Outcome::Rejected { reason: r, .. } if r == reason));
    assert_eq!(harness.count("select count(*) from intent where reason is not null").await, 1);
    for table in
        ["select count(*) from execution", "select count(*) from event", "select count(*) from effect"]
    {
        assert_eq!(harness.count(table).await, 0);
    }
    assert!(matches!(harness.submit(request).await, Outcome::Refused(Refusal::DuplicateIntent)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_of_a_missing_session_fails_alone() {
    let harness = scenes::harness().await;
    let part = part_of("FIX.4.4:DVP->NOBODY", &FixChain::default(), 1, b"");
    let poisoned = harness.engine.commit_fix(&harness.tenant, part);
    let good = futures_util::future::join_all((0..20).map(|_| harness.accept(order("000123456789"))));
    let (failed, accepted) = tokio::join!(poisoned, good);
    assert!(failed.is_err());
    assert_eq!(accepted.len(), 20);
    assert_eq!(harness.count("select count(*) from execution").await, 20);
    assert_eq!(harness.count("select position from feed_counter").await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_releases_everything_and_only_while_accepted() {
    let harness = scenes::harness().await;
    let accepted = harness.accept(order("000123450008")).await;
    let cancel = || harness.engine.cancel(&harness.tenant, &accepted.reference, None);
    assert_eq!(cancel().await.unwrap(), CancelOutcome::Cancelled);
    assert_eq!(cancel().await.unwrap(), CancelOutcome::TooLate);
    assert_eq!(harness.events(&accepted.reference).await, ["intent.accepted", "intent.cancelled"]);
    assert_eq!(harness.count("select sum(reserved)::int8 from account_balance").await, 0);
    assert_eq!(harness.count("select count(*) from effect").await, 0);
    assert_eq!(harness.count("select count(*) from permit_use").await, 0);
    let other_tenant = Tenant { livemode: true, ..harness.tenant.clone() };
    let unknown = harness.engine.cancel(&other_tenant, &accepted.reference, None).await.unwrap();
    assert_eq!(unknown, CancelOutcome::Unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_cancelled_until_its_lock_is_in_a_transaction_or_another_waits_behind_it() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let mut references = Vec::new();
    for _ in 0..3 {
        let reference = harness.accept(order("000123456789")).await.reference;
        harness.wait_for_state(&reference, "locking").await;
        references.push(reference);
    }
    let cancel = async |n: usize| harness.engine.cancel(&harness.tenant, &references[n], None).await.unwrap();
    // In a transaction that nobody has sent yet, and in one that had failed.
    let account = "insert into relayer_account (chain_id, signer, next_nonce) \
                   select chain_id, decode(repeat('0c', 20), 'hex'), 0 from chain_command where reference = $1";
    let signed = "insert into nonce_slot (chain_id, signer, nonce, kind, gas) \
                  select chain_id, decode(repeat('0c', 20), 'hex'), id, kind, 1 from chain_command where reference = $1";
    let carried = "insert into slot_command (chain_id, signer, nonce, command_id, live) \
                   select chain_id, decode(repeat('0c', 20), 'hex'), id, id, false from chain_command where reference = $1";
    for statement in [account, signed, carried] {
        sqlx::query(statement).bind(&references[0]).execute(harness.pool()).await.unwrap();
    }
    assert_eq!(cancel(0).await, CancelOutcome::TooLate);
    // The next permit of the wallet could not be used without this one.
    let later = "insert into permit_use (chain_id, owner, nonce, token, amount, reference) \
                 select chain_id, owner, nonce + 1, token, amount, $1 || '-later' from permit_use where reference = $1";
    sqlx::query(later).bind(&references[1]).execute(harness.pool()).await.unwrap();
    assert_eq!(cancel(1).await, CancelOutcome::TooLate);
    let gone = "delete from permit_use where reference like '%-later'";
    sqlx::query(gone).execute(harness.pool()).await.unwrap();
    for n in [1, 2] {
        assert_eq!(cancel(n).await, CancelOutcome::Cancelled);
        assert_eq!(cancel(n).await, CancelOutcome::TooLate);
        assert_eq!(harness.events(&references[n]).await, ["intent.accepted", "intent.cancelled"]);
    }
    let withdrawn = "select count(*) from chain_command where state = 'failed' and kind = 'create'";
    assert_eq!(harness.count(withdrawn).await, 2);
    assert_eq!(harness.count("select count(*) from permit_use").await, 1);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn amounts_keep_every_digit_of_u128() {
    let harness = scenes::harness().await;
    let mut huge = order_of(u128::MAX, "000123456789");
    huge.bounds = Bounds::ExactInput { input: Minor::new(u128::MAX), min_output: Minor::new(u128::MAX) };
    assert!(matches!(
        harness.submit(huge).await,
        Outcome::Rejected { reason: Reason::NoLiquidity | Reason::BelowMinimumOutput, .. }
    ));
    let kept: (String,) =
        harness.row("select request -> 'bounds' -> 'exact_input' ->> 'input' from intent").await;
    assert_eq!(kept.0, u128::MAX.to_string());
}
