//! Orders that name a registered recipient: the payout by the simulated rail and by a bank.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use chrono::Utc;
use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::beneficiary::{Beneficiary, PayoutMethod};
use dvp_domain::intent::IntentRequest;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::iso20022::instruction::check_payout;
use dvp_rails::{PayoutOrder, Rail, RailFuture, RailRequest, RailStatus};
use dvp_store::partners::beneficiaries::{
    NewBeneficiary, NewDestination, disable_destination, insert_beneficiary, insert_destination,
    verify_destination,
};
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order, order_for};
use serde_json::json;

use crate::guard::failure_code;
use crate::scenes;

const BENEFICIARY: &str = "bene_1";
const DESTINATION: &str = "dest_1";

/// A verified destination in euros, `bene_1:dest_eur`.
pub(crate) async fn enter_account_in_euros(harness: &Harness) {
    let mut conn = harness.pool().acquire().await.unwrap();
    let new = NewDestination {
        id: "dest_eur",
        beneficiary_id: BENEFICIARY,
        account: "DE89370400440532013000",
        currency: "EUR",
        method: PayoutMethod::Sepa,
        swift_code: Some("COBADEFFXXX"),
        bank: None,
        operator: "jo",
    };
    insert_destination(&mut conn, &new).await.unwrap();
    assert!(verify_destination(&mut conn, "dest_eur", "kim", "call of 3 May").await.unwrap());
}

pub(crate) async fn enter(harness: &Harness, partner_id: &str) {
    let mut conn = harness.pool().acquire().await.unwrap();
    let new = NewBeneficiary {
        id: BENEFICIARY,
        partner_id,
        name: "Jane Doe",
        country: "US",
        address: None,
        operator: "jo",
    };
    insert_beneficiary(&mut conn, &new).await.unwrap();
    scenes::enter_destination(&mut conn, DESTINATION, "000123456789").await;
}

async fn verify(harness: &Harness) -> bool {
    let mut conn = harness.pool().acquire().await.unwrap();
    verify_destination(&mut conn, DESTINATION, "kim", "call of 3 May").await.unwrap()
}

async fn disable(harness: &Harness) -> bool {
    let mut conn = harness.pool().acquire().await.unwrap();
    disable_destination(&mut conn, DESTINATION, "kim", "account closed").await.unwrap()
}

fn named(account: &str) -> IntentRequest {
    let mut request = order("x");
    request.beneficiary = Some(Beneficiary { account: Some(account.into()), ..Beneficiary::default() });
    request
}

fn registered() -> IntentRequest {
    named(&format!("{BENEFICIARY}:{DESTINATION}"))
}

fn code(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Refused(Refusal::Unpayable(why)) => Some(why.code),
        _ => None,
    }
}

/// Records the payments it was called for.
#[derive(Default)]
struct Noting(Mutex<Vec<RailRequest>>);

impl Rail for Noting {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        self.0.lock().unwrap().push(request.clone());
        let done = LegDone { provider_reference: "p".into(), occurred_at: Utc::now().into() };
        Box::pin(async move { Ok(RailAnswer::Done(done)) })
    }

    fn status<'a>(&'a self, _: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async { Ok(RailStatus::NeverSeen) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_recipient_is_paid_only_once_verified() {
    let harness = scenes::harness().await;
    enter(&harness, &harness.tenant.partner_id).await;
    assert_eq!(code(&harness.submit(registered()).await), Some("beneficiary_not_verified"));
    assert!(verify(&harness).await);
    let rail = Arc::new(Noting::default());
    harness.start_workers_paying(rail.clone());
    let reference = harness.accept(registered()).await.reference;
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    let requested = rail.0.lock().unwrap().clone();
    assert_eq!(requested.len(), 1, "{requested:?}");
    let payee = requested[0].beneficiary.as_ref().unwrap();
    assert_eq!(
        (requested[0].account.as_str(), payee.account(), payee.name(), payee.bank.as_deref(), payee.rail()),
        (
            "000123456789",
            Some("000123456789"),
            Some("Jane Doe"),
            Some("USABA021000021"),
            Some(PayoutMethod::Ach)
        )
    );
    let accepts = |beneficiary| {
        check_payout(&PayoutOrder {
            beneficiary,
            amount: requested[0].amount,
            currency: "USD",
            exponent: 2,
            reference: None,
        })
    };
    assert!(accepts(Some(payee)).is_ok(), "a bank could be ordered to pay it");
    assert_eq!(accepts(registered().beneficiary.as_ref()).unwrap_err().code, "beneficiary_unknown");
    // Events show the account itself, not the reference: an account has one hash, however an order names it.
    let shown = "select distinct (object -> 'beneficiary')::text from event where reference = $1";
    let shown: Vec<(String,)> =
        sqlx::query_as(shown).bind(&reference).fetch_all(harness.pool()).await.unwrap();
    let [(shown,)] = shown.as_slice() else { panic!("{shown:?}") };
    let hash = harness.engine.context().vault.account_hash("000123456789");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(shown).unwrap(),
        json!({"nameMasked": "J*** D**", "accountLast4": "6789", "accountHash": hash, "bank": "USABA021000021"})
    );
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_begins_with_its_acceptance_pays_the_details_of_its_recipient() {
    let harness = scenes::harness().await;
    enter(&harness, &harness.tenant.partner_id).await;
    enter_account_in_euros(&harness).await;
    harness.fund("north", "EUR", 1_000_000).await;
    harness.deposit("USD", 300_000).await;
    let rail = Arc::new(Noting::default());
    harness.start_workers_paying(rail.clone());
    let account = format!("{BENEFICIARY}:dest_eur");
    let named = Terms { input: ("USD", 100_000), output: "EUR", account: &account };
    let other = Terms { account: "bene_of_the_provider:dest_1", ..named };
    let references = [harness.accept(order_for(&named)).await, harness.accept(order_for(&other)).await]
        .map(|one| one.reference);
    for reference in &references {
        harness.play_chain(reference).await;
        harness.wait_for_state(reference, "completed").await;
    }
    let accounts: Vec<String> =
        rail.0.lock().unwrap().iter().map(|request| request.account.clone()).collect();
    assert_eq!(
        BTreeSet::from_iter(accounts),
        ["DE89370400440532013000", "bene_of_the_provider:dest_1"].map(str::to_owned).into()
    );
    let mut conn = harness.pool().acquire().await.unwrap();
    assert!(disable_destination(&mut conn, "dest_eur", "kim", "account closed").await.unwrap());
    assert_eq!(code(&harness.submit(order_for(&named)).await), Some("beneficiary_disabled"));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_disabled_between_acceptance_and_payout_is_not_paid() {
    let harness = scenes::harness().await;
    enter(&harness, &harness.tenant.partner_id).await;
    assert!(verify(&harness).await);
    let reference = harness.accept(registered()).await.reference;
    assert!(disable(&harness).await && !disable(&harness).await, "once");
    let rail = Arc::new(Noting::default());
    harness.start_workers_paying(rail.clone());
    harness.play_until(&reference, |kind| kind == "fill").await;
    harness.wait_for_state(&reference, "payout_failed").await;
    assert_eq!(failure_code(&harness, &reference).await, "beneficiary_disabled");
    assert!(rail.0.lock().unwrap().is_empty(), "the rail was not asked");
    assert_eq!(code(&harness.submit(registered()).await), Some("beneficiary_disabled"));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_is_usable_only_by_its_partner_and_in_its_currency() {
    let harness = scenes::harness().await;
    let other = harness.other_tenant().await;
    enter(&harness, &other.partner_id).await;
    assert!(verify(&harness).await);
    // The simulated rail pays any reference; this partner has no registered recipient, so its details are not used.
    let rail = Arc::new(Noting::default());
    harness.start_workers_paying(rail.clone());
    let reference = harness.accept(registered()).await.reference;
    harness.play_chain(&reference).await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(rail.0.lock().unwrap()[0].account, format!("{BENEFICIARY}:{DESTINATION}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_cannot_verify_its_own_entry_and_details_never_change() {
    let harness = scenes::harness().await;
    enter(&harness, &harness.tenant.partner_id).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    for operator in ["jo", "Jo", " JO "] {
        let same = verify_destination(&mut conn, DESTINATION, operator, "myself").await.unwrap_err();
        assert_eq!(same.constraint(), Some("destination_verified_by_another"), "{operator}");
    }
    assert!(verify(&harness).await && !verify(&harness).await, "once");
    for change in [
        "update destination set account = '999'",
        "update destination set verified_by = 'lee'",
        "update destination set verified_at = null, verified_by = null, evidence = null",
        "delete from destination",
        "update beneficiary set name = 'John Doe'",
        "delete from beneficiary",
    ] {
        let refused = sqlx::query(change).execute(&mut *conn).await.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "23514", "{change}");
    }
}
