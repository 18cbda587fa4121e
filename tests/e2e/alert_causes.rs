//! Causes of the alerts that `alert_faults` does not raise, one after the other in one sandbox under a real Prometheus.
//!
//! The database and the chain are broken from outside of the service. Each cause must raise its alerts, none of which
//! fired before; alerts that follow from it may fire beside them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::sol_types::SolValue;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use uuid::Uuid;

use crate::alert_faults::{Suspended, call_node};
use crate::alert_prometheus::{Prometheus, Shorter};
use crate::partner::Partner;
use crate::sandbox::{Sandbox, program};

const SHORTER: [Shorter; 7] = [
    ("DvpSettlementSlow", "> 900", "> 10"),
    ("DvpCommandsWaiting", "> 120", "> 8"),
    ("DvpRelayerStuck", "> 300", "> 8"),
    ("DvpFiguresStale", "> 120", "> 15"),
    ("DvpWebhooksBehind", "> 300", "> 5"),
    ("DvpFeedBehind", "> 60", "> 5"),
    ("DvpLedgerUnchecked", "> 7200", "> 100"),
];
/// How often a request is sent again while a cause lasts.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    LowBalance,
    UsedLimit,
    PriceOutsideItsBand,
    RefusedDeletion,
    MissingTable,
    RefusedRow,
    UnwritableStep,
    SlowCommits,
    LockedOrders,
    HeldEndpoint,
    HeldFeed,
    HeldFigures,
    HeldLeases,
    HeldReads,
    HeldLedgerCheck,
    SuspendedNode,
    ExpensiveGas,
    GiftToEscrow,
    ChangedBalance,
    EndedProcess,
}

impl Cause {
    /// The last ones leave traces.
    pub(crate) const ALL: [Self; 20] = [
        Self::LowBalance,
        Self::UsedLimit,
        Self::PriceOutsideItsBand,
        Self::RefusedDeletion,
        Self::MissingTable,
        Self::RefusedRow,
        Self::UnwritableStep,
        Self::SlowCommits,
        Self::LockedOrders,
        Self::HeldEndpoint,
        Self::HeldFeed,
        Self::HeldFigures,
        Self::HeldLeases,
        Self::HeldReads,
        Self::HeldLedgerCheck,
        Self::SuspendedNode,
        Self::ExpensiveGas,
        Self::GiftToEscrow,
        Self::ChangedBalance,
        Self::EndedProcess,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::LowBalance => "the relayer's account has one wei, and an order waits for it",
            Self::UsedLimit => "a limit that one order nearly uses up",
            Self::PriceOutsideItsBand => "a band that no price is in",
            Self::SlowCommits => "commits of orders take 0.8 s",
            Self::LockedOrders => "the table of intents is locked",
            Self::RefusedRow => "the database refuses an intent's data",
            Self::MissingTable => "the table of receipts is missing",
            Self::UnwritableStep => "the database refuses the steps of an order",
            Self::HeldEndpoint => "a webhook endpoint is leased by nobody that sends",
            Self::HeldFeed => "the webhooks' place in the feed is locked",
            Self::HeldFigures => "the queue of webhooks is locked",
            Self::HeldLeases => "the leases are locked",
            Self::HeldReads => "the executions are locked, and many read them",
            Self::RefusedDeletion => "the database refuses a deletion by age",
            Self::HeldLedgerCheck => "the ledger's balances are locked",
            Self::SuspendedNode => "the node is suspended with a transaction of an order's lock",
            Self::ExpensiveGas => "gas costs more than the cap",
            Self::GiftToEscrow => "the escrow has seven minor units that nobody locked",
            Self::ChangedBalance => "a balance is changed past the database's checks",
            Self::EndedProcess => "the process is gone",
        }
    }

    const fn alerts(self) -> &'static [&'static str] {
        match self {
            Self::LowBalance => &["DvpRelayerLowBalance", "DvpCommandsWaiting"],
            Self::UsedLimit => &["DvpLimitNearlyUsed"],
            Self::PriceOutsideItsBand => &["DvpPriceRefused"],
            Self::SlowCommits => &["DvpAcceptanceSlow", "DvpCommitSlow"],
            Self::LockedOrders => &["DvpAcceptanceFailing"],
            Self::RefusedRow => &["DvpDataRefused"],
            Self::MissingTable => &["DvpInternalErrors"],
            Self::UnwritableStep => &["DvpUnwritableWork"],
            Self::HeldEndpoint => &["DvpWebhooksBehind"],
            Self::HeldFeed => &["DvpFeedBehind"],
            Self::HeldFigures => &["DvpFiguresStale"],
            Self::HeldLeases => &["DvpLeaseWithoutOwner"],
            Self::HeldReads => &["DvpPoolExhausted"],
            Self::RefusedDeletion => &["DvpRetentionFails"],
            Self::HeldLedgerCheck => &["DvpLedgerUnchecked"],
            Self::SuspendedNode => &["DvpSettlementSlow", "DvpRelayerStuck"],
            Self::ExpensiveGas => &["DvpRelayerFeeCapped"],
            Self::GiftToEscrow => &["DvpBreak"],
            Self::ChangedBalance => &["DvpLedgerWrong"],
            Self::EndedProcess => &["DvpDown"],
        }
    }
}

/// One sandbox, one Prometheus, one cause after the other. Returns how long each alert took.
pub(crate) async fn run(causes: &[Cause]) -> String {
    let sandbox = Sandbox::start_with(&["--webhook-allow-private"]).await;
    let expected: BTreeSet<&str> = Cause::ALL.iter().flat_map(|cause| cause.alerts()).copied().collect();
    let prometheus = Prometheus::start(&sandbox.text("/metrics"), &expected, &SHORTER).await;
    let partner = Partner::of(&sandbox);
    partner.is_served().await;
    prometheus.wait_for(&[]).await;
    let mut scene = Scene { sandbox: Some(sandbox), partner, wallets: 0 };
    let (mut said, mut missed) = (String::new(), Vec::new());
    for cause in causes {
        // One that raises nothing does not hide the others.
        match AssertUnwindSafe(scene.one(*cause, &prometheus)).catch_unwind().await {
            Ok(line) => {
                let _ = writeln!(std::io::stderr(), "{line}");
                writeln!(said, "{line}").unwrap();
            }
            Err(_) => missed.push(cause.name()),
        }
    }
    drop(prometheus);
    assert!(missed.is_empty(), "{said}without their alerts: {missed:?}");
    if let Some(sandbox) = scene.sandbox {
        sandbox.stop().await;
    }
    said
}

/// What undoes a cause.
enum Cure {
    Resumed(Suspended),
    /// A transaction that holds a lock.
    RolledBack(PgConnection),
    Sql(String),
    Node(&'static str, Value),
    Band,
    Nothing,
}

struct Scene {
    /// Until it ends.
    sandbox: Option<Sandbox>,
    partner: Partner,
    /// Wallets that have ordered.
    wallets: usize,
}

impl Scene {
    fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().unwrap()
    }

    /// Causes, waits and cures.
    async fn one(&mut self, cause: Cause, prometheus: &Prometheus) -> String {
        let fired = prometheus.firing().await;
        let early: Vec<&&str> = cause.alerts().iter().filter(|alert| fired.contains(**alert)).collect();
        assert!(early.is_empty(), "{early:?} fire before {}", cause.name());
        let began = Instant::now();
        let cure = self.inject(cause).await;
        let others = tokio::select! {
            others = prometheus.wait_for_each(cause.alerts()) => others,
            () = self.while_it_lasts(cause) => BTreeSet::new(),
        };
        let fired = began.elapsed().as_secs();
        self.cure(cure).await;
        let mut said = format!("{}: {} after {fired} s", cause.name(), cause.alerts().join(", "));
        if !others.is_empty() {
            let others: Vec<&str> = others.iter().map(String::as_str).collect();
            write!(said, " (and {})", others.join(", ")).unwrap();
        }
        said
    }

    async fn inject(&mut self, cause: Cause) -> Cure {
        match cause {
            Cause::LowBalance => {
                let relayer = self.relayer().await;
                call_node(self.sandbox(), "anvil_setBalance", json!([relayer, "0x1"])).await;
                self.token_order().await;
                Cure::Node("anvil_setBalance", json!([relayer, "0x56bc75e2d63100000"]))
            }
            Cause::UsedLimit => {
                let limit = ["--scope", "partner", "--target", "acme", "--asset", "USD", "--per", "day"];
                self.decide(&[&["limit", "set"], &limit[..], &["--amount-minor", "10500"]].concat());
                self.accepted().await;
                let remove = "update order_limit set amount = null where scope = 'partner'";
                Cure::Sql(remove.to_owned())
            }
            Cause::PriceOutsideItsBand => {
                let band = ["--pair", "USD/EUR", "--bps", "50", "--middle", "1.5"];
                self.decide(&[&["band", "set"], &band[..]].concat());
                self.submitted().await;
                Cure::Band
            }
            Cause::SlowCommits => {
                self.run(
                    "create function cause() returns trigger language plpgsql as \
                     'begin perform pg_sleep(0.8); return null; end'",
                )
                .await;
                self.run(
                    "create constraint trigger cause after insert on intent deferrable initially deferred \
                     for each row execute function cause()",
                )
                .await;
                Cure::Sql("drop function cause cascade".to_owned())
            }
            Cause::LockedOrders => self.locked("lock table intent in exclusive mode").await,
            Cause::RefusedRow => self.refusing("insert on intent", "each row", "22023").await,
            Cause::UnwritableStep => {
                let cure = self.refusing("update on execution", "each row", "23514").await;
                self.accepted().await;
                cure
            }
            Cause::RefusedDeletion => {
                self.refusing("delete on request_nonce", "each statement", "23514").await
            }
            Cause::MissingTable => {
                let reference = self.accepted().await;
                self.partner.wait_until(&reference, |execution| execution["status"] == "completed").await;
                self.run("alter table receipt rename to receipt_elsewhere").await;
                let path = format!("/v1/executions/{reference}/receipt");
                let (status, answer) = self.partner.get(&path).await;
                assert_eq!(status, 500, "{answer}");
                Cure::Sql("alter table receipt_elsewhere rename to receipt".to_owned())
            }
            Cause::HeldEndpoint => {
                let request = json!({"url": "https://127.0.0.1:9/", "subscribedTypes": ["payout.completed"]});
                let (status, endpoint) = self.partner.post("/v1/webhook_endpoints", &request).await;
                assert!(status < 300, "{endpoint}");
                let hold = "insert into endpoint_lease (endpoint_id, holder, leased_until) \
                            select id, gen_random_uuid(), now() + interval '1 hour' from webhook_endpoint \
                            on conflict (endpoint_id) do update set holder = excluded.holder, \
                                fence = endpoint_lease.fence + 1, leased_until = excluded.leased_until";
                self.run(hold).await;
                self.accepted().await;
                Cure::Sql("update webhook_endpoint set is_active = false".to_owned())
            }
            Cause::HeldFeed => {
                let cure = self.locked("select 1 from webhook_dispatcher for update").await;
                self.accepted().await;
                cure
            }
            Cause::HeldFigures => self.locked("lock table webhook_queue in access exclusive mode").await,
            Cause::HeldLeases => self.locked("lock table lease in exclusive mode").await,
            Cause::HeldReads => self.locked("lock table execution in access exclusive mode").await,
            Cause::HeldLedgerCheck => {
                self.locked("lock table account_balance in access exclusive mode").await
            }
            Cause::SuspendedNode => {
                self.token_order().await;
                self.until_broadcast().await;
                Cure::Resumed(Suspended::node_of(self.sandbox()))
            }
            Cause::ExpensiveGas => {
                let price = json!(["0x38d7ea4c68000"]);
                call_node(self.sandbox(), "anvil_setNextBlockBaseFeePerGas", price).await;
                self.token_order().await;
                Cure::Node("anvil_setNextBlockBaseFeePerGas", json!(["0x3b9aca00"]))
            }
            Cause::GiftToEscrow => {
                // OpenZeppelin keeps balances in slot 0.
                let address = |pointer: &str| -> Address { self.sandbox().text(pointer).parse().unwrap() };
                let slot = keccak256((address("/chain/contracts/escrow"), U256::ZERO).abi_encode());
                let token = address("/chain/tokens/0/address");
                let before =
                    call_node(self.sandbox(), "eth_getStorageAt", json!([token, slot, "latest"])).await;
                let more = B256::from(U256::from(7));
                call_node(self.sandbox(), "anvil_setStorageAt", json!([token, slot, more])).await;
                Cure::Node("anvil_setStorageAt", json!([token, slot, before]))
            }
            Cause::ChangedBalance => {
                let change = |sign| {
                    format!(
                        "begin; set local session_replication_role = replica; \
                         update account_balance set available = available {sign} 1 \
                         where owner_kind = 'partner' and asset = 'USD'; commit"
                    )
                };
                self.run(&change("+")).await;
                Cure::Sql(change("-"))
            }
            Cause::EndedProcess => {
                drop(self.sandbox.take());
                Cure::Nothing
            }
        }
    }

    /// Requests that show a cause, until this is dropped.
    async fn while_it_lasts(&self, cause: Cause) {
        match cause {
            Cause::SlowCommits | Cause::LockedOrders | Cause::RefusedRow => loop {
                self.submitted().await;
                tokio::time::sleep(AGAIN_AFTER).await;
            },
            Cause::HeldReads => loop {
                let path = || format!("/v1/executions/{}", Uuid::new_v4());
                let paths: Vec<String> = (0..60).map(|_| path()).collect();
                futures_util::future::join_all(paths.iter().map(|path| self.partner.get(path))).await;
            },
            // What differs for less than a quarter of an hour counts as in transit.
            Cause::GiftToEscrow => loop {
                self.run("update wallet_balance set differs_since = differs_since - interval '1 hour'").await;
                tokio::time::sleep(AGAIN_AFTER).await;
            },
            _ => std::future::pending().await,
        }
    }

    async fn cure(&self, cure: Cure) {
        match cure {
            Cure::RolledBack(conn) => conn.close().await.unwrap(),
            Cure::Resumed(suspended) => drop(suspended),
            Cure::Sql(statement) => self.run(&statement).await,
            Cure::Node(method, params) => drop(call_node(self.sandbox(), method, params).await),
            Cure::Band => self.decide(&["band", "remove", "--pair", "USD/EUR"]),
            Cure::Nothing => {}
        }
    }

    async fn run(&self, statement: &str) {
        let mut conn = self.sandbox().database().await;
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))).await.unwrap();
    }

    async fn locked(&self, statement: &'static str) -> Cure {
        let mut conn = self.sandbox().database().await;
        conn.execute(sqlx::raw_sql("begin")).await.unwrap();
        conn.execute(sqlx::raw_sql(statement)).await.unwrap();
        Cure::RolledBack(conn)
    }

    /// A trigger that refuses every such change.
    async fn refusing(&self, change: &str, each: &str, code: &str) -> Cure {
        self.run(&format!(
            "create function cause() returns trigger language plpgsql as \
             'begin raise exception using errcode = ''{code}'', message = ''refused by the drill''; end'"
        ))
        .await;
        self.run(&format!("create trigger cause before {change} for {each} execute function cause()")).await;
        Cure::Sql("drop function cause cascade".to_owned())
    }

    /// Until a transaction is on its way and in no block.
    async fn until_broadcast(&self) {
        let mut conn = self.sandbox().database().await;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let select = "select count(*) from nonce_slot where state in ('signed', 'broadcast')";
            let unmined: i64 = sqlx::query_scalar(select).fetch_one(&mut conn).await.unwrap();
            if unmined > 0 {
                return;
            }
            assert!(Instant::now() < deadline, "no transaction is on its way");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn relayer(&self) -> String {
        let mut conn = self.sandbox().database().await;
        let select = "select '0x' || encode(signer, 'hex') from relayer_account limit 1";
        sqlx::query_scalar(select).fetch_one(&mut conn).await.unwrap()
    }

    /// A request by one operator that another approves.
    fn decide(&self, words: &[&str]) {
        let why = ["--operator", "jo", "--reason", "drill", "--evidence", "drill"];
        let requested = self.dvp(&[words, &why].concat());
        let id = requested["id"].as_str().unwrap();
        let approved = self.dvp(&["approval", "approve", "--id", id, "--operator", "mika"]);
        assert_eq!(approved["state"], "approved", "{approved}");
    }

    fn dvp(&self, words: &[&str]) -> Value {
        let mut command = Command::new(program());
        command.args(words).arg("--json").arg("--dir").arg(self.sandbox().dir());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// An order of 100 USD for euros.
    fn order() -> Value {
        let id = Uuid::new_v4().to_string();
        let deadline = (chrono::Utc::now() + chrono::Duration::hours(1)).timestamp_millis();
        json!({
            "intentId": id, "clientReference": format!("ref-{id}"), "user": "acme",
            "inputAsset": {"type": "fiat", "symbol": "USD", "currency": "USD"},
            "outputAsset": {"type": "fiat", "symbol": "EUR", "currency": "EUR"},
            "inputAmountMinor": "10000", "minOutputAmountMinor": "5000", "deadline": deadline,
            "settlementType": "offchain", "beneficiary": {"account": "bene_straight:dest_10000000"},
        })
    }

    /// Submits one that may be refused.
    async fn submitted(&self) {
        self.partner.submit(&Self::order()).await;
    }

    /// Submits one, and returns its reference.
    async fn accepted(&self) -> String {
        let order = Self::order();
        let (status, answer) = self.partner.submit(&order).await;
        assert_eq!(status, 202, "{answer}");
        order["clientReference"].as_str().unwrap().to_owned()
    }

    /// An order that waits for the chain, of a wallet that has not ordered.
    async fn token_order(&mut self) {
        let order = self.partner.order(self.sandbox(), self.wallets, "000123456789").await;
        self.wallets += 1;
        let (status, answer) = self.partner.submit(&order).await;
        assert_eq!(status, 202, "{answer}");
    }
}
