//! Payments that come back, in any order with their booking and their refusal, and what operators decide meanwhile.

use std::time::Duration;

use chrono::Utc;
use dvp_core::operators::approvals;
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_domain::reconcile::BreakKind;
use dvp_rails::iso20022::folder::drop_into;
use dvp_testing::wait::wait_for;
use sqlx::{Postgres, Transaction};

use crate::bank_files::{BankScene, stopped};
use crate::bank_words::paid_by;
use crate::recalls::RECALL;
use crate::scenes::{both_decide, is_near_its_timelock, is_settled};

pub(crate) const DEBIT: &str = "<CdtDbtInd>DBIT</CdtDbtInd>";
pub(crate) const CREDIT: &str = "<CdtDbtInd>CRDT</CdtDbtInd>";
pub(crate) const RETURNED: &str = "<RtrInf><Rsn><Cd>AC04</Cd></Rsn></RtrInf>";

impl BankScene {
    /// Imports a notification of entries about the only payment: an amount, the entry's indicators and more about the
    /// payment.
    pub(crate) async fn notify(&self, name: &str, entries: &[(&str, &str, &str)]) {
        let id = self.own_id().await;
        let entry = |(amount, indicators, more): &(&str, &str, &str)| {
            format!(
                "<Ntry><Amt Ccy='USD'>{amount}</Amt>{indicators}<Sts><Cd>BOOK</Cd></Sts><BkTxCd/><NtryDtls><TxDtls>\
                 <Refs><EndToEndId>{id}</EndToEndId></Refs>{more}</TxDtls></NtryDtls></Ntry>"
            )
        };
        let entries: String = entries.iter().map(entry).collect();
        let content = format!(
            "<Document xmlns='urn:iso:std:iso:20022:tech:xsd:camt.054.001.08'><BkToCstmrDbtCdtNtfctn><GrpHdr>\
             <MsgId>{name}</MsgId><CreDtTm>2026-11-21T12:00:40Z</CreDtTm></GrpHdr><Ntfctn><Id>{name}</Id><Acct><Id>\
             <Othr><Id>400500600</Id></Othr></Id></Acct>{entries}</Ntfctn></BkToCstmrDbtCdtNtfctn></Document>"
        );
        drop_into(&self.files.folder().inbox(), name, content.as_bytes()).await.unwrap();
        assert_eq!(self.files.take_in().await.unwrap(), 1, "{name}");
    }

    /// An order that was settled without a final answer, whose files are imported by hand; and its amount.
    async fn with_debt() -> (Self, String, String) {
        let (scene, reference) = Self::with_files_by_hand("6789").await;
        is_near_its_timelock(&scene.harness, &reference).await;
        is_settled(&scene.harness, &reference).await;
        let amount = scene.amount().await;
        (scene, reference, amount)
    }

    /// A debt whose payment the bank refuses.
    async fn with_refused_debt() -> (Self, String, String) {
        let (scene, reference, amount) = Self::with_debt().await;
        scene.harness.run("update bank_payment set status = 'refused', reason = 'AC04'").await;
        scene.has_failed().await;
        (scene, reference, amount)
    }

    async fn has_failed(&self) {
        let failed =
            "select count(*) from execution where state #>> '{failure,code}' = 'beneficiary_account_closed'";
        wait_for("the bank's answer", || async {
            let due = "update effect set run_at = now() where kind = 'payout' and claimed_until is null";
            self.harness.run(due).await;
            (self.harness.count(failed).await == 1).then_some(())
        })
        .await;
    }

    /// Two operators record the debt as paid by an entry of the bank.
    async fn mark_paid(&self, reference: &str, entry: &str) {
        both_decide(&self.harness, reference, paid_by(entry)).await;
        self.harness.wait_for_state(reference, "completed").await;
    }

    /// The debt of a payment that came back is not recorded as paid, but as returned.
    async fn ends_as_returned(&self, reference: &str) {
        let refused = self.decide("jo", reference, paid_by(&self.own_id().await)).await;
        assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
        let given_back = Action::ReturnDebt { provider_reference: "0xback".into(), at: Utc::now() };
        both_decide(&self.harness, reference, given_back).await;
        self.harness.wait_for_state(reference, "payout_failed").await;
        assert_eq!(self.harness.account("debt", "USD").await, "0");
        self.harness.wait_for_count("select count(*) from effect", 0).await;
        assert_eq!(self.harness.count("select count(*) from event where type = 'payout.reversed'").await, 0);
        self.harness.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_whose_payment_came_back_before_it_was_booked_is_returned_and_not_recorded_as_paid() {
    let (scene, reference, amount) = BankScene::with_debt().await;
    scene.notify("1.xml", &[(&amount, CREDIT, RETURNED)]).await;
    scene.has_failed().await;
    scene.notify("2.xml", &[(&amount, DEBIT, ""), (&amount, CREDIT, RETURNED)]).await;
    assert_eq!(scene.alarm(&reference).await, None, "together they say that nothing was paid");
    assert_eq!(scene.breaks().await, []);
    scene.ends_as_returned(&reference).await;
    assert_eq!(scene.breaks().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_whose_refused_payment_is_booked_and_comes_back_is_returned_and_not_recorded_as_paid() {
    let (scene, reference, amount) = BankScene::with_refused_debt().await;
    scene.notify("1.xml", &[(&amount, DEBIT, "")]).await;
    scene.has_alarm(&reference, "paid after it was refused").await;
    // The bank has deducted its charge.
    scene.notify("2.xml", &[("0.01", CREDIT, RETURNED)]).await;
    scene.has_alarm(&reference, "returned after it was paid").await;
    scene.ends_as_returned(&reference).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_payment_that_was_booked_recorded_as_paid_and_returned_reverses_its_order() {
    let (scene, reference, amount) = BankScene::with_refused_debt().await;
    scene.notify("1.xml", &[(&amount, DEBIT, "")]).await;
    scene.mark_paid(&reference, &reference).await;
    for name in ["2.xml", "3.xml"] {
        scene.notify(name, &[(&amount, DEBIT, ""), (&amount, CREDIT, RETURNED)]).await;
        scene.has_alarm(&reference, "returned after it was paid").await;
        scene.harness.wait_for_state(&reference, "reversed").await;
    }
    assert_eq!(scene.breaks().await, [BreakKind::PaymentReturned]);
    assert_ne!(scene.harness.account("debt", "USD").await, "0", "the output is owed again");
    assert_eq!(scene.harness.count("select count(*) from event where type = 'payout.reversed'").await, 1);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_was_taken_for_paid_and_comes_back_before_it_is_booked_reverses_its_order() {
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    both_decide(&scene.harness, &reference, paid_by("S17")).await;
    scene.harness.wait_for_state(&reference, "releasing").await;
    let amount = scene.amount().await;
    scene.notify("1.xml", &[(&amount, CREDIT, RETURNED)]).await;
    scene.has_alarm(&reference, "returned after it was paid").await;
    scene.notify("2.xml", &[(&amount, DEBIT, ""), (&amount, CREDIT, RETURNED)]).await;
    scene.harness.play_chain(&reference).await;
    scene.harness.wait_for_state(&reference, "reversed").await;
    assert_eq!(scene.breaks().await, [BreakKind::PaymentReturned]);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_that_was_paid_another_way_is_not_reversed_by_the_return_of_its_refused_payment() {
    let (scene, reference, amount) = BankScene::with_refused_debt().await;
    scene.mark_paid(&reference, "WIRE2").await;
    scene.notify("1.xml", &[(&amount, DEBIT, ""), (&amount, CREDIT, RETURNED)]).await;
    let alarm = "returned after it was refused, and the payout is recorded as paid";
    scene.has_alarm(&reference, alarm).await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted], "operators decide");
    scene.harness.wait_for_count("select count(*) from effect", 0).await;
    scene.harness.wait_for_state(&reference, "completed").await;
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_comes_back_between_request_and_approval_is_not_recorded_as_paid() {
    let (scene, reference, amount) = BankScene::with_debt().await;
    let own = scene.own_id().await;
    assert!(scene.decide("jo", &reference, paid_by(&own)).await.unwrap(), "a request");
    scene.notify("1.xml", &[(&amount, CREDIT, RETURNED)]).await;
    scene.has_failed().await;
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let id = sqlx::query_scalar("select id from approval where state = 'pending'");
    let id: String = id.fetch_one(&mut *conn).await.unwrap();
    let approved = approvals::approve(&mut conn, &id, "mika", "seen on the statement").await;
    assert!(approved.is_err(), "{approved:?}");
    assert_ne!(scene.harness.account("debt", "USD").await, "0", "nobody has recorded it as paid");
    approvals::deny(&mut conn, &id, "mika", "it came back").await.unwrap();
    scene.ends_as_returned(&reference).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_is_not_recorded_as_paid_by_another_payment_once_the_bank_has_booked_its_own() {
    let (scene, reference, amount) = BankScene::with_refused_debt().await;
    assert!(scene.decide("jo", &reference, paid_by("WIRE2")).await.unwrap(), "a request");
    scene.notify("1.xml", &[(&amount, DEBIT, "")]).await;
    for operator in ["mika", "jo"] {
        let refused = scene.decide(operator, &reference, paid_by("WIRE2")).await;
        assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{operator}: {refused:?}");
    }
    assert_ne!(scene.harness.account("debt", "USD").await, "0", "nobody has recorded anything");
    let mut conn = scene.harness.pool().acquire().await.unwrap();
    let open = sqlx::query_scalar("select id from approval where state = 'pending'");
    let open: String = open.fetch_one(&mut *conn).await.unwrap();
    approvals::deny(&mut conn, &open, "mika", "the bank has made it").await.unwrap();
    scene.mark_paid(&reference, &reference).await;
    assert_eq!(scene.harness.account("debt", "USD").await, "0");
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_is_booked_after_its_debt_was_paid_another_way_is_a_break_and_its_return_reverses_nothing()
 {
    let (scene, reference, amount) = BankScene::with_debt().await;
    scene.give_up(&reference).await;
    scene.mark_paid(&reference, "WIRE2").await;
    assert_eq!(scene.breaks().await, []);
    scene.notify("booked.xml", &[(&amount, DEBIT, "")]).await;
    scene
        .has_alarm(
            &reference,
            "booked after its debt was recorded as paid: the beneficiary may have it twice",
        )
        .await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    scene.notify("again.xml", &[(&amount, DEBIT, "")]).await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    // The other payment stands.
    scene.notify("back.xml", &[(&amount, CREDIT, RETURNED)]).await;
    scene.has_alarm(&reference, "returned, and its debt was recorded as paid before it was booked").await;
    assert_eq!(scene.harness.count("select count(*) from effect").await, 0, "no return is reported");
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    both_decide(&scene.harness, &reference, Action::CloseContradiction).await;
    assert_eq!(scene.breaks().await, []);
    scene.harness.wait_for_state(&reference, "completed").await;
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_payment_that_is_booked_after_its_debt_was_paid_another_way_is_a_break() {
    let (scene, reference, amount) = BankScene::with_refused_debt().await;
    scene.mark_paid(&reference, "WIRE2").await;
    assert_eq!(scene.breaks().await, []);
    scene.notify("booked.xml", &[(&amount, DEBIT, "")]).await;
    scene.has_alarm(&reference, "paid after it was refused").await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    // What was paid twice is recalled.
    both_decide(&scene.harness, &reference, RECALL).await;
    scene.notify("again.xml", &[(&amount, DEBIT, "")]).await;
    assert_eq!(scene.files.send_recalls().await.unwrap(), 1);
    scene.notify("back.xml", &[(&amount, CREDIT, RETURNED)]).await;
    let ended = "select count(*) from bank_recall where status = 'recalled'";
    scene.harness.wait_for_count(ended, 1).await;
    let again = scene.decide("jo", &reference, RECALL).await;
    assert!(matches!(again, Err(ResolveError::Contradicted(_))), "{again:?}");
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_of_a_payment_whose_debt_was_paid_another_way_is_no_break() {
    let (scene, reference, _) = BankScene::with_debt().await;
    scene.give_up(&reference).await;
    scene.mark_paid(&reference, "WIRE2").await;
    scene.refuse().await;
    let refused = "select count(*) from bank_payment where status = 'refused'";
    assert_eq!(scene.harness.count(refused).await, 1);
    assert_eq!(scene.alarm(&reference).await, None);
    assert_eq!(scene.breaks().await, []);
}

/// An order whose payout operators have decided to fail, and whose step waits for a lock until the transaction ends.
async fn with_decision_behind(
    lock: &'static str,
) -> (BankScene, String, String, Transaction<'static, Postgres>) {
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    let amount = scene.amount().await;
    scene.accept_recall().await;
    assert!(scene.decide("jo", &reference, stopped()).await.unwrap(), "a request");
    let mut slow = scene.harness.pool().begin().await.unwrap();
    sqlx::query(lock).execute(&mut *slow).await.unwrap();
    assert!(!scene.decide("mika", &reference, stopped()).await.unwrap());
    scene.harness.wait_for_count(WAITS, 1).await;
    (scene, reference, amount, slow)
}

const WAITS: &str = "select count(*) from pg_stat_activity \
                     where datname = current_database() and wait_event_type = 'Lock'";

#[tokio::test(flavor = "multi_thread")]
async fn a_booking_that_comes_while_a_decision_is_written_comes_first() {
    // A step begins with the balances.
    let (scene, reference, amount, slow) =
        with_decision_behind("select from account_balance for update").await;
    scene.notify("booked.xml", &[(&amount, DEBIT, "")]).await;
    slow.rollback().await.unwrap();
    scene.harness.wait_for_state(&reference, "releasing").await;
    assert_eq!(scene.breaks().await, []);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_booking_that_is_imported_while_a_decision_is_committed_is_a_break() {
    // A step ends with the feed.
    let (scene, reference, amount, slow) =
        with_decision_behind("update feed_counter set position = position").await;
    let entries = [(amount.as_str(), DEBIT, "")];
    let mut importing = std::pin::pin!(scene.notify("booked.xml", &entries));
    let is_waiting = async {
        while scene.harness.count(WAITS).await < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let is_imported = tokio::select! {
        () = &mut importing => true,
        () = is_waiting => false,
    };
    slow.rollback().await.unwrap();
    if !is_imported {
        importing.await;
    }
    let ended = wait_for("the decision or the booking", || async {
        let ended = "select state_name from execution where state_name in ('payout_failed', 'releasing')";
        sqlx::query_scalar::<_, String>(ended).fetch_optional(scene.harness.pool()).await.unwrap()
    })
    .await;
    // On a slow machine the step is given up and made again, and the booking comes first.
    if ended == "payout_failed" {
        scene.has_alarm(&reference, "paid after the payout was given up").await;
        assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    } else {
        assert_eq!(scene.breaks().await, []);
    }
}
