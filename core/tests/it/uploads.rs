//! Statements of banks without ISO files: two operators import one, once, by the way of every file of the bank.

use chrono::Utc;
use dvp_core::operators::approvals::{ApprovalError, approve};
use dvp_core::operators::requests::Maker;
use dvp_core::operators::statements::{UploadError, request};
use dvp_rails::iso20022::by_hand::{Converted, convert_mt940};

use crate::bank_files::BankScene;

const JO: Maker<'_> = Maker { operator: "jo", reason: "January", evidence: "mail of 3 February" };
const STATEMENTS: &str = "select count(*) from bank_statement";

fn statement(account: &str, entries: &str, closing: &str) -> Converted {
    let text = format!(
        ":20:S\n:25:{account}\n:28C:1/1\n:60F:C260101USD500,\n{entries}:62F:C260102USD{closing}\n-\n"
    );
    convert_mt940(&text, Utc::now()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uploaded_statement_counts_once_and_after_another_operators_approval() {
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    let (id, amount) = (scene.own_id().await, scene.amount().await.replace('.', ","));
    let left = scene.harness.row::<(String,)>("select (50000 - amount)::text from bank_payment").await.0;
    let left: i64 = left.parse().unwrap();
    let closing = format!("{},{:02}", left / 100, left % 100);
    let entries = format!(":61:260102D{amount}NTRFNONREF//BK1\n:86:EREF {id}\n");
    let converted = statement("400500600", &entries, &closing);
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let asked = request(&mut conn, &converted, JO).await.unwrap().approval.id;
    assert!(request(&mut conn, &converted, JO).await.unwrap().repeated);
    assert_eq!(scene.files.take_in().await.unwrap(), 0, "it waits");
    let own = approve(&mut conn, &asked, " JO", "mine").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)), "{own:?}");
    approve(&mut conn, &asked, "mika", "compared").await.unwrap();
    assert_eq!(scene.files.take_in().await.unwrap(), 1);
    assert_eq!(scene.harness.count(STATEMENTS).await, 1);
    scene.harness.wait_for_state(&reference, "releasing").await;
    let kept = "select count(*) from bank_upload where content = '' and taken_at is not null";
    assert_eq!(scene.harness.count(kept).await, 1, "the archive has it");
    assert!(matches!(request(&mut conn, &converted, JO).await, Err(UploadError::Imported)));
    assert_eq!(scene.files.take_in().await.unwrap(), 0);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_of_another_account_is_an_alarm_and_one_that_was_not_approved_is_dropped() {
    let scene = BankScene::new().await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let forgotten = request(&mut conn, &statement("400500600", "", "500,"), JO).await.unwrap().approval.id;
    scene.harness.run("update bank_upload set uploaded_at = now() - interval '3 days'").await;
    let asked = request(&mut conn, &statement("999", "", "500,"), JO).await.unwrap().approval.id;
    approve(&mut conn, &asked, "mika", "compared").await.unwrap();
    assert_eq!(scene.files.take_in().await.unwrap(), 1);
    let unknown = "select count(*) from bank_file where unknown = 1";
    assert_eq!((scene.harness.count(unknown).await, scene.harness.count(STATEMENTS).await), (1, 0));
    let late = approve(&mut conn, &forgotten, "mika", "compared").await;
    assert!(matches!(late, Err(ApprovalError::Upload(UploadError::Gone))), "{late:?}");
}
