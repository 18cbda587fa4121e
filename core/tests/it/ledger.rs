//! The ledger's invariants, enforced by the database itself.

use dvp_domain::ledger::{Account, Move, Owner, Part, Posting, PostingReason, deposited};
use dvp_domain::money::Minor;
use dvp_store::insert_batch::{self, AppendBatch};
use dvp_store::ledger::balances::{self, Balance};
use dvp_store::ledger::check::{Compared, compare};
use dvp_store::ledger::{Deposited, NewPosting};
use dvp_store::{PgConnection, StoreError};

use crate::scenes;
use dvp_testing::Harness;

fn partner(harness: &Harness) -> Owner {
    Owner::Partner { id: harness.tenant.partner_id.clone(), livemode: harness.tenant.livemode }
}

async fn add(conn: &mut PgConnection, postings: &[NewPosting]) -> Result<(), StoreError> {
    insert_batch::append(conn, &AppendBatch { postings, ..AppendBatch::default() }).await.map(|_| ())
}

/// Runs a manual statement and returns the constraint that refused it.
async fn refused(harness: &Harness, sql: &'static str) -> String {
    let error = sqlx::query(sql).execute(harness.pool()).await.unwrap_err();
    let error = error.as_database_error().unwrap();
    error.constraint().unwrap_or(error.message()).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_do_not_balance_per_asset_are_refused() {
    let harness = scenes::harness().await;
    let one_sided = "insert into ledger_entry values ('x', 1, 1, 'pay', 'fees', '', 'total', 'USD', 1)";
    assert_eq!(refused(&harness, one_sided).await, "ledger_entry_balances");
    let across_assets = "insert into ledger_entry values ('x', 1, 1, 'pay', 'fees', '', 'total', 'USD', 1), \
                         ('x', 1, 2, 'pay', 'house', '', 'total', 'EUR', -1)";
    assert_eq!(refused(&harness, across_assets).await, "ledger_entry_balances");
    let across_postings = "insert into ledger_entry values ('x', 1, 1, 'pay', 'fees', '', 'total', 'USD', 1), \
                           ('y', 1, 1, 'pay', 'house', '', 'total', 'USD', -1)";
    assert_eq!(refused(&harness, across_postings).await, "ledger_entry_balances");
    let fraction = "insert into ledger_entry values ('x', 1, 1, 'pay', 'provider', 'north', 'available', 'USD', 0.5), \
                    ('x', 1, 2, 'pay', 'residual', '', 'total', 'USD', -0.5)";
    assert_eq!(refused(&harness, fraction).await, "ledger_entry_account_known");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_never_changed() {
    let harness = scenes::harness().await;
    for sql in ["update ledger_entry set amount = 0", "delete from ledger_entry", "truncate ledger_entry"] {
        assert_eq!(refused(&harness, sql).await, "ledger_entry_immutable");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negative_balance_is_refused_by_the_database() {
    let harness = scenes::harness_with(100).await;
    let provider = Owner::Provider("north".into());
    let spend = |amount: u128| Posting {
        reason: PostingReason::Pay,
        moves: vec![Move {
            asset: "USD".into(),
            from: Account::Balance(provider.clone(), Part::Available),
            to: Account::House,
            amount: Minor::new(amount).into(),
        }],
    };
    let mut conn = harness.pool().acquire().await.unwrap();
    let post =
        |reference: &str, amount| NewPosting { reference: reference.into(), step: 1, posting: spend(amount) };
    let error = add(&mut conn, &[post("a", 60), post("b", 41)]).await.unwrap_err();
    assert_eq!(error.constraint(), Some("account_balance_not_negative"));
    add(&mut conn, &[post("a", 60), post("b", 40)]).await.unwrap();
    let left = balances::find(&mut conn, &provider, "USD").await.unwrap();
    assert_eq!(left, Balance::default());
    let again = add(&mut conn, &[post("a", 60)]).await.unwrap_err();
    assert_eq!(again.constraint(), Some("ledger_entry_pkey"));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposit_is_posted_once_per_id() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let owner = partner(&harness);
    let mut deposit = async |id: &str, amount| {
        balances::deposit(&mut conn, id, &owner, "USD", Minor::new(amount)).await.unwrap()
    };
    assert_eq!(deposit("wire-1", 500).await, Deposited::Posted);
    assert_eq!(deposit("wire-1", 500).await, Deposited::Repeated);
    assert_eq!(deposit("wire-1", 501).await, Deposited::Conflict);
    assert_eq!(deposit("wire-2", u128::MAX - 500).await, Deposited::Posted);
    let more = balances::deposit(&mut conn, "wire-3", &owner, "USD", Minor::new(1)).await.unwrap_err();
    assert_eq!(more.constraint(), Some("account_balance_fits"));
    let sql = "select available::text from account_balance where owner_kind = 'partner'";
    let text: (String,) = harness.row(sql).await;
    assert_eq!(text.0, u128::MAX.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_changed_without_the_ledger_is_found() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    harness.check_books().await;
    sqlx::query("update account_balance set available = available - 1").execute(&mut *conn).await.unwrap();
    for compared in [Compared::SinceClosing, Compared::Whole] {
        let found = compare(&mut conn, compared).await.unwrap().disagreements;
        assert_eq!((found.len(), found[0].owner.as_str()), (1, "north"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_postings_in_one_statement_are_checked_together() {
    let harness = scenes::harness().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let posting = |n: u32| NewPosting {
        reference: format!("d{n}"),
        step: 1,
        posting: deposited(Owner::Provider(format!("lp{}", n % 7)), "USD", Minor::new(u128::from(n))),
    };
    let postings: Vec<NewPosting> = (0..5_000).map(posting).collect();
    add(&mut conn, &postings).await.unwrap();
    harness.check_books().await;
    let sql = "select sum(available)::text from account_balance where owner like 'lp%'";
    let sum: (String,) = harness.row(sql).await;
    assert_eq!(sum.0, (5_000_u64 * 4_999 / 2).to_string());
}
