//! A sandbox in which alerts are caused, and what the causes need of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::Deployment;
use dvp_chain_indexer::relayer::functions::functions;
use dvp_sandbox::embedded::FreePort;
use dvp_testing::signer::{Manner, Policy, RemoteSigner};
use serde_json::{Value, json};
use sqlx::{Executor, PgConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::alert_faults::{Endpoint, Suspended, call_node};
use crate::alert_prometheus::{Prometheus, QUIET};
use crate::alert_table::{CAUSES, Expected, Ground};
use crate::partner::Partner;
use crate::sandbox::{Sandbox, program};

/// Wallets that order one after the other; one more orders again and again.
const WALLETS: usize = 6;
/// Of these a partner can fill half.
const ORDER_PLACES: &str = "4";

/// Steps of runbooks outside of the service.
pub(crate) const END_SESSION: &str = "End the session of the database that holds the lock.";
pub(crate) const REPAIR: &str = "Run the release that repairs the defect.";
pub(crate) const UNBURDEN: &str = "Take away what slows the database: a lock, a disk, a standby.";

/// What undoes a cause outside of the service, and the step of a runbook that asks for it.
pub(crate) struct Cure {
    pub(crate) step: &'static str,
    how: How,
}

pub(crate) enum How {
    /// The session that holds a lock is ended, as an administrator of the database does.
    EndSession(PgConnection, i32),
    Sql(String),
    Node(&'static str, Value),
    Files(Vec<(PathBuf, Vec<u8>)>),
    Resume(Suspended),
    Start,
    List,
    Signer,
    Endpoint,
}

impl Cure {
    pub(crate) const fn new(step: &'static str, how: How) -> Self {
        Self { step, how }
    }

    pub(crate) fn sql(step: &'static str, statement: &str) -> Self {
        Self::new(step, How::Sql(statement.to_owned()))
    }
}

/// What a sandbox has beside its own parts.
pub(crate) struct Equipment {
    dir: TempDir,
    pub(crate) signer: RemoteSigner,
    pub(crate) endpoint: Endpoint,
}

impl Equipment {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = PrivateKeySigner::random();
        let address = key.address();
        let policy =
            Policy { chain_id: 31337, functions: vec![], fee_cap_wei: 500_000_000_000, per_minute: 1_000 };
        let signer = RemoteSigner::start(key, policy).await;
        let file = |name: &str| signer.file(name).display().to_string();
        let section = format!(
            "[[remote_signers]]\nurl = \"{}\"\naddress = \"{address}\"\nca = \"{}\"\n\
             client_certificate = \"{}\"\nclient_key = \"{}\"\ntimeout = \"2s\"\n",
            signer.url(),
            file("ca.pem"),
            file("client.pem"),
            file("client.key"),
        );
        std::fs::write(dir.path().join("signers.toml"), section).unwrap();
        let equipment = Self { dir, signer, endpoint: Endpoint::start().await };
        equipment.write_list();
        equipment
    }

    /// The screening list.
    pub(crate) fn list(&self) -> PathBuf {
        self.dir.path().join("list")
    }

    pub(crate) fn write_list(&self) {
        std::fs::write(self.list(), "name: Nobody Orders\n").unwrap();
    }

    /// Lets the signer sign what the service needs of a sandbox's contracts, and the endpoint answer.
    fn admit(&self, sandbox: &Sandbox) {
        self.endpoint.follow(sandbox);
        let record = std::fs::read(sandbox.ready_file().with_file_name("deployment.json")).unwrap();
        let deployment: Deployment = serde_json::from_slice(&record).unwrap();
        let functions = functions(&deployment).map(|function| (function.contract, function.selector));
        self.signer.change_policy(|policy| policy.functions = functions.into());
    }
}

pub(crate) struct Scene {
    sandbox: Sandbox,
    pub(crate) partner: Partner,
    equipment: Option<Equipment>,
    _metrics: Option<FreePort>,
    /// Orders of wallets.
    orders: usize,
}

impl Scene {
    pub(crate) async fn on(ground: Ground) -> Self {
        match ground {
            Ground::Plain => Self::plain().await,
            Ground::Equipped => Self::equipped().await,
        }
    }

    async fn plain() -> Self {
        // A process that is started again is found at the address of before.
        let port = FreePort::take().unwrap();
        let metrics = format!("127.0.0.1:{}", port.number());
        let args = ["--webhook-allow-private", "--order-places", ORDER_PLACES, "--metrics", &metrics];
        let sandbox = Sandbox::start_with(&args).await;
        Self { partner: Partner::of(&sandbox), sandbox, equipment: None, _metrics: Some(port), orders: 0 }
    }

    async fn equipped() -> Self {
        let equipment = Equipment::new().await;
        let (list, signers) = (equipment.list(), equipment.dir.path().join("signers.toml"));
        let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let (list, signers, endpoint) = (path(&list), path(&signers), equipment.endpoint.url());
        let args =
            ["--bank-files", "--screening-list", &list, "--signers", &signers, "--chain-endpoint", &endpoint];
        let sandbox = Sandbox::start_with(&args).await;
        equipment.admit(&sandbox);
        Self {
            partner: Partner::of(&sandbox),
            sandbox,
            equipment: Some(equipment),
            _metrics: None,
            orders: 0,
        }
    }

    pub(crate) const fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    pub(crate) fn equipment(&self) -> &Equipment {
        self.equipment.as_ref().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.sandbox.kill();
    }

    pub(crate) async fn end(self) {
        self.sandbox.stop().await;
    }

    /// Causes, waits, carries the pages out, and waits until the alerts have ended. `standing` alerts are on before.
    pub(crate) async fn one(
        &mut self,
        one: &Expected,
        standing: &BTreeSet<&'static str>,
        prometheus: &Prometheus,
    ) -> String {
        prometheus.wait_for_end(standing, &CAUSES.iter().flat_map(|one| one.alerts).copied().collect()).await;
        let early: Vec<&&str> = one.alerts.iter().filter(|alert| standing.contains(**alert)).collect();
        assert!(early.is_empty(), "{early:?} fire before {}", one.name);
        let stays: BTreeSet<&str> = standing.iter().chain(one.stays).copied().collect();
        let allowed: BTreeSet<&str> =
            stays.iter().copied().chain(one.alerts.iter().chain(one.may_follow).copied()).collect();
        let began = Instant::now();
        let cure = self.inject(one.cause).await;
        let firing = tokio::select! {
            firing = prometheus.wait_for_each(one.alerts, &allowed) => firing,
            never = self.while_it_lasts(one.cause) => match never {},
        };
        let fired = began.elapsed().as_secs();
        for alert in one.alerts {
            self.check(alert).await;
        }
        prometheus.firing_of(&allowed).await;
        let began = Instant::now();
        self.remedy(one, cure).await;
        let carried_out = began.elapsed().as_secs();
        prometheus.wait_for_end(&stays, &allowed).await;
        let ended = began.elapsed().saturating_sub(QUIET).as_secs();
        let mut said = format!(
            "{}: {} after {fired} s, remedy {carried_out} s, ended {ended} s after its beginning",
            one.name,
            one.alerts.join(", ")
        );
        let is_other =
            |alert: &&String| !one.alerts.contains(&alert.as_str()) && !standing.contains(alert.as_str());
        let others: Vec<&str> = firing.iter().filter(is_other).map(String::as_str).collect();
        if !others.is_empty() {
            write!(said, " (and {})", others.join(", ")).unwrap();
        }
        said
    }

    pub(crate) async fn cure(&mut self, cure: Cure) {
        match cure.how {
            How::EndSession(held, pid) => {
                self.run(&format!("select pg_terminate_backend({pid})")).await;
                drop(held);
            }
            How::Sql(statement) => self.run(&statement).await,
            How::Node(method, params) => drop(call_node(&self.sandbox, method, params).await),
            How::Files(files) => {
                for (path, content) in files {
                    std::fs::write(path, content).unwrap();
                }
            }
            How::Resume(suspended) => drop(suspended),
            How::Start => {
                let _ = std::fs::remove_file(self.sandbox.ready_file());
                self.sandbox.start_again().await;
                self.partner = Partner::of(&self.sandbox);
            }
            How::List => self.equipment().write_list(),
            How::Signer => self.equipment().signer.answer(Manner::Honest),
            How::Endpoint => self.equipment().endpoint.lie(None),
        }
    }

    pub(crate) async fn run(&self, statement: &str) {
        let mut conn = self.sandbox().database().await;
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))).await.unwrap();
    }

    pub(crate) async fn locked(&self, statement: &'static str) -> Cure {
        let mut conn = self.sandbox().database().await;
        let pid = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut conn).await.unwrap();
        conn.execute(sqlx::raw_sql("begin")).await.unwrap();
        conn.execute(sqlx::raw_sql(statement)).await.unwrap();
        Cure::new(END_SESSION, How::EndSession(conn, pid))
    }

    /// A trigger that refuses every such change.
    pub(crate) async fn refusing(&self, change: &str, each: &str, code: &str) -> Cure {
        self.run(&format!(
            "create function cause() returns trigger language plpgsql as \
             'begin raise exception using errcode = ''{code}'', message = ''refused by the drill''; end'"
        ))
        .await;
        self.run(&format!("create trigger cause before {change} for {each} execute function cause()")).await;
        Cure::sql(REPAIR, "drop function cause cascade")
    }

    /// A trigger that takes 2 s at the end of every transaction that inserts there.
    pub(crate) async fn slowing(&self, table: &str) -> Cure {
        self.run(
            "create function cause() returns trigger language plpgsql as \
             'begin perform pg_sleep(2); return null; end'",
        )
        .await;
        self.run(&format!(
            "create constraint trigger cause after insert on {table} deferrable initially deferred \
             for each row execute function cause()"
        ))
        .await;
        Cure::sql(UNBURDEN, "drop function cause cascade")
    }

    pub(crate) async fn relayer(&self) -> String {
        let mut conn = self.sandbox().database().await;
        let select = "select '0x' || encode(signer, 'hex') from relayer_account limit 1";
        sqlx::query_scalar(select).fetch_one(&mut conn).await.unwrap()
    }

    /// A request by one operator that another approves.
    pub(crate) fn decide(&self, words: &[&str]) {
        let why = ["--operator", "jo", "--reason", "drill", "--evidence", "drill"];
        let requested = self.dvp(&[words, &why].concat());
        let id = requested["id"].as_str().unwrap();
        let approved = self.dvp(&["approval", "approve", "--id", id, "--operator", "mika"]);
        assert_eq!(approved["state"], "approved", "{approved}");
    }

    pub(crate) fn dvp(&self, words: &[&str]) -> Value {
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
    pub(crate) async fn submitted(&self) {
        self.partner.submit(&Self::order()).await;
    }

    /// Submits one, and returns its reference.
    pub(crate) async fn accepted(&self) -> String {
        let order = Self::order();
        let (status, answer) = self.partner.submit(&order).await;
        assert_eq!(status, 202, "{answer}");
        order["clientReference"].as_str().unwrap().to_owned()
    }

    /// An order that waits for the chain, of a wallet that has not ordered.
    pub(crate) async fn token_order(&mut self) {
        let order = self.order_to("000123456789").await;
        self.place(&order).await;
    }

    /// Submits an order, again while the service starts.
    pub(crate) async fn place(&self, order: &Value) {
        self.partner.submit_accepted(order).await;
    }

    /// An order of a wallet whose last one is six orders ago, with its payout to this account.
    pub(crate) async fn order_to(&mut self, account: &str) -> Value {
        let order = self.order_of(self.orders % WALLETS, account).await;
        self.orders += 1;
        order
    }

    /// An order of the wallet that orders again and again.
    pub(crate) async fn order_again(&self) -> Value {
        self.order_of(WALLETS, "000123456789").await
    }

    /// An order of this wallet that a bank can pay out.
    async fn order_of(&self, wallet: usize, account: &str) -> Value {
        let mut order = self.partner.order(self.sandbox(), wallet, account).await;
        order["beneficiary"]["bank"] = "USABA021000021".into();
        order
    }

    /// The same of a text.
    pub(crate) async fn text(&self, select: &'static str) -> Option<String> {
        let mut conn = self.sandbox().database().await;
        sqlx::query_scalar(select).fetch_optional(&mut conn).await.unwrap()
    }

    /// The first column of the only row.
    pub(crate) async fn number(&self, select: &'static str) -> Option<i64> {
        let mut conn = self.sandbox().database().await;
        sqlx::query_scalar(select).fetch_optional(&mut conn).await.unwrap()
    }
}
