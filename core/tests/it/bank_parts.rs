//! Parts of the bank's files that do not count: two operators read each, and what they have read counts once.

use std::time::Duration;

use chrono::Utc;
use dvp_core::operators::approvals::{ApprovalError, approve};
use dvp_core::operators::bank_parts::{PartError, PartWord, request_application, request_dismissal};
use dvp_core::operators::operations::bank_alarms::{ClearError, clear};
use dvp_core::operators::requests::Maker;
use dvp_rails::iso20022::folder::drop_into;
use dvp_rails::{Rail as _, RailRequest};
use dvp_store::orders::bank;
use dvp_store::orders::bank_messages;
use dvp_store::orders::bank_parts::{self as store, FilePart};

use crate::bank_files::{BankScene, count, request};
use crate::bank_returns::DEBIT;

const JO: Maker<'_> = Maker { operator: "jo", reason: "asked the bank", evidence: "mail of 3 May" };
const UNREAD: &str = "<CdtDbtInd>OUT</CdtDbtInd>";

impl BankScene {
    /// The hash of the only file with an alarm, its text and its parts.
    async fn alarmed(&self) -> (String, String, Vec<FilePart>) {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let alarms = bank::list_alarms(&mut conn, 10).await.unwrap();
        let [file] = <[_; 1]>::try_from(alarms).unwrap();
        let digest = hex::decode(&file.subject).unwrap();
        let content = store::find_file(&mut conn, &digest).await.unwrap().unwrap().content.unwrap();
        (file.subject, content, store::list(&mut conn, &digest).await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_two_operators_read_counts_once_for_its_payment() {
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    let amount = scene.amount().await;
    scene.notify("1.xml", &[(&amount, UNREAD, "")]).await;
    assert_eq!(count(scene.files.folder().quarantine()).await, 1);
    let (file, content, parts) = scene.alarmed().await;
    let [part] = <[_; 1]>::try_from(parts).unwrap();
    let text = part.text_in(&content).unwrap();
    assert!(text.starts_with("<Ntry><Amt") && text.ends_with("</TxDtls></NtryDtls></Ntry>"), "{text}");
    assert_eq!(part.why, "entry 1 of 1.xml: CdtDbtInd is OUT");

    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let paid = || PartWord::Paid { at: Utc::now(), amount: None };
    let refused = request_application(&mut conn, (&file, 1), "exe_none", paid(), JO).await;
    assert!(matches!(refused, Err(PartError::NoPayment(_))), "{refused:?}");
    let refused = request_application(&mut conn, (&file, 2), &reference, paid(), JO).await;
    assert!(matches!(refused, Err(PartError::NoPart(2))), "{refused:?}");
    let too_much =
        PartWord::Returned { at: Utc::now(), amount: Some("999999999999".into()), code: "AC04".into() };
    let refused = request_application(&mut conn, (&file, 1), &reference, too_much, JO).await;
    assert!(matches!(refused, Err(PartError::Amount(..))), "{refused:?}");
    let tomorrow = PartWord::Paid { at: Utc::now() + chrono::TimeDelta::days(1), amount: None };
    let refused = request_application(&mut conn, (&file, 1), &reference, tomorrow, JO).await;
    assert!(matches!(refused, Err(PartError::Later(_))), "{refused:?}");
    let alone = clear(&mut conn, &file, "jo", "asked the bank").await;
    assert!(matches!(alone, Err(ClearError::NoAlarm(_))), "{alone:?}");

    let asked = request_application(&mut conn, (&file, 1), &reference, paid(), JO).await.unwrap().approval;
    assert_eq!(asked.details["applied"]["endToEndId"], scene.own_id().await, "{}", asked.details);
    let own = approve(&mut conn, &asked.id, "JO ", "mine").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)), "{own:?}");
    assert_eq!(scene.harness.count("select count(*) from bank_payment where status = 'sent'").await, 1);
    approve(&mut conn, &asked.id, "mika", "read the file").await.unwrap();
    let again = request_application(&mut conn, (&file, 1), &reference, paid(), JO).await;
    assert!(matches!(again, Err(PartError::NoPart(1))), "{again:?}");
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 0, 0));
    scene.harness.play_until(&reference, |kind| kind == "settle").await;
    scene.harness.wait_for_state(&reference, "completed").await;
    // The bank sends it anew, as it should have been.
    scene.notify("2.xml", &[(&amount, DEBIT, "")]).await;
    assert_eq!(scene.alarm(&reference).await, None);
    let said = bank_messages::list(&mut conn, &reference).await.unwrap();
    let said: Vec<(&str, &str)> = said.iter().map(|one| (one.said.as_str(), one.file.as_str())).collect();
    let named = (store::NOT_UNDERSTOOD, "1.xml");
    assert_eq!(said[1..], [named, ("paid", "1.xml"), ("paid", "2.xml")], "{said:?}");
    bank_messages::erase_documents(&mut conn, &reference).await.unwrap();
    let digest = hex::decode(&file).unwrap();
    let kept = store::find_file(&mut conn, &digest).await.unwrap().unwrap();
    assert_eq!((kept.content, kept.refusal.as_deref()), (None, Some("[erased]")), "it names the order");
    let parts = store::list(&mut conn, &digest).await.unwrap();
    assert_eq!(parts.iter().map(|part| part.why.as_str()).collect::<Vec<_>>(), ["[erased]"]);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_read_against_the_banks_earlier_word_is_a_contradiction() {
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    let amount = scene.amount().await;
    scene.notify("1.xml", &[(&amount, DEBIT, "")]).await;
    scene.notify("2.xml", &[(&amount, UNREAD, "")]).await;
    let (file, ..) = scene.alarmed().await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let word = PartWord::Refused { code: "AC04".into() };
    let asked = request_application(&mut conn, (&file, 1), &reference, word, JO).await.unwrap().approval.id;
    approve(&mut conn, &asked, "mika", "read the file").await.unwrap();
    assert_eq!(scene.alarm(&reference).await.as_deref(), Some("refused after it was paid"));
    assert_eq!(scene.harness.count("select count(*) from bank_payment where status = 'paid'").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_file_is_decided_before_its_alarm_ends() {
    let scene = BankScene::new().await;
    let entry = |amount: &str| {
        format!(
            "<Ntry><Amt Ccy='USD'>{amount}</Amt><CdtDbtInd>DBIT</CdtDbtInd><Sts><Cd>BOOK</Cd></Sts><BkTxCd/><NtryDtls>\
             <TxDtls><Refs><EndToEndId>E1</EndToEndId></Refs></TxDtls></NtryDtls></Ntry>"
        )
    };
    let file = |entries: &str| {
        format!(
            "<Document xmlns='urn:iso:std:iso:20022:tech:xsd:camt.054.001.08'><BkToCstmrDbtCdtNtfctn><GrpHdr>\
             <MsgId>N</MsgId><CreDtTm>2026-11-21T12:00:40Z</CreDtTm></GrpHdr><Ntfctn><Id>N</Id><Acct><Id><Othr>\
             <Id>400500600</Id></Othr></Id></Acct>{entries}</Ntfctn></BkToCstmrDbtCdtNtfctn></Document>"
        )
    };
    let content = file(&[entry("one"), entry("1.00"), entry("two"), entry("three")].concat());
    for name in ["first", "again"] {
        drop_into(&scene.files.folder().inbox(), name, content.as_bytes()).await.unwrap();
        assert_eq!(scene.files.take_in().await.unwrap(), 1);
    }
    let (digest, text, parts) = scene.alarmed().await;
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.text_in(&text)).collect();
    assert_eq!(texts, [entry("one"), entry("two"), entry("three")]);
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let second = request_dismissal(&mut conn, &digest, Some(2), JO).await.unwrap().approval.id;
    let rest = request_dismissal(&mut conn, &digest, None, JO).await.unwrap().approval.id;
    for asked in [&second, &rest] {
        assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 1, 0));
        let alone = clear(&mut conn, &digest, "jo", "asked the bank").await;
        assert!(matches!(alone, Err(ClearError::NoAlarm(_))), "{alone:?}");
        approve(&mut conn, asked, "mika", "read the file").await.unwrap();
    }
    let none = request_dismissal(&mut conn, &digest, None, JO).await;
    assert!(matches!(none, Err(PartError::NoParts)), "{none:?}");
    // A payment that nobody knows is left, which is no part that does not count.
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 1, 0));
    clear(&mut conn, &digest, "jo", "asked the bank").await.unwrap();
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 0, 0));
    let kept = "select count(*) from operator_action where action = 'clear_bank_alarm' and operator = 'jo'";
    assert_eq!(scene.harness.count(kept).await, 1);

    let many = file(&[entry("1.00"), entry("x").repeat(300)].concat());
    drop_into(&scene.files.folder().inbox(), "many", many.as_bytes()).await.unwrap();
    assert_eq!(scene.files.take_in().await.unwrap(), 1);
    let (.., parts) = scene.alarmed().await;
    assert_eq!(parts.len(), 200);
    assert!(
        parts[199].why.starts_with("101 other parts, the first of them: entry 201 of N"),
        "{}",
        parts[199].why
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_names_several_payments_is_open_until_each_has_its_word() {
    let scene = BankScene::new().await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    for (reference, execution) in [("a", "exe_x"), ("b", "exe_y"), ("c", "exe_z")] {
        let request = RailRequest { execution: execution.to_owned(), ..request(reference, false) };
        scene.files.submit(&request).await.unwrap();
    }
    let ids: Vec<String> = sqlx::query_scalar("select end_to_end_id from bank_payment order by execution")
        .fetch_all(scene.harness.pool())
        .await
        .unwrap();
    let of = |id: &String| format!("<TxDtls><Refs><EndToEndId>{id}</EndToEndId></Refs></TxDtls>");
    let content = format!(
        "<Document xmlns='urn:iso:std:iso:20022:tech:xsd:camt.054.001.08'><BkToCstmrDbtCdtNtfctn><GrpHdr>\
         <MsgId>N</MsgId><CreDtTm>2026-11-21T12:00:40Z</CreDtTm></GrpHdr><Ntfctn><Id>N</Id><Acct><Id><Othr>\
         <Id>400500600</Id></Othr></Id></Acct><Ntry><Amt Ccy='USD'>198.70</Amt><CdtDbtInd>OUT</CdtDbtInd><Sts>\
         <Cd>BOOK</Cd></Sts><BkTxCd/><NtryDtls>{}{}</NtryDtls></Ntry></Ntfctn></BkToCstmrDbtCdtNtfctn></Document>",
        of(&ids[0]),
        of(&ids[1])
    );
    drop_into(&scene.files.folder().inbox(), "batch", content.as_bytes()).await.unwrap();
    scene.files.clone().settling_after(Duration::ZERO).take_in().await.unwrap();
    let (file, ..) = scene.alarmed().await;
    let paid = || PartWord::Paid { at: Utc::now(), amount: None };
    let other = request_application(&mut conn, (&file, 1), "exe_z", paid(), JO).await;
    assert!(matches!(other, Err(PartError::NotNamed(_))), "{other:?}");
    for (execution, open) in [("exe_x", 1), ("exe_y", 0)] {
        let asked = request_application(&mut conn, (&file, 1), execution, paid(), JO).await.unwrap();
        approve(&mut conn, &asked.approval.id, "mika", "read the file").await.unwrap();
        assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, open, 0), "{execution}");
    }
    assert_eq!(scene.harness.count("select count(*) from bank_payment where status = 'paid'").await, 2);
    // The same file again, read otherwise by another version: what is new is an alarm again.
    let digest: [u8; 32] = hex::decode(&file).unwrap().try_into().unwrap();
    for (why, added) in [("entry 1 of N: CdtDbtInd is OUT", 0), ("something else", 1), ("something else", 0)]
    {
        let span = store::list(&mut conn, &digest).await.unwrap()[0].span();
        let span = span.map(|span| (i32::try_from(span.start).unwrap(), i32::try_from(span.end).unwrap()));
        let new = store::NewPart { why: why.to_owned(), span };
        assert_eq!(store::insert(&mut conn, &digest, &[new]).await.unwrap(), added, "{why}");
    }
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 1, 0));
    // Nothing is said of a payment that the bank does not have.
    scene
        .harness
        .run("update bank_payment set status = 'staged', giving_at = null where execution = 'exe_x'")
        .await;
    let staged = request_application(&mut conn, (&file, 2), "exe_x", paid(), JO).await;
    assert!(matches!(staged, Err(PartError::NoPayment(_))), "{staged:?}");
}
