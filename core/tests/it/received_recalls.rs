//! A bank asks for money that was paid to us: two operators answer, once, and the bank gets one file.

use dvp_core::operators::approvals::{ApprovalError, approve};
use dvp_core::operators::received_recalls::{ReceivedRecallError, request};
use dvp_core::operators::requests::Maker;
use dvp_domain::recall::RefusalReason;
use dvp_rails::iso20022::folder::drop_into;
use dvp_store::orders::bank;
use dvp_store::orders::received_recalls::{self as store, ReceivedRecall};

use crate::bank_files::{BankScene, count};

const JO: Maker<'_> = Maker { operator: "jo", reason: "asked the partner", evidence: "mail of 3 May" };

fn asked_back(ids: &[&str]) -> String {
    let payment = |id: &&str| {
        format!(
            "<TxInf><CxlId>C-{id}</CxlId><OrgnlEndToEndId>{id}</OrgnlEndToEndId><OrgnlTxId>T</OrgnlTxId>\
             <OrgnlIntrBkSttlmAmt Ccy=\"USD\">25.00</OrgnlIntrBkSttlmAmt>\
             <CxlRsnInf><Rsn><Cd>DUPL</Cd></Rsn></CxlRsnInf></TxInf>"
        )
    };
    let payments: String = ids.iter().map(payment).collect();
    format!(
        "<Document xmlns=\"urn:iso:std:iso:20022:tech:xsd:camt.056.001.08\"><FIToFIPmtCxlReq>\
         <Assgnmt><Id>A-1</Id><Assgnr><Agt><FinInstnId><BICFI>DEUTDEFF</BICFI></FinInstnId></Agt></Assgnr>\
         <Assgne><Pty><Nm>DVP</Nm></Pty></Assgne><CreDtTm>2026-05-02T09:00:00Z</CreDtTm></Assgnmt>\
         <Undrlyg>{payments}</Undrlyg></FIToFIPmtCxlReq></Document>"
    )
}

impl BankScene {
    async fn receives(&self, name: &str, ids: &[&str]) -> Vec<ReceivedRecall> {
        let content = asked_back(ids);
        drop_into(&self.files.folder().inbox(), name, content.as_bytes()).await.unwrap();
        assert_eq!(self.files.take_in().await.unwrap(), 1);
        let mut conn = self.harness.pool().acquire().await.unwrap();
        store::list(&mut conn, true, 10).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn money_that_a_bank_asks_back_is_answered_once_by_two_operators() {
    let scene = BankScene::new().await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let found = scene.receives("recall", &["DEP-1", "DEP-2"]).await;
    assert_eq!(scene.receives("recall again", &["DEP-2", "DEP-1", "DEP-1"]).await.len(), 2);
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 0, 2));
    let about: Vec<String> =
        bank::list_alarms(&mut conn, 10).await.unwrap().into_iter().map(|one| one.about).collect();
    assert_eq!(about, ["recall", "recall"]);
    let [one, other] = <[_; 2]>::try_from(found).unwrap();
    let (id, refused) = (one.id.as_str(), Some(RefusalReason::Customer));
    let asked = request(&mut conn, id, refused, JO).await.unwrap().approval.id;
    scene.files.send_recall_answers().await.unwrap();
    let outbox = scene.files.folder().outbox();
    assert_eq!(count(outbox.clone()).await, 0, "it waits for another operator");
    let own = approve(&mut conn, &asked, " JO", "mine").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)), "{own:?}");
    approve(&mut conn, &asked, "mika", "read the mail").await.unwrap();
    let again = request(&mut conn, id, None, JO).await;
    assert!(matches!(again, Err(ReceivedRecallError::Answered)), "{again:?}");
    // Several processes at once, and one that was stopped before it noted that the file was sent.
    let tries = futures_util::future::join_all((0..8).map(|_| scene.files.send_recall_answers())).await;
    assert!(tries.iter().all(Result::is_ok), "{tries:?}");
    scene.harness.run("update bank_received_recall set sent_at = null where giving_at is not null").await;
    scene.files.send_recall_answers().await.unwrap();
    assert_eq!(count(outbox.clone()).await, 1);
    let accepted = request(&mut conn, other.id.as_str(), None, JO).await.unwrap().approval.id;
    approve(&mut conn, &accepted, "mika", "read the mail").await.unwrap();
    scene.files.send_recall_answers().await.unwrap();
    let mut sent: Vec<String> = std::fs::read_dir(&outbox)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    sent.sort_by_key(|content| content.contains("ACCR"));
    let says = |content: &str, texts: &[&str]| texts.iter().all(|text| content.contains(text));
    let ids = [one, other].map(|recall| recall.asked.end_to_end_id);
    assert!(says(&sent[0], &["<Conf>RJCR<", "<TxCxlSts>RJCR<", "<Cd>CUST<", &ids[0]]), "{}", sent[0]);
    assert!(says(&sent[1], &["<Conf>CNCL<", "<TxCxlSts>ACCR<", &ids[1]]), "{}", sent[1]);
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 0, 0));
    assert_eq!(scene.receives("recall late", &["DEP-1", "DEP-2"]).await.len(), 0, "both are answered");
    scene.harness.check_books().await;
}
