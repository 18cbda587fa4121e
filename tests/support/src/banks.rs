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
use dvp_core::operators::requests::Maker;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
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
pub const PROFILES: [(&str, &str); 6] = [
    ("austria", include_str!("../../../benches/profiles/banks/austria.toml")),
    ("cbpr", include_str!("../../../benches/profiles/banks/cbpr.toml")),
    ("danske", include_str!("../../../benches/profiles/banks/danske.toml")),
    ("mbank", include_str!("../../../benches/profiles/banks/mbank.toml")),
    ("nordea", include_str!("../../../benches/profiles/banks/nordea.toml")),
    ("swiss", include_str!("../../../benches/profiles/banks/swiss.toml")),
];
const FUNDS: u128 = 1_000_000_000;
/// The last four characters of accounts: paid, paid after a while, refused, said three times, paid and then refused,
/// returned.
const ENDINGS: [&str; 8] = ["6789", "6789", "6789", "0001", "0002", "0004", "0010", "0013"];

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
    let market = Market::new(vec![pair("EUR", "USD", "1.08")]).with_funds("north", "USD", FUNDS);
    let harness = Harness::new(market).await;
    harness.deposit("EUR", FUNDS).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    outage::stamp(&mut conn, dir.path(), "jo", false).await.unwrap();
    let files =
        BankFiles::open(harness.pool().clone(), dir.path(), debtors([("USD", "400500600", "SANDUS33")]));
    let files = files.await.unwrap();
    let accounts = vec![("USD".to_owned(), "400500600".to_owned())];
    let bank = Bank::open_with_accounts(dir.path(), accounts).await.unwrap().as_profile(profile.clone());
    let opening =
        "select reference from ledger_entry where reference like 'opening:%' and asset = 'USD' limit 1";
    let (opening,): (String,) = harness.row(opening).await;
    bank.deposit(&opening, "USD", i64::try_from(FUNDS).unwrap()).await.unwrap();
    let stop = watch::Sender::new(false);
    harness.start_workers_paying(Arc::new(files.clone()));
    tokio::spawn(files.clone().run(stop.subscribe()));
    tokio::spawn(bank.clone().run(stop.subscribe()));

    let mut endings = HashMap::new();
    for n in 0..orders {
        // Each of them, and then any.
        let first = usize::try_from(n).ok().and_then(|n| ENDINGS.get(n).copied());
        let ending = first.unwrap_or_else(|| ENDINGS[dice.index(ENDINGS.len())]);
        let input = ("EUR", u128::from(dice.throw(100_000)) + 5_000);
        let mut order = order_for(&Terms { input, output: "USD", account: &format!("00012345{ending}") });
        if let Some(beneficiary) = &mut order.beneficiary {
            beneficiary.bank = Some("USABA021000021".into());
        }
        endings.insert(harness.accept(order).await.reference, ending);
    }
    let ended = |ending: &str| match ending {
        "0002" => "payout_failed",
        "0013" => "reversed",
        _ => "completed",
    };
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
        let is_silent = !matches!(ending, "0010" | "0013");
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
        let operation = Operation::Charge { asset: "USD".into(), amount, entry: id.into() };
        let maker = Maker { operator: "jo", reason: "charges", evidence: "the statement" };
        let asked = request(&mut conn, id, &operation, maker).await.unwrap();
        approve(&mut conn, &asked.approval.id, "mika", "seen").await.unwrap();
    }
    assert_eq!(breaks().await, [""; 0], "{}", profile.name);
    u64::try_from(charges.len()).unwrap()
}
