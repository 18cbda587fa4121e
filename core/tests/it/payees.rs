//! Verification of payee: a payment whose payee does not match waits for two operators, or is recalled; any other is
//! released by itself, once.

use dvp_core::operators::operations::Action;
use dvp_rails::iso20022::folder::drop_into;
use dvp_rails::iso20022::payee::{OnMismatch, Payees, Verification};

use crate::bank_files::BankScene;
use crate::scenes::both_decide;

const CHECK: &str = "select payee_check, payee_name, status, alarm from bank_payment";
type Checked = (Option<String>, Option<String>, String, Option<String>);

/// An order whose payment the bank has, and holds until it is released.
async fn ordered(on_mismatch: OnMismatch) -> (BankScene, String) {
    let (mut scene, reference) = BankScene::with_files_by_hand("6789").await;
    scene.files = scene.files.clone().verifying(Payees { verification: Verification::OptIn, on_mismatch });
    (scene, reference)
}

/// The bank reports what it has found. Returns what is known of the payment then.
async fn find(scene: &BankScene, name: &str, status: &str) -> Checked {
    let id = scene.own_id().await;
    let report = format!(
        "<Document xmlns='urn:iso:std:iso:20022:tech:xsd:pain.002.001.10'><CstmrPmtStsRpt><GrpHdr><MsgId>{name}</MsgId>\
         <CreDtTm>2026-11-21T12:00:40</CreDtTm></GrpHdr><OrgnlGrpInfAndSts><OrgnlMsgId>M{id}</OrgnlMsgId>\
         <OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId></OrgnlGrpInfAndSts><OrgnlPmtInfAndSts>\
         <OrgnlPmtInfId>P{id}</OrgnlPmtInfId><TxInfAndSts><OrgnlEndToEndId>{id}</OrgnlEndToEndId>{status}\
         </TxInfAndSts></OrgnlPmtInfAndSts></CstmrPmtStsRpt></Document>"
    );
    drop_into(&scene.files.folder().inbox(), name, report.as_bytes()).await.unwrap();
    assert_eq!(scene.files.take_in().await.unwrap(), 1, "{name}");
    scene.harness.row(CHECK).await
}

fn outbox(scene: &BankScene, ending: &str) -> usize {
    let files = std::fs::read_dir(scene.files.folder().outbox()).unwrap();
    files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().ends_with(ending)).count()
}

fn known(payee: &str, name: Option<&str>) -> (Option<String>, Option<String>) {
    (Some(payee.to_owned()), name.map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_to_another_payee_waits_until_two_operators_release_it() {
    let (scene, reference) = ordered(OnMismatch::Hold).await;
    let early = scene.decide("jo", &reference, Action::ReleasePayee).await;
    assert!(early.unwrap_err().to_string().contains("whose payee does not match"));
    let (payee, name, status, alarm) = find(&scene, "1.xml", "<TxSts>RVNM</TxSts>").await;
    assert_eq!(((payee, name), &*status), (known("no_match", None), "pending"));
    assert!(alarm.unwrap().contains("another name"));
    assert_eq!((scene.files.send_releases().await.unwrap(), outbox(&scene, ".release")), (0, 0));
    assert!(scene.decide("jo", &reference, Action::ReleasePayee).await.unwrap(), "a request");
    assert_eq!(scene.files.send_releases().await.unwrap(), 0);
    both_decide(&scene.harness, &reference, Action::ReleasePayee).await;
    let open = "select count(*) from bank_payment where alarm_cleared_at is null";
    assert_eq!(scene.harness.count(open).await, 0);
    assert_eq!((scene.files.send_releases().await.unwrap(), outbox(&scene, ".release")), (1, 1));
    // A process that stopped before it had recorded that the release was given.
    scene.harness.run("update bank_payment set released_at = null").await;
    std::fs::remove_file(scene.files.folder().outbox().join(format!("{}.release", scene.own_id().await)))
        .unwrap();
    assert_eq!((scene.files.send_releases().await.unwrap(), outbox(&scene, ".release")), (1, 0));
    let amount = scene.amount().await;
    scene.notify("booked.xml", &[(&amount, "<CdtDbtInd>DBIT</CdtDbtInd>", "")]).await;
    scene.harness.wait_for_state(&reference, "releasing").await;
    let late = scene.decide("jo", &reference, Action::ReleasePayee).await;
    assert!(late.unwrap_err().to_string().contains("whose payee does not match"));
    scene.harness.play_chain(&reference).await;
    scene.harness.wait_for_state(&reference, "completed").await;
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_to_its_payee_is_released_once_whatever_the_bank_says_next() {
    let (scene, _) = ordered(OnMismatch::Hold).await;
    let close = "<TxSts>RVMC</TxSts><StsRsnInf><AddtlInf>RVMC Jane  Do</AddtlInf></StsRsnInf>";
    let (payee, name, _, alarm) = find(&scene, "1.xml", close).await;
    assert_eq!(((payee, name), alarm), (known("close_match", Some("Jane Do")), None));
    assert_eq!((scene.files.send_releases().await.unwrap(), outbox(&scene, ".release")), (1, 1));
    for (n, code) in ["RCVC", "RVNA"].into_iter().enumerate() {
        let (.., alarm) = find(&scene, &format!("{n}.xml"), &format!("<TxSts>{code}</TxSts>")).await;
        assert_eq!(alarm, None, "{code}");
    }
    // It may have been paid.
    let (.., alarm) = find(&scene, "4.xml", "<TxSts>RVNM</TxSts>").await;
    assert!(alarm.is_some());
    assert_eq!((scene.files.send_releases().await.unwrap(), outbox(&scene, ".release")), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_to_another_payee_is_recalled_when_it_is_configured_so() {
    let (scene, reference) = ordered(OnMismatch::Recall).await;
    let (.., alarm) = find(&scene, "1.xml", "<TxSts>RVNM</TxSts>").await;
    assert!(alarm.is_some());
    find(&scene, "2.xml", "<TxSts>RVNM</TxSts>").await;
    assert_eq!(scene.files.send_recalls().await.unwrap(), 1, "one recall of two reports");
    assert_eq!((scene.files.send_releases().await.unwrap(), outbox(&scene, ".release")), (0, 0));
    find(&scene, "3.xml", "<TxSts>CANC</TxSts>").await;
    scene.harness.wait_for_state(&reference, "payout_failed").await;
    let (failure,): (serde_json::Value,) =
        scene.harness.row("select state from execution where state_name = 'payout_failed'").await;
    assert!(failure.to_string().contains("payee_not_matched"), "{failure}");
}
