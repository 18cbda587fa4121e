//! Recalls of payments: two operators want one, the bank gets one file of it wherever a process stops, and answers in any
//! order, late, twice and wrong.

use dvp_core::operators::operations::{Action, ResolveError};
use dvp_domain::payment::PaymentSubject;
use dvp_domain::recall::{RecallReason, RecallStatus, RecallSubject};
use dvp_domain::reconcile::BreakKind;
use dvp_rails::iso20022::folder::drop_into;
use dvp_store::orders::bank::{self, BankAlarm};
use dvp_store::orders::recalls::{self, Answered, Recall, RecallFilter};
use dvp_testing::wait::wait_for;

use crate::bank_files::{BankScene, count, stopped};
use crate::scenes::both_decide;

pub(crate) const RECALL: Action = Action::Recall { reason: RecallReason::Duplicate, information: None };

async fn listed(scene: &BankScene, reference: &str) -> Vec<Recall> {
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let filter = RecallFilter { execution: Some(reference), limit: 10, ..RecallFilter::default() };
    recalls::list(&mut conn, &filter).await.unwrap()
}

async fn the_only(scene: &BankScene, reference: &str) -> Recall {
    let mut found = listed(scene, reference).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Waits until the only recall has a status.
async fn has_status(scene: &BankScene, reference: &str, status: RecallStatus) -> Recall {
    wait_for(status.as_str(), || async {
        let found = listed(scene, reference).await;
        (found.len() == 1 && found[0].status == status).then(|| found[0].clone())
    })
    .await
}

/// An order that the bank has paid.
async fn paid(suffix: &str) -> (BankScene, String) {
    let scene = BankScene::new().await;
    scene.work();
    let reference = scene.run(suffix, "completed").await;
    // The receipt's anchor changes the settlement once more.
    let paid = "select count(*) from bank_payment where status = 'paid'";
    scene.harness.wait_for_count(paid, 1).await;
    (scene, reference)
}

async fn alarms(scene: &BankScene) -> Vec<String> {
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let found: Vec<BankAlarm> = bank::list_alarms(&mut conn, 10).await.unwrap();
    found.into_iter().filter(|one| one.about == "payment").map(|one| one.alarm).collect()
}

fn refused(decided: Result<bool, ResolveError>) -> String {
    decided.expect_err("nothing was decided").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_recall_ends_by_the_return_of_the_payment() {
    let (scene, reference) = paid("6789").await;
    let none = "select count(*) from bank_recall";
    assert!(scene.decide("jo", &reference, RECALL).await.unwrap());
    assert!(scene.decide(" JO ", &reference, RECALL).await.unwrap(), "the same operator decides nothing");
    let other = Action::Recall { reason: RecallReason::Fraud, information: None };
    assert!(refused(scene.decide("mika", &reference, other).await).contains("waits for approval"));
    assert_eq!(scene.harness.count(none).await, 0);
    assert!(!scene.decide("mika", &reference, RECALL).await.unwrap());
    let done = has_status(&scene, &reference, RecallStatus::Recalled).await;
    assert!(done.sent_at.is_some() && done.answered_at.is_some() && done.contradicting.is_none(), "{done:?}");
    assert_eq!(scene.bank.count_recalls().await.unwrap(), 1);
    scene.harness.wait_for_state(&reference, "reversed").await;
    assert_eq!(scene.breaks().await, [BreakKind::PaymentReturned]);
    assert!(refused(scene.decide("jo", &reference, RECALL).await).contains("has come back"));
    assert!(
        refused(scene.decide("jo", &reference, Action::CloseRecall).await).contains("the end of a recall")
    );
    let kept = "select count(*) from operator_action where action in ('propose_recall', 'recall')";
    assert_eq!(scene.harness.count(kept).await, 2);
    let audited = "select count(*) from audit_entry where source = 'operator_action' \
                   and entry::jsonb ->> 'action' in ('propose_recall', 'recall')";
    assert_eq!(scene.harness.count(audited).await, 2);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_recall_is_closed_with_its_reason_and_may_be_requested_again() {
    let (scene, reference) = paid("0021").await;
    both_decide(&scene.harness, &reference, RECALL).await;
    let rejected = has_status(&scene, &reference, RecallStatus::Rejected).await;
    let said = (rejected.answer_reason.as_deref(), rejected.answer_text.as_deref());
    assert_eq!(said, (Some("CUST"), Some("the recall was refused")));
    assert_eq!(scene.breaks().await, []);
    assert_eq!(scene.harness.count("select count(*) from execution where state_name = 'completed'").await, 1);
    both_decide(
        &scene.harness,
        &reference,
        Action::Recall { reason: RecallReason::Fraud, information: None },
    )
    .await;
    wait_for("the second answer", || async {
        let found = listed(&scene, &reference).await;
        (found.len() == 2 && found.iter().all(|one| one.status == RecallStatus::Rejected)).then_some(())
    })
    .await;
    assert_eq!(scene.bank.count_recalls().await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_payment_that_is_recalled_is_never_made() {
    let scene = BankScene::new().await;
    scene.work();
    let reference = scene.harness.accept(crate::bank_files::inline("0007")).await.reference;
    scene.harness.play_until(&reference, |kind| kind == "fill").await;
    scene.harness.wait_for_count("select count(*) from bank_payment where status = 'sent'", 1).await;
    scene.harness.wait_for_count("select count(*) from event where type = 'payout.in_progress'", 1).await;
    both_decide(&scene.harness, &reference, RECALL).await;
    has_status(&scene, &reference, RecallStatus::Recalled).await;
    scene.harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(scene.breaks().await, []);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_recall_without_a_return_is_a_break_until_it_is_closed() {
    let (scene, reference) = paid("0023").await;
    both_decide(&scene.harness, &reference, RECALL).await;
    has_status(&scene, &reference, RecallStatus::Accepted).await;
    assert_eq!(scene.breaks().await, [], "it may take a while");
    assert!(refused(scene.decide("jo", &reference, RECALL).await).contains("is being recalled"));
    let earlier = "update bank_recall set answered_at = answered_at - interval '6 days'";
    scene.harness.run(earlier).await;
    assert_eq!(scene.breaks().await, [BreakKind::RecallNotReturned]);
    assert!(scene.decide("jo", &reference, Action::CloseRecall).await.unwrap());
    assert_eq!(scene.breaks().await, [BreakKind::RecallNotReturned], "one operator closes nothing");
    assert!(!scene.decide("mika", &reference, Action::CloseRecall).await.unwrap());
    assert_eq!(scene.breaks().await, []);
    assert!(the_only(&scene, &reference).await.closed_at.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn late_repeated_partial_and_broken_answers_count_once_each() {
    let scene = BankScene::new().await;
    scene.work();
    let runs = ["0022", "0025", "0026", "0028"].map(|suffix| scene.run(suffix, "completed"));
    let references = futures_util::future::join_all(runs).await;
    scene.harness.wait_for_count("select count(*) from bank_payment where status = 'paid'", 4).await;
    for reference in &references {
        both_decide(&scene.harness, reference, RECALL).await;
    }
    let [late, broken, partly, silent] = &references[..] else { panic!("four orders") };
    for reference in [late, broken, silent] {
        let done = has_status(&scene, reference, RecallStatus::Recalled).await;
        assert_eq!(done.answered_at.is_none(), reference == silent, "{done:?}");
        scene.harness.wait_for_state(reference, "reversed").await;
    }
    has_status(&scene, partly, RecallStatus::Accepted).await;
    assert!(alarms(&scene).await.contains(&"the bank gives a part of the recalled payment back".to_owned()));
    // Garbage and half an answer; and the answer beside ours is somebody else's.
    let refused = "select count(*) from bank_file where refusal is not null";
    scene.harness.wait_for_count(refused, 2).await;
    assert_eq!(scene.harness.count("select sum(unknown)::int8 from bank_file").await, 1);
    let contradicted = "select count(*) from bank_recall where contradicting is not null";
    assert_eq!(scene.harness.count(contradicted).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_contradicts_another_is_a_break_until_it_is_closed() {
    let (scene, reference) = paid("0024").await;
    both_decide(&scene.harness, &reference, RECALL).await;
    // The bank gave the payment back after all.
    scene.harness.wait_for_state(&reference, "reversed").await;
    let recall = the_only(&scene, &reference).await;
    assert_eq!((recall.status, recall.contradicting.as_deref()), (RecallStatus::Rejected, Some("accepted")));
    assert_eq!(scene.breaks().await, [BreakKind::PaymentReturned, BreakKind::RecallContradicted]);
    both_decide(&scene.harness, &reference, Action::CloseRecall).await;
    assert_eq!(scene.breaks().await, [BreakKind::PaymentReturned]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_a_recall_that_was_never_requested_is_a_break() {
    let (scene, reference) = paid("0027").await;
    let recall = has_status(&scene, &reference, RecallStatus::Unrequested).await;
    assert_eq!((recall.reason, recall.contradicting.as_deref()), (None, Some("accepted")));
    assert_eq!(scene.breaks().await, [BreakKind::RecallContradicted]);
    assert_eq!(alarms(&scene).await, ["the bank answered a recall that was never requested"]);
    both_decide(&scene.harness, &reference, Action::CloseRecall).await;
    assert_eq!(scene.breaks().await, []);
    // The same file again opens nothing.
    let inbox = scene.files.folder().inbox();
    let content = scene.archived("camt.029").await;
    drop_into(&inbox, "again.xml", &content).await.unwrap();
    wait_for("the import", || async { (count(inbox.clone()).await == 0).then_some(()) }).await;
    assert_eq!(scene.breaks().await, []);
    assert_eq!(scene.harness.count("select count(*) from bank_recall").await, 1);
}

/// An order whose payment the bank has, over files that the test moves itself.
async fn by_hand() -> (BankScene, String) {
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    both_decide(&scene.harness, &reference, RECALL).await;
    (scene, reference)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bank_gets_one_file_of_a_recall_wherever_a_process_stops() {
    let (scene, reference) = by_hand().await;
    let (files, pool) = (&scene.files, scene.harness.pool());
    let outbox = files.folder().outbox();
    let orders = count(outbox.clone()).await;
    // Many processes at once.
    let tries = futures_util::future::join_all((0..8).map(|_| files.send_recalls())).await;
    assert!(tries.iter().all(Result::is_ok), "{tries:?}");
    files.send_recalls().await.unwrap();
    assert_eq!(count(outbox.clone()).await, orders + 1);
    scene.bank.turn().await.unwrap();
    // Stopped before the row said that the file was sent.
    let unsent = "update bank_recall set status = 'approved', sent_at = null";
    sqlx::query(unsent).execute(pool).await.unwrap();
    assert_eq!(files.send_recalls().await.unwrap(), 1);
    assert_eq!(count(outbox.clone()).await, 0, "it is not given again");
    assert_eq!(scene.bank.count_recalls().await.unwrap(), 1);
    assert_eq!(the_only(&scene, &reference).await.status, RecallStatus::Sent);
    // Stopped between the name of the file and its move, and the staged file was lost: it never was at the bank.
    let early = "update bank_recall set status = 'approved', sent_at = null, giving_at = null, staged_file = 'lost.xml'";
    sqlx::query(early).execute(pool).await.unwrap();
    assert_eq!(files.send_recalls().await.unwrap(), 1);
    assert_eq!(count(outbox).await, 1);
    scene.bank.turn().await.unwrap();
    let folder = scene.bank_folder().join("recalls");
    let one = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
    let contents: Vec<String> = one.filter(|content| content.contains("camt.056")).collect();
    assert_eq!(contents.len(), 2);
    assert_eq!(contents[0], contents[1], "the bank can tell that it is the same request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_is_not_needed_or_withdrawn_is_never_sent() {
    let (scene, reference) = by_hand().await;
    both_decide(&scene.harness, &reference, Action::CloseRecall).await;
    assert_eq!(the_only(&scene, &reference).await.status, RecallStatus::Withdrawn);
    assert_eq!(scene.files.send_recalls().await.unwrap(), 0);
    both_decide(&scene.harness, &reference, RECALL).await;
    // The bank's refusal arrives before the request is sent.
    let refused = "update bank_payment set status = 'refused', reason = 'AC04'";
    scene.harness.run(refused).await;
    assert_eq!(scene.files.send_recalls().await.unwrap(), 0);
    let statuses = listed(&scene, &reference).await.iter().map(|one| one.status).collect::<Vec<_>>();
    assert_eq!(statuses, [RecallStatus::NotNeeded, RecallStatus::Withdrawn]);
    scene.bank.turn().await.unwrap();
    assert_eq!(scene.bank.count_recalls().await.unwrap(), 0);
    let again = refused_text(&scene, &reference).await;
    assert!(again.contains("has refused the payment"), "{again}");
}

async fn refused_text(scene: &BankScene, reference: &str) -> String {
    refused(scene.decide("jo", reference, RECALL).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_the_bank_does_not_have_is_not_recalled() {
    let scene = BankScene::new().await;
    let reference = scene.harness.accept(crate::bank_files::inline("6789")).await.reference;
    assert!(refused_text(&scene, &reference).await.contains("cancel the order"));
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    let staged = "update bank_payment set status = 'staged', giving_at = null";
    scene.harness.run(staged).await;
    assert!(refused_text(&scene, &reference).await.contains("was not given to the bank"));
    let long = Action::Recall { reason: RecallReason::Customer, information: Some("x".repeat(106)) };
    scene.harness.run("update bank_payment set status = 'sent', giving_at = now()").await;
    assert!(refused(scene.decide("jo", &reference, long).await).contains("105 characters"));
    // Another decision about the order waits for approval.
    scene.accept_recall().await;
    assert!(scene.decide("jo", &reference, stopped()).await.unwrap());
    assert!(refused_text(&scene, &reference).await.contains("waits for approval"));
    // Operators gave the payment up, and the bank may make it still: it can be recalled.
    assert!(!scene.decide("mika", &reference, stopped()).await.unwrap());
    scene.harness.wait_for_state(&reference, "payout_failed").await;
    both_decide(&scene.harness, &reference, RECALL).await;
    assert!(listed(&scene, &reference).await.iter().any(|one| one.status == RecallStatus::Approved));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_made_after_it_was_given_up_comes_back_by_its_recall() {
    let (scene, reference) = BankScene::with_unanswered("6789").await;
    scene.give_up(&reference).await;
    scene.harness.wait_for_state(&reference, "payout_failed").await;
    tokio::spawn(scene.bank.clone().run(scene.stop.subscribe()));
    scene.has_alarm(&reference, "paid after the payout was given up").await;
    both_decide(&scene.harness, &reference, RECALL).await;
    wait_for("the return", || async {
        let found = listed(&scene, &reference).await;
        found.iter().any(|one| one.status == RecallStatus::Recalled).then_some(())
    })
    .await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted], "until operators have closed it");
    both_decide(&scene.harness, &reference, Action::CloseContradiction).await;
    assert_eq!(scene.breaks().await, []);
    // Nothing waits for an order that has ended.
    scene.harness.wait_for_count("select count(*) from effect", 0).await;
    assert_eq!(
        scene.harness.count("select count(*) from execution where state_name = 'payout_failed'").await,
        1
    );
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_names_a_case_and_another_payment_is_about_neither() {
    let (scene, reference) = by_hand().await;
    scene.files.send_recalls().await.unwrap();
    let recall = the_only(&scene, &reference).await;
    let mut tx = scene.harness.pool().begin().await.unwrap();
    let payment = |id: &str| Some(PaymentSubject::Payment(id.to_owned()));
    let case = Some(recall.id.as_str().to_owned());
    for (case, payment, is_known) in [
        (case.clone(), None, true),
        (case.clone(), payment(&recall.end_to_end_id), true),
        (None, payment(&recall.end_to_end_id), true),
        (Some("rcl_of_the_bank".to_owned()), payment(&recall.end_to_end_id), true),
        (case, payment("ANOTHER"), false),
        (Some("rcl_of_the_bank".to_owned()), None, false),
        (None, None, false),
    ] {
        let of = RecallSubject { case, payment };
        let found = recalls::lock_answered(&mut tx, &of).await.unwrap();
        match found {
            Answered::Recall(found) => assert!(is_known && found.id == recall.id, "{of:?}"),
            Answered::Unknown => assert!(!is_known, "{of:?}"),
            Answered::Unrequested(_) => panic!("{of:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recall_that_the_bank_never_answers_is_a_break() {
    let (scene, reference) = by_hand().await;
    scene.files.send_recalls().await.unwrap();
    assert_eq!(scene.breaks().await, []);
    let long_ago = "update bank_recall set sent_at = sent_at - interval '22 days'";
    scene.harness.run(long_ago).await;
    assert_eq!(scene.breaks().await, [BreakKind::RecallUnanswered]);
    both_decide(&scene.harness, &reference, Action::CloseRecall).await;
    assert_eq!(scene.breaks().await, []);
    assert_eq!(the_only(&scene, &reference).await.status, RecallStatus::Sent);
}
