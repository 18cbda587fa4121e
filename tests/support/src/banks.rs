//! Orders through banks as they are: the real engine and the real files, and a simulated bank that writes them as a real
//! one does (`benches/profiles/banks`).
//!
//! At the end each order has ended as the bank has dealt with its payment; the bank has one order of each payment; what it
//! moved is, by payment and to the minor unit, what the order says; its statements and the ledger differ by its charges
//! alone, until two operators post them; and of no file a part was set aside.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use dvp_core::ledger::reconciliation::{PATIENCE, compare_bank};
use dvp_core::operators::approvals::approve;
use dvp_core::operators::ledger_operations::request;
use dvp_core::operators::operations::{Action, Resolution, resolve};
use dvp_core::operators::requests::Maker;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::money::Minor;
use dvp_domain::scheme::Scheme;
use dvp_domain::time::Timestamp;
use dvp_rails::iso20022::payee::{OnMismatch, Payees, Verification};
use dvp_rails::iso20022::{BankFiles, outage};
use dvp_sandbox::bank::Bank;
use dvp_sandbox::bank::profile::Profile;
use dvp_sandbox::bank::statement::{Line, StatementOf};
use tokio::sync::watch;

use crate::dice::Dice;
use crate::market::{debtors, pair};
use crate::orders::{Terms, order_for};
use crate::wait::wait_for;
use crate::{Harness, Market};

/// The profiles, by name.
pub const PROFILES: [(&str, &str); 8] = [
    ("austria", include_str!("../../../benches/profiles/banks/austria.toml")),
    ("cbpr", include_str!("../../../benches/profiles/banks/cbpr.toml")),
    ("danske", include_str!("../../../benches/profiles/banks/danske.toml")),
    ("germany", include_str!("../../../benches/profiles/banks/germany.toml")),
    ("instant", include_str!("../../../benches/profiles/banks/instant.toml")),
    ("mbank", include_str!("../../../benches/profiles/banks/mbank.toml")),
    ("nordea", include_str!("../../../benches/profiles/banks/nordea.toml")),
    ("swiss", include_str!("../../../benches/profiles/banks/swiss.toml")),
];
const FUNDS: u128 = 1_000_000_000;
/// The last four characters of accounts: paid, paid after a while, refused, said three times, paid and then refused,
/// returned.
const ENDINGS: [&str; 8] = ["6789", "6789", "6789", "0001", "0002", "0004", "0010", "0013"];
/// Those of payees that do not match, nearly match, or cannot be verified.
const PAYEES: [&str; 3] = ["0031", "0032", "0033"];
const EURO_ACCOUNT: &str = "DE89370400440532013000";

/// The profile of a name. `None`: there is none.
pub fn profile(name: &str) -> Option<Profile> {
    let (_, text) = PROFILES.iter().find(|(known, _)| *known == name)?;
    Some(toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}")))
}

#[derive(Debug, Clone, Default)]
pub struct BanksReport {
    pub ended: BTreeMap<String, u64>,
    pub files: u64,
    pub statements: u64,
    pub charges: u64,
}

/// Runs orders through a bank.
pub async fn run(profile: Profile, seed: u64, orders: u64) -> BanksReport {
    let (mut dice, dir) = (Dice(seed), tempfile::tempdir().unwrap());
    let is_euros = Scheme::of(profile.method).currency == Some("EUR");
    let (sold, paid, price) = if is_euros { ("USD", "EUR", "0.92") } else { ("EUR", "USD", "1.08") };
    let market = Market::new(vec![pair(sold, paid, price)]).with_funds("north", paid, FUNDS);
    let harness = Harness::new(market).await;
    harness.deposit(sold, FUNDS).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    outage::stamp(&mut conn, dir.path(), "jo", false).await.unwrap();
    let (account, bic) = if is_euros { (EURO_ACCOUNT, "SANDDEFF") } else { ("400500600", "SANDUS33") };
    let files = BankFiles::open(harness.pool().clone(), dir.path(), debtors([(paid, account, bic)]));
    let verification = if profile.verifies_payees { Verification::OptIn } else { Verification::Agreed };
    let payees = Payees { verification, on_mismatch: OnMismatch::Hold };
    let files = files.await.unwrap().verifying(payees);
    let accounts = vec![(paid.to_owned(), account.to_owned())];
    let bank = Bank::open_with_accounts(dir.path(), accounts).await.unwrap().as_profile(profile.clone());
    let opening =
        "select reference from ledger_entry where reference like 'opening:%' and asset = $1 limit 1";
    let (opening,): (String,) = harness.row_of(opening, paid).await;
    bank.deposit(&opening, paid, i64::try_from(FUNDS).unwrap()).await.unwrap();
    let stop = watch::Sender::new(false);
    harness.start_workers_paying(Arc::new(files.clone()));
    tokio::spawn(files.clone().run(stop.subscribe()));
    tokio::spawn(bank.clone().run(stop.subscribe()));

    let mut endings = HashMap::new();
    let known: Vec<&str> = PAYEES.into_iter().filter(|_| profile.verifies_payees).chain(ENDINGS).collect();
    for n in 0..orders {
        // Each of them, and then any.
        let first = usize::try_from(n).ok().and_then(|n| known.get(n).copied());
        let ending = first.unwrap_or_else(|| known[dice.index(known.len())]);
        let input = (sold, u128::from(dice.throw(100_000)) + 5_000);
        let to = if is_euros { iban_ending(ending) } else { format!("00012345{ending}") };
        let mut order = order_for(&Terms { input, output: paid, account: &to });
        if let Some(beneficiary) = &mut order.beneficiary {
            beneficiary.payout_method = Some(profile.method);
            beneficiary.bank = (!is_euros).then(|| "USABA021000021".into());
        }
        endings.insert(harness.accept(order).await.reference, ending);
    }
    let ended = |ending: &str| match ending {
        "0002" => "payout_failed",
        "0013" => "reversed",
        _ => "completed",
    };
    for (reference, _) in endings.iter().filter(|(_, ending)| **ending == PAYEES[0]) {
        release(&harness, reference).await;
    }
    for (reference, ending) in &endings {
        harness.wait_for_state(reference, ended(ending)).await;
    }
    wait_for("the bank has said everything", || async { bank.is_quiet().await.unwrap().then_some(()) }).await;
    let statements = bank.statements().await.unwrap();
    check_payments(&harness, &profile, &bank, &statements, &endings).await;
    let charges = post_charges(&harness, &profile, &statements).await;
    harness.check_books().await;
    stop.send_replace(true);
    let mut report = BanksReport { charges, ..BanksReport::default() };
    endings.values().for_each(|ending| *report.ended.entry(ended(ending).to_owned()).or_default() += 1);
    report.files = u64::try_from(harness.count("select count(*) from bank_file").await).unwrap();
    report.statements = u64::try_from(statements.len()).unwrap();
    report
}

/// A German IBAN with these digits at its end.
fn iban_ending(ending: &str) -> String {
    let number = format!("37040044053200{ending}");
    let of_letters: u128 = format!("{number}131400").parse().unwrap();
    format!("DE{:02}{number}", 98 - of_letters % 97)
}

/// Two operators release a payment whose payee does not match: the bank has paid nothing before.
async fn release(harness: &Harness, reference: &str) {
    for operator in ["jo", "mika"] {
        let (action, reason, evidence) = (Action::ReleasePayee, "a maiden name", "call of 3 May");
        let resolution = Resolution { reference, action, operator, reason, evidence };
        wait_for("the payment to be held", || async {
            let mut conn = harness.pool().acquire().await.unwrap();
            resolve(&mut conn, &resolution).await.ok()
        })
        .await;
    }
}

/// What the bank moved is what each order says, and what it said is understood.
async fn check_payments(
    harness: &Harness,
    profile: &Profile,
    bank: &Bank,
    statements: &[StatementOf],
    endings: &HashMap<String, &str>,
) {
    let name = &profile.name;
    let refused: Vec<(String, Option<String>)> =
        harness.rows("select name, refusal from bank_file where refusal is not null or unknown > 0").await;
    assert_eq!(refused, [], "{name}: every part of every file is understood");
    let payments: Vec<(String, String, i64, Option<String>)> =
        harness.rows("select execution, end_to_end_id, amount::int8, alarm from bank_payment").await;
    assert_eq!(payments.len(), endings.len(), "{name}");
    assert_eq!(bank.count_received().await.unwrap(), payments.len(), "{name}: each is ordered once");
    for (execution, id, amount, alarm) in payments {
        let ending = endings[&execution];
        let lines = statements.iter().flat_map(|one| &one.lines);
        let mut moved: Vec<i64> =
            lines.filter(|line| line.end_to_end_id.as_ref() == Some(&id)).map(|line| line.amount).collect();
        // A payment and its return may have the same time.
        moved.sort_unstable();
        let wanted = match ending {
            "0002" => vec![],
            "0013" => vec![-amount, amount - profile.return_deducts_minor],
            _ => vec![-amount],
        };
        assert_eq!(moved, wanted, "{name}: {execution} to ...{ending}");
        let is_silent = !matches!(ending, "0010" | "0013" | "0031");
        assert_eq!(alarm.is_none(), is_silent, "{name}: {execution} to ...{ending}: {alarm:?}");
    }
}

/// Only the bank's charges are breaks; two operators post them. Returns their number.
async fn post_charges(harness: &Harness, profile: &Profile, statements: &[StatementOf]) -> u64 {
    let mut conn = harness.pool().acquire().await.unwrap();
    let late = Timestamp::from(Utc::now() + PATIENCE + TimeDelta::seconds(60));
    let breaks = async || {
        let report = compare_bank(harness.pool(), late, PATIENCE).await.unwrap().unwrap();
        let told = report.breaks.iter().map(|one| format!("{} {}", one.kind.as_str(), one.detail));
        told.collect::<Vec<String>>()
    };
    let is_charge = |line: &&Line| line.end_to_end_id.is_none() && line.amount < 0;
    let charges: Vec<&Line> = statements.iter().flat_map(|one| &one.lines).filter(is_charge).collect();
    let found = breaks().await;
    let is_expected =
        found.len() == charges.len() && found.iter().all(|one| one.starts_with("unknown_entry"));
    assert!(is_expected, "{}: {} charges, and {found:#?}", profile.name, charges.len());
    for charge in &charges {
        let id = charge.bank_reference.as_str();
        let amount = Minor::new(charge.amount.unsigned_abs().into());
        let operation = Operation::Charge { asset: charge.currency.clone(), amount, entry: id.into() };
        let maker = Maker { operator: "jo", reason: "charges", evidence: "the statement" };
        let asked = request(&mut conn, id, &operation, maker).await.unwrap();
        approve(&mut conn, &asked.approval.id, "mika", "seen").await.unwrap();
    }
    assert_eq!(breaks().await, [""; 0], "{}", profile.name);
    u64::try_from(charges.len()).unwrap()
}
