//! The group-commit writer: completely or not at all, once, in order.

use dvp_core::engine::{CancelOutcome, EngineError, SubmitCommand};
use dvp_core::writer::FixChain;
use dvp_core::writer::{Done, IdempotencyPart, Outcome, Refusal, UsedKey, WriterLimits};
use dvp_domain::decision::Reason;
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::money::Minor;
use dvp_domain::permit::PermitDefect;
use dvp_store::orders::intents::Tenant;

use crate::proxy::Mode;
use crate::scenes::{self, engine_behind_proxy};
use crate::scenes::{key_of, part_of};
use dvp_testing::Harness;
use dvp_testing::orders::{order, order_of};
use dvp_testing::wait::wait_for;

fn key(harness: &Harness, uuid: uuid::Uuid, body: &[u8; 32]) -> IdempotencyPart {
    IdempotencyPart { fingerprint: *body, ..key_of(&harness.tenant, uuid, "/v1/intents") }
}

async fn submit_with(harness: &Harness, request: IntentRequest, part: IdempotencyPart) -> Done {
    let command =
        SubmitCommand { tenant: harness.tenant.clone(), request, idempotency: Some(part), fix: None };
    harness.engine.submit(command).await.unwrap()
}

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
async fn an_intent_id_and_a_client_reference_are_used_once() {
    let harness = scenes::harness().await;
    let first = order("000123456789");
    harness.accept(first.clone()).await;
    assert!(matches!(harness.submit(first.clone()).await, Outcome::Refused(Refusal::DuplicateIntent)));
    let mut other = order("000123456789");
    other.client_reference = first.client_reference;
    assert!(matches!(harness.submit(other).await, Outcome::Refused(Refusal::DuplicateClientReference)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_of_another_wallet_or_order_is_refused() {
    let harness = scenes::harness().await;
    let first = order("000123456789");
    let mut stolen = order("000123456789");
    stolen.permit = first.permit.clone();
    let refused = |outcome: Outcome| match outcome {
        Outcome::Refused(Refusal::InvalidPermit(defect)) => defect,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(harness.submit(stolen).await), PermitDefect::Signer);
    harness.accept(first.clone()).await;
    let again = IntentRequest { intent_id: "again".into(), client_reference: None, ..first };
    assert_eq!(refused(harness.submit(again).await), PermitDefect::NonceHeld { next: 1 });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_repeats_its_answer_and_conflicts_with_another_request() {
    let harness = scenes::harness().await;
    let (uuid, request) = (uuid::Uuid::new_v4(), order("000123456789"));
    let first = submit_with(&harness, request.clone(), key(&harness, uuid, &[1; 32])).await;
    let again = submit_with(&harness, request.clone(), key(&harness, uuid, &[1; 32])).await;
    assert!(matches!(again.outcome, Outcome::KeyUsed(UsedKey::Replayed(_))));
    assert_eq!(again.response, first.response);
    let other = submit_with(&harness, order("000123456789"), key(&harness, uuid, &[2; 32])).await;
    assert!(matches!(other.outcome, Outcome::KeyUsed(UsedKey::Conflict)));
    assert_eq!(harness.count("select count(*) from intent").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_record_is_a_new_request() {
    let harness = scenes::harness().await;
    let uuid = uuid::Uuid::new_v4();
    submit_with(&harness, order("000123456789"), key(&harness, uuid, &[1; 32])).await;
    harness.run("update idempotency set accepted_at = now() - interval '25 hours'").await;
    let later = submit_with(&harness, order("000123456789"), key(&harness, uuid, &[2; 32])).await;
    assert!(matches!(later.outcome, Outcome::Accepted(_)));
    assert_eq!(harness.count("select count(*) from idempotency").await, 1);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signature_for_the_same_permit_is_refused() {
    let harness = scenes::harness().await;
    let mut request = order("000123456789");
    let permit = request.permit.clone().unwrap();
    let bytes = hex::decode(permit.signature.trim_start_matches("0x")).unwrap();
    let signature = alloy::primitives::Signature::from_raw(&bytes).unwrap();
    let order =
        alloy::primitives::uint!(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141_U256);
    let high = alloy::primitives::Signature::new(signature.r(), order - signature.s(), !signature.v());
    let malleable =
        dvp_domain::intent::Permit { signature: format!("0x{}", hex::encode(high.as_bytes())), ..permit };
    request.permit = Some(malleable);
    assert!(matches!(harness.submit(request).await, Outcome::Refused(Refusal::InvalidPermit(_))));
}
