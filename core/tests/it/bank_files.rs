//! Payouts through a bank's files: the simulated bank behaves badly, processes stop between any two lines, and each
//! payment is ordered once and told once.

use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use dvp_domain::beneficiary::{Beneficiary, PayoutMethod};
use dvp_domain::intent::IntentRequest;
use dvp_domain::money::Minor;
use dvp_domain::settlement::RailAnswer;
use dvp_rails::iso20022::instruction::Debtor;
use dvp_rails::iso20022::{BankFiles, folder::drop_into};
use dvp_rails::{LegKind, Rail as _, RailError, RailRequest, RailStatus};
use dvp_sandbox::bank::Bank;
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::orders::executions::RefType;
use tokio::sync::watch;

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

struct BankScene {
    harness: Harness,
    dir: tempfile::TempDir,
    files: BankFiles,
    bank: Bank,
    stop: watch::Sender<bool>,
}

impl BankScene {
    async fn new() -> Self {
        let (harness, dir) = (scenes::harness().await, tempfile::tempdir().unwrap());
        let debtor = Debtor {
            name: "DVP".into(),
            currency: "USD".into(),
            account: "400500600".into(),
            bic: "SANDUS33".into(),
            country: "US".into(),
        };
        let files = BankFiles::open(harness.pool().clone(), dir.path(), vec![debtor]).await.unwrap();
        let bank = Bank::open(dir.path()).await.unwrap();
        Self { harness, dir, files, bank, stop: watch::Sender::new(false) }
    }

    /// Workers, the taker-in of files and the bank.
    fn work(&self) {
        let offramp = SimulatedRails::new(self.harness.pool().clone());
        self.harness.start_workers_over(Arc::new(offramp), Arc::new(self.files.clone()));
        tokio::spawn(self.files.clone().run(self.stop.subscribe()));
        tokio::spawn(self.bank.clone().run(self.stop.subscribe()));
    }

    async fn run(&self, suffix: &str, ends_as: &str) -> String {
        let reference = self.harness.accept(inline(suffix)).await.reference;
        let last = if ends_as == "completed" { "settle" } else { "fill" };
        self.harness.play_until(&reference, |kind| kind == last).await;
        self.harness.wait_for_state(&reference, ends_as).await;
        reference
    }

    async fn alarm(&self, reference: &str) -> Option<String> {
        let row: (Option<String>,) = sqlx::query_as("select alarm from bank_payment where execution = $1")
            .bind(reference)
            .fetch_one(self.harness.pool())
            .await
            .unwrap();
        row.0
    }
}

impl Drop for BankScene {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// An order whose beneficiary a bank can pay.
fn inline(suffix: &str) -> IntentRequest {
    let mut request = order(&format!("00012345{suffix}"));
    if let Some(beneficiary) = &mut request.beneficiary {
        beneficiary.bank = Some("USABA021000021".into());
    }
    request
}

fn request(reference: &str, late: bool) -> RailRequest {
    RailRequest {
        leg: LegKind::Payout,
        reference: reference.repeat(64),
        account: "000123456789".into(),
        beneficiary: Some(Beneficiary {
            account: Some("000123456789".into()),
            name: Some("Jane Doe".into()),
            country: Some("US".into()),
            payout_method: Some(PayoutMethod::Ach),
            bank: Some("USABA021000021".into()),
            ..Beneficiary::default()
        }),
        amount: Minor::new(9_935),
        currency: "USD".into(),
        exponent: 2,
        sold: None,
        provider_reference: None,
        execution: "exe_x".into(),
        not_after: Utc::now() + TimeDelta::seconds(if late { -1 } else { 10 }),
    }
}

async fn count(folder: std::path::PathBuf) -> usize {
    let (mut count, mut entries) = (0, tokio::fs::read_dir(folder).await.unwrap());
    while entries.next_entry().await.unwrap().is_some() {
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn however_the_bank_answers_each_payout_is_ordered_once_and_ends_as_it_said() {
    let place = BankScene::new().await;
    place.work();
    let wanted = [
        ("6789", "completed"),
        ("0001", "completed"),
        ("0002", "payout_failed"),
        ("0004", "completed"),
        ("0005", "completed"),
        ("0009", "completed"),
        ("0010", "completed"),
        ("0011", "completed"),
        ("0012", "completed"),
        ("0013", "completed"),
    ];
    let runs = wanted.map(|(suffix, ends_as)| place.run(suffix, ends_as));
    let references = futures_util::future::join_all(runs).await;
    assert_eq!(place.bank.count_received().await.unwrap(), wanted.len(), "each was ordered once");
    let refused = &references[2];
    let view = place.harness.engine.execution(&place.harness.tenant, RefType::ExecutionId, refused).await;
    assert_eq!(view.unwrap().unwrap().failure.unwrap().code, "beneficiary_account_closed");
    for (n, alarm) in [
        (0, None),
        (6, Some("refused after it was paid")),
        (7, Some("another amount was booked than was ordered")),
        (8, Some("the bank takes it for a duplicate")),
        (9, Some("returned after it was paid")),
    ] {
        let reference = &references[n];
        wait_for("the alarm", || async { (place.alarm(reference).await.as_deref() == alarm).then_some(()) })
            .await;
    }
    // Garbage and half a file.
    assert_eq!(count(place.files.folder().quarantine()).await, 2);
    let refused = "select count(*) from bank_file where refusal is not null";
    assert_eq!(place.harness.count(refused).await, 2);
    let strangers = "select sum(unknown)::int8 from bank_file";
    assert_eq!(place.harness.count(strangers).await, 1, "somebody else's payment");
    place.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_given_to_the_bank_once_however_many_try_and_wherever_they_stop() {
    let place = BankScene::new().await;
    let request = request("a", false);
    let tries = (0..16).map(|_| place.files.submit(&request));
    for answer in futures_util::future::join_all(tries).await {
        assert!(matches!(answer, Ok(RailAnswer::InProgress { .. })), "{answer:?}");
    }
    assert_eq!(count(place.files.folder().outbox()).await, 1);
    // A process that stopped between its row and the file's move, before and after it.
    for status in ["staged", "sent"] {
        sqlx::query("update bank_payment set status = $1")
            .bind(status)
            .execute(place.harness.pool())
            .await
            .unwrap();
        let status = place.files.status(&request).await.unwrap();
        assert!(matches!(status, RailStatus::Known(RailAnswer::InProgress { .. })), "{status:?}");
    }
    place.bank.turn().await.unwrap();
    sqlx::query("update bank_payment set status = 'staged'").execute(place.harness.pool()).await.unwrap();
    place.files.submit(&request).await.unwrap();
    place.bank.turn().await.unwrap();
    assert_eq!(place.bank.count_received().await.unwrap(), 1, "taken by the bank, and not given again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_comes_too_late_is_never_written() {
    let place = BankScene::new().await;
    let late = request("b", true);
    assert_eq!(place.files.submit(&late).await, Err(RailError::Unconfirmed));
    assert_eq!(place.files.status(&late).await, Ok(RailStatus::NeverSeen));
    assert_eq!(count(place.files.folder().outbox()).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_counts_once_though_it_is_taken_in_twice_or_by_two() {
    let place = BankScene::new().await;
    let request = request("c", false);
    place.files.submit(&request).await.unwrap();
    place.bank.turn().await.unwrap();
    wait_for("the booking", || async {
        place.bank.turn().await.unwrap();
        (place.files.folder().list_inbox().await.unwrap().len() == 2).then_some(())
    })
    .await;
    // Two processes at once; then the same files again, as if a process had stopped before it put them away.
    let names = place.files.folder().list_inbox().await.unwrap();
    let mut contents = Vec::new();
    for name in &names {
        contents.push(place.files.folder().read_inbox(name).await.unwrap());
    }
    let (one, other) = tokio::join!(place.files.take_in(), place.files.take_in());
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    for (name, content) in names.iter().zip(&contents) {
        drop_into(&place.files.folder().inbox(), name, content).await.unwrap();
    }
    place.files.take_in().await.unwrap();
    assert_eq!(count(place.files.folder().inbox()).await, 0);
    assert!(count(place.files.folder().archive()).await >= 4, "nothing is overwritten");
    assert_eq!(place.harness.count("select count(*) from bank_file").await, 2);
    let status = place.files.status(&request).await.unwrap();
    assert!(matches!(status, RailStatus::Known(RailAnswer::Done(_))), "{status:?}");
    assert!(place.dir.path().join("bank").exists());
}
