//! Payouts through a bank's files: the simulated bank misbehaves, processes stop between any two lines, and each
//! payment is ordered once and reported once.

use std::sync::Arc;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use dvp_core::chain::expected;
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_domain::beneficiary::{Beneficiary, PayoutMethod};
use dvp_domain::intent::IntentRequest;
use dvp_domain::money::Minor;
use dvp_domain::pause;
use dvp_domain::reconcile::BreakKind;
use dvp_domain::settlement::RailAnswer;
use dvp_rails::iso20022::instruction::{Debtor, end_to_end_id};
use dvp_rails::iso20022::outage::stamp;
use dvp_rails::iso20022::{BankFiles, FILE_MISSING, GIVEN_BEFORE, folder::drop_into};
use dvp_rails::{LegKind, Rail as _, RailError, RailRequest, RailStatus};
use dvp_sandbox::bank::Bank;
use dvp_store::operators::pauses::{self, Decided};
use dvp_store::orders::bank_messages;
use dvp_store::orders::executions::RefType;
use tokio::sync::watch;

use crate::bank_words::paid_by;
use crate::reversals::breaks_of;
use crate::scenes::{self, both_decide, decide_in_time, is_near_its_timelock, is_settled};
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

pub(crate) struct BankScene {
    pub(crate) harness: Harness,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) files: BankFiles,
    pub(crate) bank: Bank,
    pub(crate) stop: watch::Sender<bool>,
}

impl BankScene {
    pub(crate) async fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap()).await
    }

    pub(crate) async fn at(dir: tempfile::TempDir) -> Self {
        let root = dir.path().to_owned();
        Self::over(dir, &root).await
    }

    /// The bank's folder is `root`, in `dir`.
    pub(crate) async fn over(dir: tempfile::TempDir, root: &std::path::Path) -> Self {
        let harness = scenes::harness().await;
        let debtor = Debtor {
            name: "DVP".into(),
            currency: "USD".into(),
            account: "400500600".into(),
            bic: "SANDUS33".into(),
            country: "US".into(),
            town: None,
            street: None,
            post_code: None,
            purpose: None,
        };
        let mut conn = harness.pool().acquire().await.unwrap();
        stamp(&mut conn, root, "jo", false).await.unwrap();
        drop(conn);
        let files = BankFiles::open(harness.pool().clone(), root, vec![debtor]).await.unwrap();
        let files = files.settling_after(Duration::from_millis(500));
        let bank = Bank::open(root).await.unwrap();
        Self { harness, dir, files, bank, stop: watch::Sender::new(false) }
    }

    pub(crate) fn start_workers(&self) {
        self.harness.start_workers_paying(Arc::new(self.files.clone()));
    }

    /// Runs the workers, the import of files and the bank.
    pub(crate) fn work(&self) {
        self.start_workers();
        tokio::spawn(self.files.clone().run(self.stop.subscribe()));
        tokio::spawn(self.bank.clone().run(self.stop.subscribe()));
    }

    pub(crate) async fn run(&self, suffix: &str, ends_as: &str) -> String {
        let reference = self.harness.accept(inline(suffix)).await.reference;
        let last = if ends_as == "payout_failed" { "fill" } else { "settle" };
        self.harness.play_until(&reference, |kind| kind == last).await;
        self.harness.wait_for_state(&reference, ends_as).await;
        reference
    }

    pub(crate) async fn alarm(&self, reference: &str) -> Option<String> {
        let alarm = "select alarm from bank_payment where execution = $1";
        self.harness.row_of::<(Option<String>,)>(alarm, reference).await.0
    }
}

impl Drop for BankScene {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

pub(crate) fn stopped() -> Action {
    Action::Fail { leg: LegKind::Payout, code: "stopped".into() }
}

/// An order whose beneficiary a bank can pay.
pub(crate) fn inline(suffix: &str) -> IntentRequest {
    let mut request = order(&format!("00012345{suffix}"));
    if let Some(beneficiary) = &mut request.beneficiary {
        beneficiary.bank = Some("USABA021000021".into());
    }
    request
}

pub(crate) fn request(reference: &str, late: bool) -> RailRequest {
    RailRequest {
        trace: None,
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
        payer_reference: None,
        partner: String::new(),
        not_after: Utc::now() + TimeDelta::seconds(if late { -1 } else { 600 }),
    }
}

pub(crate) async fn count(folder: std::path::PathBuf) -> usize {
    let (mut count, mut entries) = (0, tokio::fs::read_dir(folder).await.unwrap());
    while entries.next_entry().await.unwrap().is_some() {
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn each_payout_is_ordered_once_and_ends_as_the_bank_answers() {
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
        ("0013", "reversed"),
    ];
    let runs = wanted.map(|(suffix, ends_as)| place.run(suffix, ends_as));
    let references = futures_util::future::join_all(runs).await;
    assert_eq!(place.bank.count_received().await.unwrap(), wanted.len(), "each was ordered once");
    let refused = &references[2];
    let view = place.harness.engine.execution(&place.harness.tenant, RefType::ExecutionId, refused).await;
    assert_eq!(view.unwrap().unwrap().failure.unwrap().exact_code(), "beneficiary_account_closed");
    for (n, alarm) in [
        (6, "refused after it was paid"),
        (7, "another amount was booked than was ordered"),
        (8, "the bank takes it for a duplicate"),
        (9, "returned after it was paid"),
    ] {
        place.has_alarm(&references[n], alarm).await;
    }
    assert_eq!(place.alarm(&references[0]).await, None);
    check_messages(&place, &references).await;
    // An invalid file and half a file.
    assert_eq!(count(place.files.folder().quarantine()).await, 2);
    let refused = "select count(*) from bank_file where refusal is not null";
    assert_eq!(place.harness.count(refused).await, 2);
    let unknown = "select sum(unknown)::int8 from bank_file";
    assert_eq!(place.harness.count(unknown).await, 1, "a payment of another payer");
    place.harness.check_books().await;
}

/// The messages about payments, and their documents, are as they were in the folder.
async fn check_messages(place: &BankScene, references: &[String]) {
    let mut conn = place.harness.pool().acquire().await.unwrap();
    for (n, last) in [(0, "paid"), (2, "refused"), (9, "returned")] {
        let reference = &references[n];
        let messages = bank_messages::list(&mut conn, reference).await.unwrap();
        let said: Vec<&str> = messages.iter().map(|one| one.said.as_str()).collect();
        assert_eq!((said[0], messages[0].is_sent), ("payment ordered", true), "{said:?}");
        assert!(said.contains(&last), "{said:?}");
        for message in &messages[1..] {
            assert!(!message.is_sent && message.is_kept, "{message:?}");
            let digest = hex::decode(&message.digest).unwrap();
            let document =
                bank_messages::find_document(&mut conn, reference, &digest).await.unwrap().unwrap();
            let archived = tokio::fs::read(place.files.folder().archive().join(&message.file)).await.unwrap();
            assert_eq!(document.as_bytes(), archived, "{}", message.file);
        }
        let digest = hex::decode(&messages[0].digest).unwrap();
        let ordered = bank_messages::find_document(&mut conn, reference, &digest).await.unwrap().unwrap();
        assert!(ordered.contains("pain.001.001.09") && ordered.contains("Jane Doe"), "{ordered}");
        let other = bank_messages::find_document(&mut conn, &references[1], &digest).await.unwrap();
        assert_eq!(other, None, "a document belongs to the orders that it names");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_moved_to_the_bank_once_by_any_number_of_processes() {
    let place = BankScene::new().await;
    let request = request("a", false);
    let tries = (0..16).map(|_| place.files.submit(&request));
    for answer in futures_util::future::join_all(tries).await {
        assert!(matches!(answer, Ok(RailAnswer::InProgress { .. })), "{answer:?}");
    }
    assert_eq!(count(place.files.folder().outbox()).await, 1);
    // A process that stopped between its row and the file's move, before and after it.
    for status in ["staged", "sent"] {
        place.harness.run_of("update bank_payment set status = $1", status).await;
        let status = place.files.status(&request).await.unwrap();
        assert!(matches!(status, RailStatus::Known(RailAnswer::InProgress { .. })), "{status:?}");
    }
    place.bank.turn().await.unwrap();
    place.harness.run("update bank_payment set status = 'staged'").await;
    place.files.submit(&request).await.unwrap();
    place.bank.turn().await.unwrap();
    assert_eq!(place.bank.count_received().await.unwrap(), 1, "taken by the bank, and not given again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_does_not_count_as_sent_while_the_outbox_is_away() {
    let place = BankScene::new().await;
    let (request, outbox) = (request("a", false), place.files.folder().outbox());
    let away = outbox.with_file_name("away");
    tokio::fs::rename(&outbox, &away).await.unwrap();
    assert_eq!(place.files.submit(&request).await, Err(RailError::Unconfirmed));
    assert!(matches!(place.files.status(&request).await, Err(RailError::Down(_))));
    let staged = "select count(*) from bank_payment where status = 'staged' and giving_at is not null";
    assert_eq!(place.harness.count(staged).await, 1);
    tokio::fs::rename(&away, &outbox).await.unwrap();
    for _ in 0..2 {
        let status = place.files.status(&request).await.unwrap();
        assert!(matches!(status, RailStatus::Known(RailAnswer::InProgress { .. })), "{status:?}");
        place.bank.turn().await.unwrap();
    }
    assert_eq!(place.bank.count_received().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_a_restored_database_has_forgotten_is_not_ordered_again() {
    for forget in [
        "delete from bank_payment",
        "update bank_payment set status = 'staged', giving_at = null, paid_at = null, bank_reference = null",
    ] {
        let place = BankScene::new().await;
        let request = request("d", false);
        place.files.submit(&request).await.unwrap();
        place.is_booked().await;
        place.files.take_in().await.unwrap();
        // The database is of a moment before the order, and the payment's last moment has passed since.
        for sql in [forget, "delete from bank_file"] {
            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(place.harness.pool()).await.unwrap();
        }
        let late = RailRequest { not_after: Utc::now() - TimeDelta::seconds(1), ..request };
        let status = place.files.status(&late).await.unwrap();
        assert!(matches!(status, RailStatus::Known(RailAnswer::InProgress { .. })), "{forget}: {status:?}");
        let answer = place.files.submit(&late).await.unwrap();
        assert!(matches!(answer, RailAnswer::InProgress { .. }), "{forget}: {answer:?}");
        place.bank.turn().await.unwrap();
        assert_eq!(place.bank.count_received().await.unwrap(), 1, "{forget}: the bank has it already");
        assert_eq!(place.alarm("exe_x").await.as_deref(), Some(GIVEN_BEFORE), "{forget}");
        // The bank's files are read again.
        let (archive, inbox) = (place.files.folder().archive(), place.files.folder().inbox());
        for name in std::fs::read_dir(&archive).unwrap().map(|entry| entry.unwrap().file_name()) {
            std::fs::rename(archive.join(&name), inbox.join(&name)).unwrap();
        }
        place.files.take_in().await.unwrap();
        let status = place.files.status(&late).await.unwrap();
        assert!(matches!(status, RailStatus::Known(RailAnswer::Done(_))), "{forget}: {status:?}");
    }
}

impl BankScene {
    /// An order whose payout is due and was never called: the rail is paused.
    async fn with_paused_payout() -> (Self, String) {
        let scene = Self::new().await;
        let by = Decided { operator: "jo", reason: "to be sure" };
        let mut conn = scene.harness.pool().acquire().await.unwrap();
        // An order whose rail is paused commits nothing.
        scene.start_workers();
        let reference = scene.harness.accept(inline("6789")).await.reference;
        scene.harness.play_until(&reference, |kind| kind == "create").await;
        let (entity, fill) = scene.harness.command(&reference, "fill").await;
        assert!(pauses::insert(&mut conn, pause::Scope::Rail, "payout", by).await.unwrap());
        scene.harness.report_fact(&entity, &expected::goal(&fill)).await;
        let paused =
            "select count(*) from effect where kind = 'payout' and not called and last_result = 'paused'";
        scene.harness.wait_for_count(paused, 1).await;
        (scene, reference)
    }

    /// The same, and a process has stopped between the payment's row and the move of its file.
    async fn with_staged_and_paused_payout() -> (Self, String) {
        let (scene, execution) = Self::with_paused_payout().await;
        let reference = hex::encode(LegKind::Payout.reference(&execution.parse().unwrap()));
        let ordered = RailRequest { reference, execution: execution.clone(), ..request("e", false) };
        scene.files.submit(&ordered).await.unwrap();
        scene.take_back(&end_to_end_id(&ordered.reference)).await;
        (scene, execution)
    }

    /// The call of an earlier process is due to be asked about.
    async fn is_due(&self) {
        let called = "update effect set called = true, called_at = now() - interval '1 minute', run_at = now() \
                      where claimed_until is null";
        self.harness.run(called).await;
    }

    async fn is_queried(&self) {
        wait_for("a query", || async {
            self.is_due().await;
            let queries = "select count(*) from rail_call where leg = 'payout' and call = 'query'";
            (self.harness.count(queries).await >= 1).then_some(())
        })
        .await;
    }

    /// Ends the pause of payouts.
    async fn goes_on(&self) {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let by = Decided { operator: "jo", reason: "it is safe" };
        assert!(pauses::delete(&mut conn, pause::Scope::Rail, "payout", by).await.unwrap());
    }

    /// As if the process had stopped between a payment's row and the move of its file.
    pub(crate) async fn take_back(&self, end_to_end_id: &str) {
        let (folder, name) = (self.files.folder().outbox(), format!("{end_to_end_id}.xml"));
        let sql = "update bank_payment set status = 'staged', giving_at = null where end_to_end_id = $1 \
             returning staged_file";
        let staged: (String,) = self.harness.row_of(sql, end_to_end_id).await;
        std::fs::rename(folder.join(&name), folder.with_file_name("staging").join(staged.0)).unwrap();
        std::fs::remove_file(folder.with_file_name("given").join(name)).unwrap();
    }

    /// The payment's id, from which the names of its files are made.
    fn payment_id(reference: &str) -> String {
        end_to_end_id(&hex::encode(LegKind::Payout.reference(&reference.parse().unwrap())))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_staged_payment_is_moved_by_a_call_in_time_and_by_nothing_else() {
    let scene = BankScene::new().await;
    let (in_time, late) = (request("e", false), request("e", true));
    scene.files.submit(&in_time).await.unwrap();
    scene.take_back(&end_to_end_id(&in_time.reference)).await;
    assert_eq!(scene.files.status(&in_time).await, Ok(RailStatus::NeverSeen));
    assert_eq!(scene.files.submit(&late).await, Err(RailError::Unconfirmed));
    assert_eq!(count(scene.files.folder().outbox()).await, 0);
    let answer = scene.files.submit(&in_time).await;
    assert!(matches!(answer, Ok(RailAnswer::InProgress { .. })), "{answer:?}");
    assert_eq!(count(scene.files.folder().outbox()).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_staged_payment_is_not_moved_while_its_rail_is_paused() {
    let (scene, _) = BankScene::with_staged_and_paused_payout().await;
    scene.is_queried().await;
    assert_eq!(count(scene.files.folder().outbox()).await, 0, "the rail is paused");
    scene.goes_on().await;
    scene.harness.wait_for_count("select count(*) from bank_payment where status = 'sent'", 1).await;
    assert_eq!(count(scene.files.folder().outbox()).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_whose_staged_file_was_missing_is_given_to_the_bank_once_when_the_file_is_there_again() {
    let (scene, reference) = BankScene::with_staged_and_paused_payout().await;
    let staging = scene.files.folder().outbox().with_file_name("staging");
    let away = scene.dir.path().join("away");
    let file = std::fs::read_dir(&staging).unwrap().next().unwrap().unwrap().file_name();
    std::fs::rename(staging.join(&file), &away).unwrap();
    scene.is_queried().await;
    scene.has_alarm(&reference, FILE_MISSING).await;
    scene.goes_on().await;
    std::fs::rename(&away, staging.join(&file)).unwrap();
    wait_for("the file", || async {
        scene.is_due().await;
        let sent = "select count(*) from bank_payment where status = 'sent'";
        (scene.harness.count(sent).await == 1).then_some(())
    })
    .await;
    scene.bank.turn().await.unwrap();
    assert_eq!(scene.bank.count_received().await.unwrap(), 1);
}

/// The database was restored to a moment before the payout was called, and it is too late to pay by now.
#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_a_restored_database_has_forgotten_does_not_fail_for_being_late() {
    let (scene, reference) = BankScene::with_paused_payout().await;
    let given = scene.files.folder().outbox().with_file_name("given");
    std::fs::write(given.join(format!("{}.xml", BankScene::payment_id(&reference))), "").unwrap();
    let late = "with late as (update execution set state = jsonb_set(state, '{lock,deadlines,pay_before}', '0')) \
                update effect set run_at = now()";
    scene.harness.run(late).await;
    scene.harness.wait_for_count("select count(*) from event where type = 'payout.in_progress'", 1).await;
    scene.harness.wait_for_state(&reference, "paying").await;
    scene.has_alarm(&reference, GIVEN_BEFORE).await;
    assert_eq!(count(scene.files.folder().outbox()).await, 0, "the bank has it already");
    assert_eq!(scene.harness.count("select count(*) from event where type = 'payout.failed'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_imported_twice_or_by_two_processes_has_one_effect() {
    let place = BankScene::new().await;
    let request = request("c", false);
    place.files.submit(&request).await.unwrap();
    place.is_booked().await;
    // Two processes at once; then the same files again, as if a process had stopped before it archived them.
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

impl BankScene {
    /// The same without a bank: an order whose file waits, and whose call was made long ago.
    pub(crate) async fn with_unanswered(suffix: &str) -> (Self, String) {
        let (scene, reference) = Self::with_files_by_hand(suffix).await;
        tokio::spawn(scene.files.clone().run(scene.stop.subscribe()));
        (scene, reference)
    }

    /// The same, and nothing is imported or sent by itself but payments.
    pub(crate) async fn with_files_by_hand(suffix: &str) -> (Self, String) {
        let scene = Self::new().await;
        scene.start_workers();
        let reference = scene.harness.accept(inline(suffix)).await.reference;
        scene.harness.play_until(&reference, |kind| kind == "fill").await;
        let sent = "select count(*) from bank_payment where status = 'sent'";
        scene.harness.wait_for_count(sent, 1).await;
        // The rail's answer is another step of the settlement, after which a request would be out of date.
        scene.harness.wait_for_count("select count(*) from event where type = 'payout.in_progress'", 1).await;
        (scene, reference)
    }

    /// The bank has answered a payment twice: it is pending, and it is booked.
    async fn is_booked(&self) {
        wait_for("the booking", || async {
            self.bank.turn().await.unwrap();
            (self.files.folder().list_inbox().await.unwrap().len() == 2).then_some(())
        })
        .await;
    }

    /// Where the bank keeps what it has received.
    pub(crate) fn bank_folder(&self) -> std::path::PathBuf {
        self.dir.path().join("bank")
    }

    /// The first imported file of a message.
    pub(crate) async fn archived(&self, message: &str) -> Vec<u8> {
        let mut files = tokio::fs::read_dir(self.files.folder().archive()).await.unwrap();
        while let Some(file) = files.next_entry().await.unwrap() {
            let content = tokio::fs::read(file.path()).await.unwrap();
            if String::from_utf8_lossy(&content).contains(message) {
                return content;
            }
        }
        panic!("no {message} was imported");
    }

    /// Decides as soon as no call is in flight.
    pub(crate) async fn decide(
        &self,
        operator: &str,
        reference: &str,
        action: Action,
    ) -> Result<bool, ResolveError> {
        let decided = decide_in_time(&self.harness, operator, reference, action).await;
        decided.map(|decided| decided.is_proposal)
    }

    /// Two operators fail the payout, whose recall the bank has accepted.
    pub(crate) async fn give_up(&self, reference: &str) {
        self.accept_recall().await;
        both_decide(&self.harness, reference, stopped()).await;
        let failed = "select count(*) from execution where state #>> '{failure,code}' = 'stopped'";
        self.harness.wait_for_count(failed, 1).await;
    }

    /// The breaks about the payment of the only order, whenever it ended.
    pub(crate) async fn breaks(&self) -> Vec<BreakKind> {
        use BreakKind::{
            DecisionContradicted, PaymentReturned, RecallContradicted, RecallNotReturned, RecallUnanswered,
        };
        let of_payments =
            [DecisionContradicted, PaymentReturned, RecallContradicted, RecallNotReturned, RecallUnanswered];
        breaks_of(&self.harness, &of_payments).await
    }

    pub(crate) async fn has_alarm(&self, reference: &str, alarm: &str) {
        wait_for("the alarm", || async {
            (self.alarm(reference).await.as_deref() == Some(alarm)).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_payout_that_is_booked_later_is_a_break_until_closed() {
    let (scene, reference) = BankScene::with_unanswered("6789").await;
    let retry = scene.decide("jo", &reference, Action::Retry { leg: LegKind::Payout }).await;
    assert!(matches!(retry, Err(ResolveError::Contradicted(_))), "{retry:?}");
    scene.accept_recall().await;
    both_decide(&scene.harness, &reference, stopped()).await;
    scene.harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(scene.breaks().await, []);

    tokio::spawn(scene.bank.clone().run(scene.stop.subscribe()));
    scene.has_alarm(&reference, "paid after the payout was given up").await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    let signatures = [format!("0x{}", "11".repeat(65)), format!("0x{}", "22".repeat(65))];
    let give_back = || Action::Return { deadline: 1_900_000_000, signatures: signatures.clone() };
    let refused = scene.decide("jo", &reference, give_back()).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    let close = || Action::CloseContradiction;
    assert!(scene.decide("jo", &reference, close()).await.unwrap());
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted], "one operator closes nothing");
    assert!(!scene.decide("mika", &reference, close()).await.unwrap());
    assert_eq!(scene.breaks().await, []);
    let again = scene.decide("jo", &reference, close()).await;
    assert!(matches!(again, Err(ResolveError::NotWaiting { .. })), "{again:?}");
    // Put right outside: the payment has been recovered.
    assert!(!scene.decide("jo", &reference, give_back()).await.unwrap());
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_whose_failed_payment_is_booked_later_ends_as_paid_and_is_not_returned() {
    let (scene, reference) = BankScene::with_unanswered("6789").await;
    is_near_its_timelock(&scene.harness, &reference).await;
    is_settled(&scene.harness, &reference).await;
    scene.give_up(&reference).await;

    tokio::spawn(scene.bank.clone().run(scene.stop.subscribe()));
    scene.has_alarm(&reference, "paid after the payout was given up").await;
    let given_back = Action::ReturnDebt { provider_reference: "0xback".into(), at: Utc::now() };
    let refused = scene.decide("jo", &reference, given_back).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    // It had been approved before the bank's word came.
    let decided = r#"insert into effect (reference, kind, run_at, called, verdict) values ($1, 'payout', now(), true,
        '{"verdict": "returned", "provider_reference": "0xback", "occurred_at": "2026-11-23T12:00:00Z"}')"#;
    scene.harness.run_of(decided, &reference).await;
    scene.harness.wait_for_count("select count(*) from effect where kind = 'payout'", 0).await;
    scene.harness.wait_for_state(&reference, "owing").await;

    both_decide(&scene.harness, &reference, paid_by(&reference)).await;
    scene.harness.wait_for_state(&reference, "completed").await;
    assert_eq!(scene.harness.account("debt", "USD").await, "0");
    assert_eq!(scene.harness.events(&reference).await.last().unwrap(), "payout.completed");
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_recorded_as_paid_and_refused_later_is_a_break() {
    let (scene, reference) = BankScene::with_unanswered("0002").await;
    both_decide(&scene.harness, &reference, paid_by("S17")).await;
    scene.harness.wait_for_state(&reference, "releasing").await;
    tokio::spawn(scene.bank.clone().run(scene.stop.subscribe()));
    scene.has_alarm(&reference, "refused after the payout was taken for paid").await;
    scene.harness.play_chain(&reference).await;
    scene.harness.wait_for_state(&reference, "completed").await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_the_bank_takes_back_ends_no_payment() {
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    let amounts =
        "select (amount / 100)::numeric(20, 2)::text, (amount / 10)::numeric(20, 2)::text from bank_payment";
    let (right, wrong): (String, String) = scene.harness.row(amounts).await;
    let tell = async |name: &str, amount: &str, indicators: &str| {
        scene.notify(name, &[(amount, indicators, "")]).await;
        let status = "select status from bank_payment";
        let status: String = sqlx::query_scalar(status).fetch_one(scene.harness.pool()).await.unwrap();
        (status, scene.alarm(&reference).await)
    };
    let (debit, back) = ("<CdtDbtInd>DBIT</CdtDbtInd>", "<CdtDbtInd>CRDT</CdtDbtInd><RvslInd>true</RvslInd>");
    let after = |status: &str, alarm: &str| (status.to_owned(), Some(alarm.to_owned()));
    let booked = "another amount was booked than was ordered";
    let given_back = "another amount was given back than was ordered";
    assert_eq!(tell("1.xml", &wrong, debit).await, after("sent", booked));
    assert_eq!(tell("2.xml", &wrong, back).await, after("sent", given_back));
    assert_eq!(tell("3.xml", &right, debit).await, after("paid", given_back));
    scene.harness.wait_for_state(&reference, "releasing").await;
    scene.harness.play_chain(&reference).await;
    scene.harness.wait_for_state(&reference, "completed").await;
    // A fee that names the payment, and that the bank waives.
    assert_eq!(tell("4.xml", "5.00", debit).await, after("paid", booked));
    assert_eq!(tell("5.xml", "5.00", back).await, after("paid", given_back));
    assert_eq!(scene.breaks().await, []);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_the_bank_contradicts_is_not_carried_out() {
    let (scene, reference) = BankScene::with_unanswered("0007").await;
    // The bank's answer arrived, and was not applied yet.
    let say = async |standing: &'static str| {
        let mut tx = scene.harness.pool().begin().await.unwrap();
        sqlx::query("update bank_payment set status = $1").bind(standing).execute(&mut *tx).await.unwrap();
        sqlx::query("update effect set run_at = now() + interval '1 hour'").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    };
    say("paid").await;
    let refused = scene.decide("jo", &reference, stopped()).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    say("refused").await;
    let refused = scene.decide("jo", &reference, paid_by("S17")).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    // It becomes known between the decision and its execution: the bank's answer takes precedence.
    say("paid").await;
    let decided = r#"update effect set run_at = now(),
        verdict = '{"verdict": "failed", "code": "stopped", "message": "m"}'"#;
    scene.harness.run(decided).await;
    scene.harness.wait_for_state(&reference, "releasing").await;
    assert_eq!(scene.breaks().await, []);
}
