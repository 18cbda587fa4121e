//! Incomplete, huge, unreadable or badly named files of the bank, and missing staged files: each is handled separately.

use std::time::Duration;

use dvp_core::operators::approvals::approve;
use dvp_core::operators::bank_parts::request_dismissal;
use dvp_core::operators::operations::bank_alarms::{ClearError, clear};
use dvp_core::operators::requests::Maker;
use dvp_domain::settlement::RailAnswer;
use dvp_rails::iso20022::folder::drop_into;
use dvp_rails::iso20022::instruction::{end_to_end_id, uetr};
use dvp_rails::iso20022::xml::BYTES_MAX;
use dvp_rails::iso20022::{BankFiles, FILE_MISSING};
use dvp_rails::{Rail as _, RailError, RailStatus};
use dvp_store::orders::{bank, bank_parts};
use tokio::fs;

use crate::bank_files::{BankScene, count, request};

const OPEN: &str = "select count(*) from bank_file where refusal is not null and cleared_at is null";

/// The bank's two answers to a payment, which then counts as paid.
async fn answers(scene: &BankScene) -> Vec<(String, Vec<u8>)> {
    let inbox = scene.files.folder().inbox();
    let mut found = Vec::new();
    for name in scene.files.folder().list_inbox().await.unwrap() {
        found.push((name.clone(), fs::read(inbox.join(&name)).await.unwrap()));
        fs::remove_file(inbox.join(&name)).await.unwrap();
    }
    found
}

async fn answered(scene: &BankScene, reference: &str) -> Vec<(String, Vec<u8>)> {
    scene.files.submit(&request(reference, false)).await.unwrap();
    scene.bank.turn().await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    scene.bank.turn().await.unwrap();
    answers(scene).await
}

async fn is_paid(scene: &BankScene, reference: &str) -> bool {
    let status = scene.files.status(&request(reference, false)).await.unwrap();
    matches!(status, RailStatus::Known(RailAnswer::Done(_)))
}

/// The database ends the connection that imports this file.
async fn unavailable_at(scene: &BankScene, name: &str) {
    let trigger = format!(
        "create function away() returns trigger language plpgsql as \
         $$ begin if new.name = '{name}' then raise exception using errcode = '57P01'; end if; return new; end $$; \
         create trigger away before insert on bank_file for each row execute function away()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(scene.harness.pool()).await.unwrap();
}

fn patient(scene: &BankScene) -> BankFiles {
    scene.files.clone().settling_after(Duration::from_secs(3_600))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_file_is_read_again_when_it_is_complete() {
    let scene = BankScene::new().await;
    let files = patient(&scene);
    let inbox = scene.files.folder().inbox();
    for (name, content) in answered(&scene, "d").await {
        for bytes in [0, 1, 200, content.len() / 2, content.len() - 3] {
            fs::write(inbox.join(&name), &content[..bytes]).await.unwrap();
            for _ in 0..2 {
                assert_eq!(files.take_in().await.unwrap(), 0, "{bytes} bytes");
            }
        }
        assert_eq!(scene.harness.count("select count(*) from bank_file where refusal is not null").await, 0);
        fs::write(inbox.join(&name), &content).await.unwrap();
        assert_eq!(files.take_in().await.unwrap(), 1);
    }
    assert!(is_paid(&scene, "d").await);
    assert_eq!(count(scene.files.folder().quarantine()).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_file_is_refused_with_an_alarm_that_two_operators_dismiss() {
    let scene = BankScene::new().await;
    let files = scene.files.clone().settling_after(Duration::ZERO);
    let inbox = scene.files.folder().inbox();
    fs::write(inbox.join("garbage"), b"garbage").await.unwrap();
    let huge = fs::File::create(inbox.join("huge")).await.unwrap();
    huge.set_len(BYTES_MAX as u64 + 1).await.unwrap();
    for _ in 0..3 {
        files.take_in().await.unwrap();
    }
    assert_eq!(count(scene.files.folder().quarantine()).await, 2);
    assert_eq!(scene.harness.count(OPEN).await, 2);
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 2, 0));
    for alarm in bank::list_alarms(&mut conn, 10).await.unwrap() {
        assert!(alarm.about == "file" && ["garbage", "huge"].contains(&alarm.name.as_str()), "{alarm:?}");
        let refused = clear(&mut conn, &alarm.subject, "jo", " ").await;
        assert!(matches!(refused, Err(ClearError::NoReason)), "{refused:?}");
        let alone = clear(&mut conn, &alarm.subject, "jo", "asked the bank").await;
        assert!(matches!(alone, Err(ClearError::NoAlarm(_))), "{alone:?}");
        let digest = hex::decode(&alarm.subject).unwrap();
        let kept = bank_parts::find_file(&mut conn, &digest).await.unwrap().unwrap().content;
        assert_eq!(kept.as_deref(), (alarm.name == "garbage").then_some("garbage"));
        let jo = Maker { operator: "jo", reason: "asked the bank", evidence: "its mail" };
        let asked = request_dismissal(&mut conn, &alarm.subject, None, jo).await.unwrap().approval.id;
        approve(&mut conn, &asked, "mika", "it comes again").await.unwrap();
    }
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_not_understood_is_an_alarm_and_the_others_count() {
    let scene = BankScene::new().await;
    let answers = answered(&scene, "k").await;
    let booked = String::from_utf8(answers[1].1.clone()).unwrap();
    let broken = "<Ntry><Amt Ccy=\"USD\">one</Amt></Ntry></Ntfctn>";
    let content = booked.replacen("</Ntfctn>", broken, 1);
    assert_ne!(content, booked);
    for name in ["first", "again"] {
        drop_into(&scene.files.folder().inbox(), name, content.as_bytes()).await.unwrap();
        assert_eq!(scene.files.take_in().await.unwrap(), 1);
        assert!(is_paid(&scene, "k").await);
        assert_eq!(scene.harness.count(OPEN).await, 1);
    }
    assert_eq!(count(scene.files.folder().quarantine()).await, 0);
    assert_eq!(count(scene.files.folder().archive()).await, 2);
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let alarms = bank::list_alarms(&mut conn, 10).await.unwrap();
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    assert!(alarms[0].alarm.ends_with("one is no amount of USD"), "{alarms:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_is_named_by_its_uetr_only_is_found() {
    let scene = BankScene::new().await;
    let answers = answered(&scene, "d").await;
    let id = end_to_end_id(&request("d", false).reference);
    let booked = String::from_utf8(answers[1].1.clone()).unwrap();
    let uetr = uetr(&id).unwrap();
    let named = format!("<EndToEndId>{id}</EndToEndId>");
    let content = booked.replace(&named, &format!("<EndToEndId>NOTPROVIDED</EndToEndId><UETR>{uetr}</UETR>"));
    assert_ne!(content, booked);
    drop_into(&scene.files.folder().inbox(), "booked", content.as_bytes()).await.unwrap();
    assert_eq!(scene.files.take_in().await.unwrap(), 1);
    assert!(is_paid(&scene, "d").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_the_longest_name_is_archived_beside_another_one_of_that_name() {
    let scene = BankScene::new().await;
    let files = patient(&scene);
    let answers = answered(&scene, "e").await;
    let long = "0".repeat(255);
    for (_, content) in &answers {
        fs::write(scene.files.folder().inbox().join(&long), content).await.unwrap();
        assert_eq!(files.take_in().await.unwrap(), 1);
    }
    assert!(is_paid(&scene, "e").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_replaces_one_during_its_import_is_imported_next() {
    let scene = BankScene::new().await;
    let (folder, pool) = (scene.files.folder(), scene.harness.pool());
    let answers = answered(&scene, "h").await;
    drop_into(&folder.inbox(), "answer", &answers[0].1).await.unwrap();
    // The import has read the file, and waits.
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("lock table bank_file in exclusive mode").execute(&mut *tx).await.unwrap();
    let files = scene.files.clone();
    let import = tokio::spawn(async move { files.take_in().await });
    let waiting = "select count(*) from pg_locks where not granted and relation = 'bank_file'::regclass \
                   and database = (select oid from pg_database where datname = current_database())";
    scene.harness.wait_for_count(waiting, 1).await;
    drop_into(&folder.inbox(), "answer", &answers[1].1).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(import.await.unwrap().unwrap(), 1);
    assert!(!is_paid(&scene, "h").await, "only the first was read");
    assert_eq!(folder.list_inbox().await.unwrap(), ["answer"]);
    assert_eq!(scene.files.take_in().await.unwrap(), 1);
    assert!(is_paid(&scene, "h").await);
    assert_eq!(count(folder.inbox()).await, 0);
    assert_eq!(scene.harness.count("select count(*) from bank_file").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_keep_their_order_while_the_database_is_unavailable() {
    let scene = BankScene::new().await;
    let folder = scene.files.folder();
    let answers = answered(&scene, "f").await;
    unavailable_at(&scene, "1-first").await;
    for (name, (_, content)) in ["1-first", "2-second"].into_iter().zip(&answers) {
        fs::write(folder.inbox().join(name), content).await.unwrap();
    }
    for _ in 0..2 {
        assert!(scene.files.take_in().await.is_err());
        assert_eq!(folder.list_inbox().await.unwrap(), ["1-first", "2-second"]);
    }
    sqlx::raw_sql("drop trigger away on bank_file").execute(scene.harness.pool()).await.unwrap();
    assert_eq!(scene.files.take_in().await.unwrap(), 2);
    assert!(is_paid(&scene, "f").await);
}

/// A bank that sends without a pause, and a database that is unavailable again and again: what came first must not wait
/// for what came later.
#[tokio::test(flavor = "multi_thread")]
async fn the_file_that_came_first_is_imported_first_whatever_its_name() {
    let scene = BankScene::new().await;
    let folder = scene.files.folder();
    let answers = answered(&scene, "g").await;
    unavailable_at(&scene, "1-second").await;
    for (name, (_, content)) in ["9-first", "1-second"].into_iter().zip(&answers) {
        fs::write(folder.inbox().join(name), content).await.unwrap();
        // File systems count time in steps of some milliseconds.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(folder.list_inbox().await.unwrap(), ["9-first", "1-second"]);
    assert!(scene.files.take_in().await.is_err());
    assert_eq!(folder.list_inbox().await.unwrap(), ["1-second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_whose_staged_file_is_missing_was_not_sent_and_is_unconfirmed() {
    let scene = BankScene::new().await;
    let folder = scene.files.folder();
    scene.files.submit(&request("f", false)).await.unwrap();
    // As if the process had stopped before it moved the file, and the folder had been emptied.
    scene.harness.run("update bank_payment set status = 'staged', giving_at = null").await;
    for part in [folder.outbox(), folder.outbox().with_file_name("given")] {
        fs::remove_dir_all(&part).await.unwrap();
        fs::create_dir(part).await.unwrap();
    }
    for _ in 0..2 {
        let status = scene.files.status(&request("f", false)).await;
        assert_eq!(status, Err(RailError::Unconfirmed));
        let answer = scene.files.submit(&request("f", false)).await;
        assert_eq!(answer, Err(RailError::Unconfirmed), "another file is never written");
    }
    let staged = "select count(*) from bank_payment where status = 'staged'";
    assert_eq!(scene.harness.count(staged).await, 1, "it does not count as sent");
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let alarms = bank::list_alarms(&mut conn, 10).await.unwrap();
    assert_eq!((alarms.len(), alarms[0].alarm.as_str(), &*alarms[0].about), (1, FILE_MISSING, "payment"));
    clear(&mut conn, "exe_x", "jo", "failed the payout").await.unwrap();
    assert_eq!(bank::count_alarms(&mut conn).await.unwrap(), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_concluded_about_a_payment_while_the_folder_is_away() {
    let scene = BankScene::new().await;
    let request = request("e", false);
    scene.files.submit(&request).await.unwrap();
    scene.take_back(&end_to_end_id(&request.reference)).await;
    for (part, row) in [("staging", "select 1"), ("given", "delete from bank_payment")] {
        scene.harness.run(row).await;
        let folder = scene.files.folder().outbox().with_file_name(part);
        let away = folder.with_file_name("away");
        std::fs::rename(&folder, &away).unwrap();
        let status = scene.files.status(&request).await;
        assert!(matches!(status, Err(RailError::Down(_))), "{part}: {status:?}");
        std::fs::rename(&away, &folder).unwrap();
        assert_eq!(scene.files.status(&request).await, Ok(RailStatus::NeverSeen), "{part}");
    }
    assert_eq!(scene.harness.count("select count(*) from bank_payment where alarm is not null").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_whose_move_was_begun_does_not_count_as_sent_while_staging_is_away() {
    let scene = BankScene::new().await;
    let request = request("e", false);
    scene.files.submit(&request).await.unwrap();
    scene.take_back(&end_to_end_id(&request.reference)).await;
    scene.harness.run("update bank_payment set giving_at = now()").await;
    let staging = scene.files.folder().outbox().with_file_name("staging");
    let away = staging.with_file_name("away");
    std::fs::rename(&staging, &away).unwrap();
    let status = scene.files.status(&request).await;
    assert!(matches!(status, Err(RailError::Down(_))), "{status:?}");
    let sent = "select count(*) from bank_payment where status = 'sent'";
    assert_eq!(scene.harness.count(sent).await, 0);
    std::fs::rename(&away, &staging).unwrap();
    scene.files.status(&request).await.unwrap();
    assert_eq!(scene.harness.count(sent).await, 1);
    assert_eq!(count(scene.files.folder().outbox()).await, 1);
}
