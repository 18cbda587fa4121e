//! Banks that change their word about a payment, and what operators decide meanwhile: nobody is paid from both sides.

use chrono::Utc;
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_domain::ledger::Owner;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::money::Minor;
use dvp_domain::reconcile::BreakKind;
use dvp_domain::settlement::Remedy;
use dvp_rails::LegKind;
use dvp_rails::iso20022::folder::drop_into;
use dvp_store::ledger::balances;
use dvp_store::orders::{bank, effects};
use dvp_testing::Harness;
use dvp_testing::chain::request_refunds;
use dvp_testing::orders::{Terms, order_for};

use crate::bank_files::BankScene;
use crate::bank_returns::{CREDIT, DEBIT, RETURNED};
use crate::reversals::breaks_of;
use crate::scenes::{self, both_decide, is_settled};

const TAKEN_BACK: &str = "<CdtDbtInd>DBIT</CdtDbtInd><RvslInd>true</RvslInd>";
const REFUNDS: &str = "select count(*) from chain_command where kind = 'refund' and state <> 'failed'";
const FAILURES: &str = "select count(*) from event where type = 'payout.failed'";

pub(crate) fn paid_by(entry: &str) -> Action {
    Action::MarkPaid { leg: LegKind::Payout, provider_reference: entry.into(), at: Utc::now() }
}

fn resolved(remedy: Remedy) -> Action {
    Action::ResolveReturn { remedy, provider_reference: "W1".into(), at: Utc::now() }
}

impl BankScene {
    /// Imports the bank's refusal of the only payment.
    pub(crate) async fn refuse(&self) {
        let id = self.own_id().await;
        let refusal = format!(
            "<Document xmlns='urn:iso:std:iso:20022:tech:xsd:pain.002.001.10'><CstmrPmtStsRpt><GrpHdr><MsgId>S1</MsgId>\
             <CreDtTm>2026-11-21T12:00:40</CreDtTm></GrpHdr><OrgnlGrpInfAndSts><OrgnlMsgId>M{id}</OrgnlMsgId>\
             <OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId><GrpSts>ACCP</GrpSts></OrgnlGrpInfAndSts>\
             <OrgnlPmtInfAndSts><OrgnlPmtInfId>P{id}</OrgnlPmtInfId><TxInfAndSts><OrgnlEndToEndId>{id}</OrgnlEndToEndId>\
             <TxSts>RJCT</TxSts><StsRsnInf><Rsn><Cd>AC04</Cd></Rsn></StsRsnInf></TxInfAndSts></OrgnlPmtInfAndSts>\
             </CstmrPmtStsRpt></Document>"
        );
        drop_into(&self.files.folder().inbox(), "refused.xml", refusal.as_bytes()).await.unwrap();
        assert_eq!(self.files.take_in().await.unwrap(), 1);
    }

    /// The bank has accepted a recall of the only payment, which operators have closed.
    pub(crate) async fn accept_recall(&self) {
        let accepted = "insert into bank_recall (id, end_to_end_id, execution, reason, status, answered_at, closed_at) \
                        select 'rcl_1', end_to_end_id, execution, 'CUST', 'accepted', now(), now() from bank_payment";
        self.harness.run(accepted).await;
    }

    /// An order whose payment the bank has refused; and its amount.
    pub(crate) async fn with_refused() -> (Self, String, String) {
        let (scene, reference) = Self::with_files_by_hand("6789").await;
        let amount = scene.amount().await;
        scene.refuse().await;
        scene.harness.wait_for_state(&reference, "payout_failed").await;
        (scene, reference, amount)
    }

    /// The same, and the bank has made it all the same.
    async fn with_refused_and_booked() -> (Self, String, String) {
        let (scene, reference, amount) = Self::with_refused().await;
        scene.notify("booked.xml", &[(&amount, DEBIT, "")]).await;
        scene.has_alarm(&reference, "paid after it was refused").await;
        (scene, reference, amount)
    }

    pub(crate) async fn own_id(&self) -> String {
        self.harness.row::<(String,)>("select end_to_end_id from bank_payment").await.0
    }

    pub(crate) async fn amount(&self) -> String {
        let amount = "select (amount / 100)::numeric(20, 2)::text from bank_payment";
        self.harness.row::<(String,)>(amount).await.0
    }

    /// An order that was paid, and whose payment came back, less an amount that the bank has deducted.
    async fn with_returned(deducted: &str) -> (Self, String, String) {
        let (scene, reference) = Self::with_files_by_hand("6789").await;
        let amounts = "select (amount / 100)::numeric(20, 2)::text, (amount / 100 - $1::text::numeric)::numeric(20, 2)::text \
                       from bank_payment";
        let amounts = sqlx::query_as(amounts).bind(deducted).fetch_one(scene.harness.pool()).await;
        let (amount, came): (String, String) = amounts.unwrap();
        scene.notify("booked.xml", &[(&amount, DEBIT, "")]).await;
        scene.harness.wait_for_state(&reference, "releasing").await;
        scene.harness.play_chain(&reference).await;
        scene.harness.wait_for_state(&reference, "completed").await;
        scene.notify("back.xml", &[(&came, CREDIT, RETURNED)]).await;
        scene.harness.wait_for_state(&reference, "reversed").await;
        scene.harness.wait_for_count("select count(*) from effect", 0).await;
        (scene, reference, came)
    }

    /// What the ledger has given to an account, in minor units.
    async fn minor(&self, kind: &str, owner: &str) -> i64 {
        let sum = "select coalesce(sum(amount), 0)::int8 from ledger_entry \
                   where owner_kind = $1 and owner = $2 and asset = 'USD'";
        sqlx::query_scalar(sum).bind(kind).bind(owner).fetch_one(self.harness.pool()).await.unwrap()
    }

    async fn contradictions(&self) -> i64 {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        bank::count_contradicted(&mut conn).await.unwrap()
    }

    async fn request_refunds(&self) -> usize {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        request_refunds(&mut conn, 60).await
    }

    /// Nobody decides, and the time to settle comes.
    async fn is_near_the_timelock(&self, reference: &str) {
        set(&self.harness, "settle_at", "{lock,deadlines,settle_at}", -1).await;
        let mut conn = self.harness.pool().acquire().await.unwrap();
        effects::insert_timelocks(&mut conn).await.unwrap();
        self.harness.wait_for_state(reference, "owing").await;
        is_settled(&self.harness, reference).await;
    }
}

/// Sets a time of the only order's lock, in seconds from now.
async fn set(harness: &Harness, name: &str, path: &str, secs: i64) {
    let sql = "update execution set state = jsonb_set(state, $1::text::text[], \
               to_jsonb((extract(epoch from now())::int8 + $2) * 1000))";
    let done = sqlx::query(sql).bind(path).bind(secs).execute(harness.pool()).await;
    assert_eq!(done.unwrap().rows_affected(), 1, "{name}");
}

async fn timelock_is_over(harness: &Harness) {
    set(harness, "timelock", "{lock,timelock_expires_at}", -120).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_payment_that_was_made_is_found_by_two_operators_and_never_refunded_beside_it() {
    let (scene, reference, amount) = BankScene::with_refused_and_booked().await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    assert_eq!(scene.contradictions().await, 1);
    // Nobody has decided, and the timelock is over: the service returns nothing beside the payment.
    let before =
        "update execution set state = jsonb_set(state, '{before}', state #> '{lock,timelock_expires_at}')";
    scene.harness.run(before).await;
    timelock_is_over(&scene.harness).await;
    assert_eq!(scene.request_refunds().await, 0);
    assert_eq!(scene.harness.count(REFUNDS).await, 0);
    let again = "update execution set state = jsonb_set(state, '{lock,timelock_expires_at}', state -> 'before') - 'before'";
    scene.harness.run(again).await;

    both_decide(&scene.harness, &reference, paid_by(&reference)).await;
    scene.harness.wait_for_state(&reference, "releasing").await;
    assert_eq!(scene.contradictions().await, 0);
    scene.harness.play_until(&reference, |kind| kind == "settle").await;
    scene.harness.wait_for_state(&reference, "completed").await;
    let events = scene.harness.events(&reference).await;
    assert_eq!(events[events.len() - 2..], ["payout.failed", "payout.completed"]);
    assert_eq!(scene.breaks().await, []);
    assert_eq!(scene.harness.account("escrow", "USDC").await, "0");
    let open = "select count(*) from (select from open_change group by scope, target, asset having sum(amount) <> 0) o";
    assert_eq!(scene.harness.count(open).await, 0, "it counts as open once, and not any more");
    scene.harness.check_books().await;
    // What was paid may come back.
    scene.notify("back.xml", &[(&amount, CREDIT, RETURNED)]).await;
    scene.harness.wait_for_state(&reference, "reversed").await;
    assert_eq!(scene.breaks().await, [BreakKind::PaymentReturned]);
    scene.harness.check_books().await;
}

fn closed() -> Action {
    Action::CloseConversion { provider_reference: "T-1".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_whose_payment_is_refused_is_a_position_until_two_operators_close_it() {
    let (scene, reference, _) = BankScene::with_refused().await;
    let output =
        scene.harness.count("select (terms #>> '{plan,priced,gross_output}')::int8 from execution").await;
    let positions = async || breaks_of(&scene.harness, &[BreakKind::ConvertedNotUsed]).await;
    assert_eq!(scene.minor("position", &reference).await, output, "the desk has given it, and nobody got it");
    assert_eq!(positions().await, [BreakKind::ConvertedNotUsed]);
    both_decide(&scene.harness, &reference, closed()).await;
    scene.harness.wait_for_count("select count(*) from effect", 0).await;
    assert_eq!((scene.minor("position", &reference).await, scene.minor("house", "").await), (0, output));
    assert_eq!(positions().await, []);
    let again = scene.decide("jo", &reference, closed()).await;
    assert!(matches!(again, Err(ResolveError::NotWaiting { .. })), "{again:?}");
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_is_found_takes_the_conversion_back_from_the_desk_or_from_the_house() {
    for is_closed in [false, true] {
        let (scene, reference, _) = BankScene::with_refused_and_booked().await;
        assert_ne!(scene.minor("position", &reference).await, 0);
        if is_closed {
            both_decide(&scene.harness, &reference, closed()).await;
            scene.harness.wait_for_count("select count(*) from effect", 0).await;
        }
        both_decide(&scene.harness, &reference, paid_by(&reference)).await;
        scene.harness.wait_for_state(&reference, "releasing").await;
        scene.harness.play_until(&reference, |kind| kind == "settle").await;
        scene.harness.wait_for_state(&reference, "completed").await;
        if is_closed {
            assert!(scene.minor("position", &reference).await < 0, "the house has what the order has used");
            let breaks = breaks_of(&scene.harness, &[BreakKind::ConvertedNotUsed]).await;
            assert_eq!(breaks, [BreakKind::ConvertedNotUsed]);
            both_decide(&scene.harness, &reference, closed()).await;
            scene.harness.wait_for_count("select count(*) from effect", 0).await;
        }
        for account in [("position", reference.as_str()), ("desk", ""), ("house", "")] {
            assert_eq!(scene.minor(account.0, account.1).await, 0, "{account:?}");
        }
        assert_eq!(breaks_of(&scene.harness, &[BreakKind::ConvertedNotUsed]).await, []);
        scene.harness.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_was_made_after_all_is_settled_before_the_timelock_when_nobody_decides() {
    let (scene, reference, _) = BankScene::with_refused_and_booked().await;
    scene.is_near_the_timelock(&reference).await;
    assert_ne!(scene.harness.account("debt", "USD").await, "0", "never neither: it is owed, and pages");
    let given_back = Action::ReturnDebt { provider_reference: "0xback".into(), at: Utc::now() };
    let refused = scene.decide("jo", &reference, given_back).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    scene.harness.check_books().await;
    both_decide(&scene.harness, &reference, paid_by(&reference)).await;
    scene.harness.wait_for_state(&reference, "completed").await;
    assert_eq!(scene.harness.account("debt", "USD").await, "0");
    assert_eq!(scene.harness.events(&reference).await.last().unwrap(), "payout.completed");
    assert_eq!(scene.harness.count(FAILURES).await, 1);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_input_of_a_reopened_order_whose_payment_came_back_is_returned_and_told_once() {
    let (scene, reference, amount) = BankScene::with_refused_and_booked().await;
    scene.is_near_the_timelock(&reference).await;
    scene.notify("back.xml", &[(&amount, CREDIT, RETURNED)]).await;
    let own = scene.own_id().await;
    let refused = scene.decide("jo", &reference, paid_by(&own)).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    let given_back = Action::ReturnDebt { provider_reference: "0xback".into(), at: Utc::now() };
    both_decide(&scene.harness, &reference, given_back).await;
    scene.harness.wait_for_state(&reference, "payout_failed").await;
    scene.harness.wait_for_count("select count(*) from effect", 0).await;
    assert_eq!(scene.harness.count(FAILURES).await, 1, "the failure was told before");
    let owed = "select count(*) from ledger_entry where part = 'owed' and asset = 'USD' \
                having sum(amount) <> 0";
    let owed: Option<i64> = sqlx::query_scalar(owed).fetch_optional(scene.harness.pool()).await.unwrap();
    assert_eq!(owed, None, "the providers owe no output");
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refund_is_withdrawn_when_the_bank_makes_the_payment_and_requested_again_when_that_is_closed() {
    let (scene, reference, amount) = BankScene::with_refused().await;
    timelock_is_over(&scene.harness).await;
    scene.request_refunds().await;
    scene.harness.wait_for_count(REFUNDS, 1).await;
    scene.notify("booked.xml", &[(&amount, DEBIT, "")]).await;
    assert_eq!(scene.harness.count(REFUNDS).await, 0, "it was not sent");
    assert_eq!(scene.request_refunds().await, 0);
    scene.notify("back.xml", &[(&amount, CREDIT, RETURNED)]).await;
    assert_eq!(scene.request_refunds().await, 0, "until operators have closed it");
    both_decide(&scene.harness, &reference, Action::CloseContradiction).await;
    scene.request_refunds().await;
    assert_eq!(scene.harness.count(REFUNDS).await, 1);
    scene.request_refunds().await;
    assert_eq!(scene.harness.count(REFUNDS).await, 1);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_the_bank_has_fails_only_when_it_is_refused_or_its_recall_accepted() {
    let (scene, reference) = BankScene::with_files_by_hand("6789").await;
    let fail = || Action::Fail { leg: LegKind::Payout, code: "stopped".into() };
    for status in ["sent", "pending"] {
        let said = "update bank_payment set status = $1";
        sqlx::query(said).bind(status).execute(scene.harness.pool()).await.unwrap();
        let refused = scene.decide("jo", &reference, fail()).await;
        assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{status}: {refused:?}");
    }
    scene.accept_recall().await;
    both_decide(&scene.harness, &reference, fail()).await;
    scene.harness.wait_for_state(&reference, "payout_failed").await;
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_that_the_bank_takes_back_stops_the_second_payment_and_the_payment_stands() {
    for deducted in ["0", "5.00"] {
        let (scene, reference, came) = BankScene::with_returned(deducted).await;
        scene.notify("taken.xml", &[(&came, TAKEN_BACK, "")]).await;
        scene.has_alarm(&reference, "its return was taken back by the bank: the payment stands").await;
        assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted, BreakKind::PaymentReturned]);
        assert_eq!(scene.contradictions().await, 1);
        // Statement and notification repeat each other.
        scene.notify("again.xml", &[(&came, TAKEN_BACK, "")]).await;
        for remedy in [Remedy::PaidAgain, Remedy::GivenBack] {
            let refused = scene.decide("jo", &reference, resolved(remedy)).await;
            assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
        }
        both_decide(&scene.harness, &reference, paid_by(&reference)).await;
        let stands = "select count(*) from execution where state #>> '{reversal,resolved,remedy}' = 'stands'";
        scene.harness.wait_for_count(stands, 1).await;
        assert_eq!((scene.breaks().await, scene.contradictions().await), (vec![], 0));
        assert_eq!((scene.minor("debt", &reference).await, scene.minor("house", "").await), (0, 0));
        scene.harness.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_bank_takes_back_after_it_was_paid_again_is_a_break() {
    let (scene, reference, came) = BankScene::with_returned("0").await;
    both_decide(&scene.harness, &reference, resolved(Remedy::PaidAgain)).await;
    let paid_again =
        "select count(*) from execution where state #>> '{reversal,resolved,remedy}' = 'paid_again'";
    scene.harness.wait_for_count(paid_again, 1).await;
    assert_eq!(scene.breaks().await, []);
    scene.notify("taken.xml", &[(&came, TAKEN_BACK, "")]).await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    assert_eq!(scene.contradictions().await, 1);
    both_decide(&scene.harness, &reference, Action::CloseContradiction).await;
    assert_eq!((scene.breaks().await, scene.contradictions().await), (vec![], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_payment_whose_return_was_taken_back_is_found_and_not_refunded() {
    let (scene, reference, amount) = BankScene::with_refused_and_booked().await;
    scene.notify("back.xml", &[(&amount, CREDIT, RETURNED)]).await;
    let refused = scene.decide("jo", &reference, paid_by(&reference)).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    scene.notify("taken.xml", &[(&amount, TAKEN_BACK, "")]).await;
    scene.is_near_the_timelock(&reference).await;
    both_decide(&scene.harness, &reference, paid_by(&reference)).await;
    scene.harness.wait_for_state(&reference, "completed").await;
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_less_charges_reverses_what_came_and_the_house_bears_the_rest() {
    let (scene, reference, _) = BankScene::with_returned("5.00").await;
    let output = scene.harness.count("select amount::int8 from bank_payment").await;
    assert_eq!(scene.minor("external", &reference).await, 500, "it stays outside");
    assert_eq!(scene.minor("house", "").await, -500);
    assert_eq!(scene.minor("debt", &reference).await, output, "all of it is owed");
    let entry = "select amount::int8 from ledger_entry where reason = 'reverse' and owner_kind = 'external'";
    assert_eq!(scene.harness.count(entry).await, 500 - output, "the bank's entry has its posting");
    both_decide(&scene.harness, &reference, resolved(Remedy::PaidAgain)).await;
    let resolved =
        "select count(*) from execution where state #>> '{reversal,resolved,remedy}' = 'paid_again'";
    scene.harness.wait_for_count(resolved, 1).await;
    assert_eq!(scene.minor("debt", &reference).await, 0);
    scene.harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_whose_payment_came_back_is_recorded_as_paid_by_another_entry_of_the_bank() {
    let (scene, reference, amount) = BankScene::with_refused_and_booked().await;
    scene.is_near_the_timelock(&reference).await;
    scene.notify("back.xml", &[(&amount, CREDIT, RETURNED)]).await;
    let own = scene.own_id().await;
    for own in [own.to_lowercase(), format!("M{own}"), reference.clone()] {
        let refused = scene.decide("jo", &reference, paid_by(&own)).await;
        assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{own}: {refused:?}");
    }
    both_decide(&scene.harness, &reference, paid_by("WIRE2")).await;
    scene.harness.wait_for_state(&reference, "completed").await;
    assert_eq!(scene.minor("debt", &reference).await, 0);
    scene.harness.check_books().await;
    // The first one is made after all: the beneficiary has it twice.
    scene.notify("taken.xml", &[(&amount, TAKEN_BACK, "")]).await;
    assert_eq!(scene.breaks().await, [BreakKind::DecisionContradicted]);
    assert_eq!(scene.contradictions().await, 1);
}

/// An order of prefunded dollars for euros.
const PREFUNDED: Terms<'static> = Terms { input: ("USD", 100_000), output: "EUR", account: "000123450002" };

#[tokio::test(flavor = "multi_thread")]
async fn the_prefunded_input_of_a_payment_that_was_made_after_all_is_taken_back() {
    let harness = scenes::harness().await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 100_000).await;
    harness.start_workers();
    let reference = harness.accept(order_for(&PREFUNDED)).await.reference;
    harness.wait_for_state(&reference, "payout_failed").await;
    // The partner has taken its money out, and brings it again.
    let (owner, amount) = (harness.partner(), Minor::new(100_000));
    let withdrawal = Operation::Withdrawal { owner: owner.clone(), asset: "USD".into(), amount };
    let mut conn = harness.pool().acquire().await.unwrap();
    let maker =
        dvp_core::operators::requests::Maker { operator: "jo", reason: "a partner", evidence: "a letter" };
    let requested =
        dvp_core::operators::ledger_operations::request(&mut conn, "W-1", &withdrawal, maker).await.unwrap();
    dvp_core::operators::approvals::approve(&mut conn, &requested.approval.id, "mika", "seen").await.unwrap();
    let refused = harness.decide("jo", &reference, paid_by(&reference)).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    balances::deposit(&mut conn, "D-1", &owner, "USD", amount).await.unwrap();
    both_decide(&harness, &reference, paid_by(&reference)).await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(harness.balance(&owner, "USD").await, (0, 0));
    assert_ne!(harness.balance(&Owner::Provider("north".into()), "USD").await, (0, 0));
    assert_eq!(harness.events(&reference).await.last().unwrap(), "payout.completed");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_stands_may_come_back_again() {
    let (scene, reference, came) = BankScene::with_returned("0").await;
    scene.notify("taken.xml", &[(&came, TAKEN_BACK, "")]).await;
    both_decide(&scene.harness, &reference, paid_by(&reference)).await;
    let stands = "select count(*) from execution where state #>> '{reversal,resolved,remedy}' = 'stands'";
    scene.harness.wait_for_count(stands, 1).await;
    scene.notify("again.xml", &[(&came, CREDIT, RETURNED)]).await;
    scene.harness.wait_for_count(stands, 0).await;
    assert_ne!(scene.minor("debt", &reference).await, 0, "it is owed again");
    assert_eq!(scene.breaks().await, [BreakKind::PaymentReturned]);
    assert_eq!(scene.harness.count("select count(*) from event where type = 'payout.reversed'").await, 1);
    scene.harness.check_books().await;
}
