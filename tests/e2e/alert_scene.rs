//! A sandbox in which alerts are caused, and what the causes need of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::Deployment;
use dvp_chain_indexer::relayer::functions::functions;
use dvp_testing::signer::{Manner, Policy, RemoteSigner};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::alert_causes::Cause;
use crate::alert_faults::call_node;
use crate::alert_prometheus::Prometheus;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, program};

/// Wallets that order one after the other; one more orders again and again.
const WALLETS: usize = 6;

/// What undoes a cause.
pub(crate) enum Cure {
    /// A transaction that holds a lock.
    RolledBack(PgConnection),
    Sql(String),
    Node(&'static str, Value),
    Band,
    List,
    Signer,
    Nothing,
}

/// What a sandbox has beside its own parts.
pub(crate) struct Equipment {
    dir: TempDir,
    pub(crate) signer: RemoteSigner,
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
        let equipment = Self { dir, signer };
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

    /// Lets the signer sign what the service needs of a sandbox's contracts.
    fn admit(&self, sandbox: &Sandbox) {
        let record = std::fs::read(sandbox.ready_file().with_file_name("deployment.json")).unwrap();
        let deployment: Deployment = serde_json::from_slice(&record).unwrap();
        let functions = functions(&deployment).map(|function| (function.contract, function.selector));
        self.signer.change_policy(|policy| policy.functions = functions.into());
    }
}

pub(crate) struct Scene {
    /// Until it ends.
    sandbox: Option<Sandbox>,
    pub(crate) partner: Partner,
    equipment: Option<Equipment>,
    /// Orders of wallets.
    orders: usize,
}

impl Scene {
    pub(crate) async fn plain() -> Self {
        let sandbox = Sandbox::start_with(&["--webhook-allow-private"]).await;
        Self { partner: Partner::of(&sandbox), sandbox: Some(sandbox), equipment: None, orders: 0 }
    }

    /// With bank files, a screening list and a remote signer.
    pub(crate) async fn equipped() -> Self {
        let equipment = Equipment::new().await;
        let (list, signers) = (equipment.list(), equipment.dir.path().join("signers.toml"));
        let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let args = ["--bank-files", "--screening-list", &path(&list), "--signers", &path(&signers)];
        let sandbox = Sandbox::start_with(&args).await;
        equipment.admit(&sandbox);
        Self { partner: Partner::of(&sandbox), sandbox: Some(sandbox), equipment: Some(equipment), orders: 0 }
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().unwrap()
    }

    pub(crate) fn equipment(&self) -> &Equipment {
        self.equipment.as_ref().unwrap()
    }

    /// Without a farewell.
    pub(crate) fn kill(&mut self) {
        drop(self.sandbox.take());
    }

    pub(crate) async fn end(self) {
        if let Some(sandbox) = self.sandbox {
            sandbox.stop().await;
        }
    }

    /// Causes, waits and cures.
    pub(crate) async fn one(&mut self, cause: Cause, prometheus: &Prometheus) -> String {
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

    async fn cure(&self, cure: Cure) {
        match cure {
            Cure::RolledBack(conn) => conn.close().await.unwrap(),
            Cure::Sql(statement) => self.run(&statement).await,
            Cure::Node(method, params) => drop(call_node(self.sandbox(), method, params).await),
            Cure::List => self.equipment().write_list(),
            Cure::Signer => self.equipment().signer.answer(Manner::Honest),
            Cure::Band => self.decide(&["band", "remove", "--pair", "USD/EUR"]),
            Cure::Nothing => {}
        }
    }

    pub(crate) async fn run(&self, statement: &str) {
        let mut conn = self.sandbox().database().await;
        conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))).await.unwrap();
    }

    pub(crate) async fn locked(&self, statement: &'static str) -> Cure {
        let mut conn = self.sandbox().database().await;
        conn.execute(sqlx::raw_sql("begin")).await.unwrap();
        conn.execute(sqlx::raw_sql(statement)).await.unwrap();
        Cure::RolledBack(conn)
    }

    /// A trigger that refuses every such change.
    pub(crate) async fn refusing(&self, change: &str, each: &str, code: &str) -> Cure {
        self.run(&format!(
            "create function cause() returns trigger language plpgsql as \
             'begin raise exception using errcode = ''{code}'', message = ''refused by the drill''; end'"
        ))
        .await;
        self.run(&format!("create trigger cause before {change} for {each} execute function cause()")).await;
        Cure::Sql("drop function cause cascade".to_owned())
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
        let (status, answer) = self.partner.submit(&order).await;
        assert_eq!(status, 202, "{answer}");
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

    /// The first column of the only row.
    pub(crate) async fn number(&self, select: &'static str) -> Option<i64> {
        let mut conn = self.sandbox().database().await;
        sqlx::query_scalar(select).fetch_optional(&mut conn).await.unwrap()
    }
}
