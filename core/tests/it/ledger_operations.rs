//! Operators' postings to the ledger, with four eyes, against a real database.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use dvp_core::ledger::reconciliation::wallets::{InFlight, TokenBalances, compare_wallets};
use dvp_core::operators::approvals::{ApprovalError, approve, deny};
use dvp_core::operators::ledger_operations::{LedgerError, request};
use dvp_core::operators::requests::{Maker, RequestedChange};
use dvp_core::workflow::ledger_check;
use dvp_domain::ledger::operation::{Adjusted, Direction, Operation, OperationError};
use dvp_domain::ledger::{Account, Claimant, Move, Owner, Posting, PostingReason};
use dvp_domain::money::Minor;
use dvp_store::ledger::check::{self, Compared};
use dvp_store::ledger::{self, NewPosting, balances, closings};
use dvp_store::orders::operations::load_history;
use dvp_store::reconcile::snapshot;
use dvp_store::reconcile::wallets::{NewWalletBalance, register, replace_balances};
use dvp_store::{PgConnection, StoreError, operators::approvals as store};

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::market::{ESCROW, TOKEN};

const MAKER: Maker<'_> = Maker { operator: "jo", reason: "asked by mail", evidence: "wire 17" };

fn north() -> Owner {
    Owner::Provider("north".into())
}

fn usd(amount: u128) -> (String, Minor) {
    ("USD".to_owned(), Minor::new(amount))
}

fn withdrawal(amount: u128) -> Operation {
    let (asset, amount) = usd(amount);
    Operation::Withdrawal { owner: north(), asset, amount }
}

async fn wanted(harness: &Harness, id: &str, operation: &Operation) -> Result<RequestedChange, LedgerError> {
    let mut conn = harness.pool().acquire().await.unwrap();
    request(&mut conn, id, operation, MAKER).await
}

async fn post(harness: &Harness, id: &str, operation: &Operation) -> Result<(), ApprovalError> {
    let requested = wanted(harness, id, operation).await?;
    let mut conn = harness.pool().acquire().await.unwrap();
    let approved = approve(&mut conn, &requested.approval.id, "mika", "seen").await;
    harness.check_books().await;
    approved.map(drop)
}

async fn available(harness: &Harness, owner: &Owner) -> u128 {
    let mut conn = harness.pool().acquire().await.unwrap();
    balances::find(&mut conn, owner, "USD").await.unwrap().available.get()
}

async fn deposit(harness: &Harness, id: &str, owner: &Owner, amount: u128) {
    let mut conn = harness.pool().acquire().await.unwrap();
    balances::deposit(&mut conn, id, owner, "USD", Minor::new(amount)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawal_is_posted_once_by_two_operators_and_recorded() {
    let harness = scenes::harness_with(100).await;
    let requested = wanted(&harness, "W-1", &withdrawal(60)).await.unwrap();
    let again = wanted(&harness, "W-1", &withdrawal(60)).await.unwrap();
    assert!(again.repeated && again.approval == requested.approval, "{again:?}");
    let other = wanted(&harness, "W-1", &withdrawal(61)).await;
    assert!(matches!(other, Err(LedgerError::Conflict)), "{other:?}");
    assert_eq!(available(&harness, &north()).await, 100, "a request posts nothing");
    let mut conn = harness.pool().acquire().await.unwrap();
    let own = approve(&mut conn, &requested.approval.id, "JO", "").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)), "{own:?}");
    approve(&mut conn, &requested.approval.id, "mika", "wire sent").await.unwrap();
    assert_eq!(available(&harness, &north()).await, 40);
    let twice = approve(&mut conn, &requested.approval.id, "kim", "").await;
    assert!(matches!(twice, Err(ApprovalError::Ended(_))), "{twice:?}");
    let repeated = wanted(&harness, "W-1", &withdrawal(60)).await.unwrap();
    assert!(repeated.repeated && repeated.approval.state == "approved");
    assert_eq!(available(&harness, &north()).await, 40);
    let history = load_history(&mut conn, "operation:W-1").await.unwrap();
    let who: Vec<_> = history["operators"].as_array().unwrap().iter().map(|row| &row["operator"]).collect();
    assert_eq!(who, ["jo", "mika"]);
    assert_eq!(history["operators"][1]["evidence"]["operation"]["amount"], "60");
    assert_eq!(history["ledger"].as_array().unwrap().len(), 2);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncovered_operation_is_refused_at_request_and_approval() {
    let harness = scenes::harness_with(100).await;
    let short = wanted(&harness, "W-1", &withdrawal(101)).await;
    assert!(matches!(short, Err(LedgerError::Short(_))), "{short:?}");
    let nothing = wanted(&harness, "W-2", &withdrawal(0)).await;
    assert!(matches!(nothing, Err(LedgerError::Impossible(OperationError::Nothing))), "{nothing:?}");
    let (asset, amount) = usd(1);
    let unknown = Operation::Withdrawal { owner: Owner::Provider("nobody".into()), asset, amount };
    assert!(matches!(wanted(&harness, "W-3", &unknown).await, Err(LedgerError::UnknownOwner(_))));
    let unknown = Operation::FeeSweep { asset: "XYZ".into(), amount };
    assert!(matches!(wanted(&harness, "W-3", &unknown).await, Err(LedgerError::UnknownAsset(_))));
    let silent = Maker { evidence: " ", ..MAKER };
    let mut conn = harness.pool().acquire().await.unwrap();
    let refused = request(&mut conn, "W-3", &withdrawal(1), silent).await;
    assert!(matches!(refused, Err(LedgerError::NoReason)), "{refused:?}");
    let sweep = Operation::FeeSweep { asset: "USD".into(), amount };
    assert!(
        matches!(wanted(&harness, "F-1", &sweep).await, Err(LedgerError::Short(_))),
        "no fees were earned"
    );

    // Two requests of one account: the second was made before the first was posted.
    let (first, second) = (
        wanted(&harness, "W-4", &withdrawal(60)).await.unwrap(),
        wanted(&harness, "W-5", &withdrawal(30)).await.unwrap(),
    );
    approve(&mut conn, &first.approval.id, "mika", "").await.unwrap();
    let moved = approve(&mut conn, &second.approval.id, "mika", "").await;
    assert!(matches!(moved, Err(ApprovalError::Ledger(LedgerError::Moved))), "{moved:?}");
    let anew = wanted(&harness, "W-5", &withdrawal(30)).await.unwrap();
    assert!(!anew.repeated && anew.approval.id != second.approval.id);
    // An order took the rest between request and approval.
    let spent = Posting {
        reason: PostingReason::Pay,
        moves: vec![Move {
            asset: "USD".into(),
            from: Account::Balance(north(), dvp_domain::ledger::Part::Available),
            to: Account::Clearing,
            amount: Minor::new(20).into(),
        }],
    };
    let spent = NewPosting { reference: "order".into(), step: 1, posting: spent };
    ledger::insert_once(&mut conn, &spent).await.unwrap();
    let short = approve(&mut conn, &anew.approval.id, "mika", "").await;
    assert!(matches!(short, Err(ApprovalError::Ledger(LedgerError::Short(_)))), "{short:?}");
    assert_eq!(available(&harness, &north()).await, 20);
    deny(&mut conn, &anew.approval.id, "mika", "spent").await.unwrap();
    assert!(
        !wanted(&harness, "W-5", &withdrawal(10)).await.unwrap().repeated,
        "a denied id can be used again"
    );
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_changes_its_accounts_and_keeps_the_trial_balance() {
    let harness = scenes::harness_with(1_000).await;
    let partner = Owner::Partner { id: harness.tenant.partner_id.clone(), livemode: false };
    deposit(&harness, "wire-1", &partner, 500).await;
    deposit(&harness, "wire-2", &Owner::Provider("south".into()), 1).await;
    let (asset, amount) = usd(200);
    let back = |id: &str, amount| Operation::Return {
        owner: partner.clone(),
        asset: asset.clone(),
        amount: Minor::new(amount),
        deposit: id.into(),
    };
    post(&harness, "R-1", &back("wire-1", 300)).await.unwrap();
    assert_eq!(available(&harness, &partner).await, 200);
    let more = wanted(&harness, "R-2", &back("wire-1", 201)).await;
    assert!(matches!(more, Err(LedgerError::MoreThanDeposit)), "{more:?}");
    let other = wanted(&harness, "R-2", &back("wire-2", 1)).await;
    assert!(matches!(other, Err(LedgerError::UnknownDeposit(_))), "another owner's deposit: {other:?}");

    let transfer =
        Operation::Transfer { from: "north".into(), to: "south".into(), asset: asset.clone(), amount };
    post(&harness, "T-1", &transfer).await.unwrap();
    assert_eq!(
        (available(&harness, &north()).await, available(&harness, &Owner::Provider("south".into())).await),
        (800, 201)
    );

    let credit =
        |account, direction| Operation::Adjustment { account, direction, asset: asset.clone(), amount };
    post(&harness, "A-1", &credit(Adjusted::Fees, Direction::Credit)).await.unwrap();
    post(&harness, "F-1", &Operation::FeeSweep { asset: asset.clone(), amount }).await.unwrap();
    assert_eq!(
        (harness.account("fees", "USD").await, harness.account("house", "USD").await),
        ("0".into(), "-200".into())
    );
    post(&harness, "A-2", &credit(Adjusted::Owed("north".into()), Direction::Credit)).await.unwrap();
    post(&harness, "A-3", &credit(Adjusted::Available(north()), Direction::Debit)).await.unwrap();
    assert_eq!(available(&harness, &north()).await, 600);

    let claim = |who: &str| Account::Claim(Claimant::Provider(who.into()));
    let moves =
        vec![Move { asset: asset.clone(), from: claim("north"), to: claim("south"), amount: amount.into() }];
    let shared = NewPosting {
        reference: "exe_1".into(),
        step: 1,
        posting: Posting { reason: PostingReason::Settle, moves },
    };
    let mut conn = harness.pool().acquire().await.unwrap();
    ledger::insert_once(&mut conn, &shared).await.unwrap();
    let settle = |amount| Operation::ClaimSettlement {
        debtor: Claimant::Provider("north".into()),
        claimant: Claimant::Provider("south".into()),
        asset: asset.clone(),
        amount: Minor::new(amount),
    };
    let more = wanted(&harness, "C-1", &settle(201)).await;
    assert!(matches!(more, Err(LedgerError::Short(_))), "{more:?}");
    post(&harness, "C-1", &settle(150)).await.unwrap();
    let claims = closings::list_balances_before(&mut conn, DateTime::<Utc>::MAX_UTC).await.unwrap();
    let claims: Vec<_> = claims
        .iter()
        .filter(|row| row.part == "claim")
        .map(|row| (row.owner.as_str(), row.amount.as_str()))
        .collect();
    assert_eq!(claims, [("north", "-50"), ("south", "50")]);
    harness.check_books().await;
    let posted = store::list(&mut conn, &store::Filter { limit: 100, ..Default::default() }).await.unwrap();
    assert_eq!(posted.iter().filter(|row| row.state == "approved").count(), 7);
}

const CHAIN: i64 = 31_337;

/// A chain with this balance of the escrow.
struct Escrowed(i128);

impl TokenBalances for Escrowed {
    type Error = StoreError;

    fn chain_id(&self) -> i64 {
        CHAIN
    }

    fn escrows(&self) -> BTreeSet<String> {
        BTreeSet::from([ESCROW.to_owned()])
    }

    async fn balance(&self, _: &str, _: &str) -> Result<i128, StoreError> {
        Ok(self.0)
    }
}

async fn compared(conn: &mut PgConnection, escrowed: i128) -> Vec<NewWalletBalance> {
    let report =
        compare_wallets(conn, &Escrowed(escrowed), &InFlight::default(), Utc::now().into()).await.unwrap();
    report.balances
}

async fn keep(harness: &Harness, balances: &[NewWalletBalance]) {
    let mut tx = harness.pool().begin().await.unwrap();
    replace_balances(&mut tx, (CHAIN, 1, &[0; 32]), balances).await.unwrap();
    tx.commit().await.unwrap();
}

fn gift(amount: u128) -> Operation {
    Operation::Gift { asset: "USDC".into(), amount: Minor::new(amount) }
}

/// When a gift is posted that a comparison does not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Posted {
    /// All of it after the comparison has begun.
    After,
    /// By a transaction that began before.
    Across,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gift_that_is_posted_while_balances_are_compared_is_posted_once() {
    for posted in [Posted::After, Posted::Across] {
        let harness = scenes::harness_with(100).await;
        harness.fund("north", "USDC", 1).await;
        let mut conn = harness.pool().acquire().await.unwrap();
        register(&mut conn, &[], &[(CHAIN, "USDC".into(), TOKEN.into())]).await.unwrap();
        keep(&harness, &compared(&mut conn, 7).await).await;
        let first = wanted(&harness, "G-1", &gift(7)).await.unwrap();

        let mut approving = harness.pool().begin().await.unwrap();
        if posted == Posted::Across {
            approve(&mut approving, &first.approval.id, "mika", "").await.unwrap();
        }
        let mut seen = snapshot(harness.pool()).await.unwrap();
        let balances = compared(&mut seen, 7).await;
        if posted == Posted::After {
            approve(&mut approving, &first.approval.id, "mika", "").await.unwrap();
        }
        approving.commit().await.unwrap();
        seen.rollback().await.unwrap();
        keep(&harness, &balances).await;

        let again = wanted(&harness, "G-2", &gift(7)).await;
        assert!(matches!(again, Err(LedgerError::NoSurplus)), "{posted:?}: {again:?}");
        // What came after the gift is the next one.
        keep(&harness, &compared(&mut conn, 9).await).await;
        let more = wanted(&harness, "G-3", &gift(3)).await;
        assert!(matches!(more, Err(LedgerError::NoSurplus)), "{posted:?}: {more:?}");
        post(&harness, "G-4", &gift(2)).await.unwrap();
        assert_eq!(harness.account("escrow", "USDC").await, "9");
    }
}

/// The number of findings of a check; `None`: another process checks.
async fn found(harness: &Harness, compared: Compared) -> Option<usize> {
    ledger_check::check(&harness.engine, compared).await.unwrap().map(|findings| findings.count())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_check_finds_violations_and_runs_in_one_process() {
    let harness = scenes::harness_with(100).await;
    for compared in [Compared::SinceClosing, Compared::Whole] {
        assert_eq!(found(&harness, compared).await, Some(0));
    }
    harness.run("update account_balance set available = available + 1").await;
    for compared in [Compared::SinceClosing, Compared::Whole] {
        assert_eq!(found(&harness, compared).await, Some(1));
    }
    let mut other = harness.pool().begin().await.unwrap();
    assert!(check::begin(&mut other).await.unwrap());
    assert_eq!(found(&harness, Compared::SinceClosing).await, None);
}

/// An entry that was written past the database's own checks: in the present hour, or in a closed one.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_entry_is_found_at_once_or_when_its_hour_is_closed_by_the_whole_ledger() {
    let harness = scenes::harness_with(100).await;
    let change = async |hours: i32| {
        let mut tx = harness.pool().begin().await.unwrap();
        sqlx::raw_sql("set local session_replication_role = replica").execute(&mut *tx).await.unwrap();
        sqlx::query(
            "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount, recorded_at) \
             values ('by hand', $1, 0, 'deposit', 'fees', '', 'total', 'USD', 5, now() - make_interval(hours => $1))",
        )
        .bind(hours)
        .execute(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
    };
    change(0).await;
    assert_eq!(found(&harness, Compared::SinceClosing).await, Some(1), "one side of a posting");
    sqlx::raw_sql(
        "set session_replication_role = replica; delete from ledger_entry where reference = 'by hand'",
    )
    .execute(harness.pool())
    .await
    .unwrap();
    assert_eq!(found(&harness, Compared::SinceClosing).await, Some(0));
    // Not the last full hour: one may end while the test runs.
    let closed = "insert into ledger_closed (until, announced) \
                  select until, until from (select date_trunc('hour', now()) - interval '1 hour' as until) u";
    harness.run(closed).await;
    change(3).await;
    assert_eq!(found(&harness, Compared::SinceClosing).await, Some(0), "it reads no closed hour");
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(check::find_whole(&mut conn).await.unwrap(), None);
    assert_eq!(found(&harness, Compared::Whole).await, Some(1));
    let last = check::find_whole(&mut conn).await.unwrap().unwrap();
    assert_eq!((last.is_a_day_old, last.found), (false, 1));
    let sql = "update ledger_check set whole_at = now() - interval '25 hours'";
    harness.run(sql).await;
    assert!(check::find_whole(&mut conn).await.unwrap().unwrap().is_a_day_old);
}
