//! A sandbox in which alerts are caused, and what the causes need of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::Deployment;
use dvp_sandbox::embedded::FreePort;
use dvp_testing::signer::{Manner, Policy, RemoteSigner};
use serde_json::Value;
use sqlx::{Executor, PgConnection};
use tempfile::TempDir;

use super::alert_faults::{Suspended, call_node};
use super::alert_prometheus::{Prometheus, QUIET};
use super::alert_table::{CAUSES, Expected, SceneKind};
use super::endpoint::Endpoint;
use super::partner::Partner;
use super::sandbox::{self, Sandbox, approve};
use super::served::policy_for;
use crate::crash::rest::fiat_order;

/// Wallets that order one after the other; one more orders again and again.
const WALLETS: usize = 6;
/// Of these a partner can fill half.
const ORDER_PLACES: &str = "4";

/// Steps of runbooks outside of the service.
pub const END_SESSION: &str = "End the session of the database that holds the lock.";
pub const REPAIR: &str = "Run the release that repairs the defect.";
pub const UNBURDEN: &str = "Take away what slows the database: a lock, a disk, a standby.";

/// What undoes a cause outside of the service, and the step of a runbook that asks for it.
pub struct Cure {
    pub step: &'static str,
    how: How,
}

pub enum How {
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
    pub const fn new(step: &'static str, how: How) -> Self {
        Self { step, how }
    }

    pub fn sql(step: &'static str, statement: &str) -> Self {
        Self::new(step, How::Sql(statement.to_owned()))
    }
}

/// What a sandbox has beside its own parts.
pub struct Equipment {
    dir: TempDir,
    pub signer: RemoteSigner,
    pub endpoint: Endpoint,
}

impl Equipment {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = PrivateKeySigner::random();
        let address = key.address();
        let signer = RemoteSigner::start(key, Policy::default()).await;
        let section = signer.section("remote_signers", address) + "timeout = \"2s\"\n";
        std::fs::write(dir.path().join("signers.toml"), section).unwrap();
        let equipment = Self { dir, signer, endpoint: Endpoint::start().await };
        equipment.write_list();
        equipment
    }

    pub fn list(&self) -> PathBuf {
        self.dir.path().join("list")
    }

    pub fn write_list(&self) {
        std::fs::write(self.list(), "name: Nobody Orders\n").unwrap();
    }

    /// Lets the signer sign what the service needs of a sandbox's contracts, and the endpoint answer.
    fn admit(&self, sandbox: &Sandbox) {
        self.endpoint.follow(sandbox);
        let record = std::fs::read(sandbox.ready_file().with_file_name("deployment.json")).unwrap();
        let deployment: Deployment = serde_json::from_slice(&record).unwrap();
        self.signer.change_policy(|policy| *policy = policy_for(&deployment));
    }
}

pub struct Scene {
    pub sandbox: Sandbox,
    pub partner: Partner,
    equipment: Option<Equipment>,
    _metrics: Option<FreePort>,
    orders: usize,
}

impl Scene {
    pub async fn on(ground: SceneKind) -> Self {
        match ground {
            SceneKind::Plain => Self::plain().await,
            SceneKind::Equipped => Self::equipped().await,
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

    pub fn equipment(&self) -> &Equipment {
        self.equipment.as_ref().unwrap()
    }

    /// Causes, waits, carries the pages out, and waits until the alerts have ended. `standing` alerts are on before.
    pub async fn one(
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

    pub async fn cure(&mut self, cure: Cure) {
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
                self.sandbox.start_again().await;
                self.partner = Partner::of(&self.sandbox);
            }
            How::List => self.equipment().write_list(),
            How::Signer => self.equipment().signer.answer(Manner::Honest),
            How::Endpoint => self.equipment().endpoint.lie(None),
        }
    }

    pub async fn run(&self, statement: &str) {
        let mut conn = self.sandbox.database().await;
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))).await.unwrap();
    }

    pub async fn locked(&self, statement: &'static str) -> Cure {
        let mut conn = self.sandbox.database().await;
        let pid = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut conn).await.unwrap();
        conn.execute(sqlx::raw_sql("begin")).await.unwrap();
        conn.execute(sqlx::raw_sql(statement)).await.unwrap();
        Cure::new(END_SESSION, How::EndSession(conn, pid))
    }

    /// A trigger that refuses every such change.
    pub async fn refusing(&self, change: &str, each: &str, code: &str) -> Cure {
        self.run(&format!(
            "create function cause() returns trigger language plpgsql as \
             'begin raise exception using errcode = ''{code}'', message = ''refused by the drill''; end'"
        ))
        .await;
        self.run(&format!("create trigger cause before {change} for {each} execute function cause()")).await;
        Cure::sql(REPAIR, "drop function cause cascade")
    }

    /// A trigger that takes 2 s at the end of every transaction that inserts there.
    pub async fn slowing(&self, table: &str) -> Cure {
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

    pub async fn relayer(&self) -> String {
        self.sandbox.one("select '0x' || encode(signer, 'hex') from relayer_account limit 1").await
    }

    /// A request by one operator that another approves.
    pub fn decide(&self, words: &[&str]) {
        let why = ["--as", "jo", "--reason", "drill", "--evidence", "drill"];
        approve(&self.sandbox, &self.said(&[words, &why].concat())["id"]);
    }

    pub fn said(&self, words: &[&str]) -> Value {
        sandbox::said(&self.sandbox, words)
    }

    fn order() -> Value {
        fiat_order("bene_straight:dest_10000000").unwrap()
    }

    /// Submits one that may be refused.
    pub async fn submitted(&self) {
        self.partner.submit(&Self::order()).await;
    }

    /// Submits one, and returns its reference.
    pub async fn accepted(&self) -> String {
        let order = Self::order();
        self.partner.submit_accepted(&order).await;
        order["clientReference"].as_str().unwrap().to_owned()
    }

    /// An order that waits for the chain, of a wallet that has not ordered.
    pub async fn token_order(&mut self) {
        self.place_order_to("000123456789").await;
    }

    /// Submits an order to an account, again while the service starts.
    pub async fn place_order_to(&mut self, account: &str) {
        let order = self.order_to(account).await;
        self.partner.submit_accepted(&order).await;
    }

    /// An order of a wallet whose last one is six orders ago, with its payout to this account.
    async fn order_to(&mut self, account: &str) -> Value {
        let wallet = self.orders % WALLETS;
        self.orders += 1;
        self.partner.order_at_the_bank(&self.sandbox, wallet, account).await
    }

    pub async fn order_again(&self) -> Value {
        self.partner.order_at_the_bank(&self.sandbox, WALLETS, "000123456789").await
    }
}
