//! Faults of a sandbox and the alerts that a real Prometheus raises for them: each fault its own alert, and no other.
//!
//! Ranges of rates stay as they are; the ages named in [`SHORTER`] are shorter.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use crate::alert_prometheus::{Prometheus, Shorter};
use crate::partner::Partner;
use crate::sandbox::Sandbox;

const SHORTER: [Shorter; 2] = [("DvpChainStalled", "> 90", "> 20"), ("DvpAnchorBacklog", "> 3600", "> 15")];
/// For how long no other alert may fire beside an expected one.
const QUIET: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The certificate of the FIX listener expires tomorrow.
    ExpiringCertificate,
    /// The chain's node is suspended.
    FrozenNode,
    /// The anchor's contract refuses every call.
    AnchorBacklog,
    /// The database's processes are suspended.
    UnavailableDatabase,
    /// The bank takes a payment and never answers.
    SilentBank,
}

impl Fault {
    /// The silent bank is the last one: its payment stays in doubt.
    pub(crate) const ALL: [Self; 5] = [
        Self::ExpiringCertificate,
        Self::FrozenNode,
        Self::AnchorBacklog,
        Self::UnavailableDatabase,
        Self::SilentBank,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ExpiringCertificate => "expiring certificate",
            Self::FrozenNode => "frozen node",
            Self::AnchorBacklog => "anchor backlog",
            Self::UnavailableDatabase => "unavailable database",
            Self::SilentBank => "silent bank",
        }
    }

    const fn alert(self) -> &'static str {
        match self {
            Self::ExpiringCertificate => "DvpCertificateExpires",
            Self::FrozenNode => "DvpChainStalled",
            Self::AnchorBacklog => "DvpAnchorBacklog",
            Self::UnavailableDatabase => "DvpDatabaseUnavailable",
            Self::SilentBank => "DvpRailSilent",
        }
    }
}

/// What undoes a fault.
enum Cure {
    Files(Vec<(PathBuf, Vec<u8>)>),
    Resume(Suspended),
    Code(String, String),
    /// It cannot be undone.
    Nothing,
}

/// Processes that are suspended until this is dropped.
struct Suspended(Vec<String>);

impl Suspended {
    fn new(pids: Vec<String>) -> Self {
        signal("-STOP", &pids);
        Self(pids)
    }

    fn node_of(sandbox: &Sandbox) -> Self {
        let pid = fs::read_to_string(sandbox.dir().join("anvil/pid")).unwrap();
        Self::new(vec![pid.trim().to_owned()])
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(name: &str, pids: &[String]) {
    // A process of the database may have ended by itself.
    let _ = Command::new("kill").arg(name).args(pids).stderr(Stdio::null()).status();
}

/// One sandbox, one Prometheus, one fault after the other. Returns how long each alert took.
pub(crate) async fn run(faults: &[Fault]) -> String {
    let sandbox = Sandbox::start().await;
    let expected: BTreeSet<&str> = Fault::ALL.iter().map(|fault| fault.alert()).collect();
    let prometheus = Prometheus::start(&sandbox.text("/metrics"), &expected, &SHORTER).await;
    let partner = Partner::of(&sandbox);
    partner.is_served().await;
    complete_an_order(&sandbox, &partner, 0).await;
    prometheus.wait_for(&[]).await;
    let mut said = String::new();
    for (n, fault) in faults.iter().enumerate() {
        let began = Instant::now();
        let cure = inject(*fault, &sandbox, &partner, n + 1).await;
        prometheus.wait_for(&[fault.alert()]).await;
        let fired = began.elapsed().as_secs();
        prometheus.stays_at(&[fault.alert()], QUIET).await;
        let is_cured = cure.apply(&sandbox).await;
        write!(said, "{}: {} after {fired} s", fault.name(), fault.alert()).unwrap();
        if is_cured {
            let began = Instant::now();
            prometheus.wait_for(&[]).await;
            write!(said, ", resolved after {} s", began.elapsed().as_secs()).unwrap();
        }
        said.push('\n');
    }
    drop(prometheus);
    sandbox.stop().await;
    said
}

async fn complete_an_order(sandbox: &Sandbox, partner: &Partner, wallet: usize) {
    let order = partner.order(sandbox, wallet, "000123456789").await;
    let (status, accepted) = partner.submit(&order).await;
    assert_eq!(status, 202, "{accepted}");
    let reference = order["clientReference"].as_str().unwrap();
    partner.wait_until(reference, |execution| !execution["finality"].is_null()).await;
}

async fn inject(fault: Fault, sandbox: &Sandbox, partner: &Partner, wallet: usize) -> Cure {
    match fault {
        Fault::ExpiringCertificate => {
            let files = ["cert.pem", "key.pem"].map(|name| sandbox.dir().join("fix-tls").join(name));
            let before = files.iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let tomorrow = chrono::Utc::now().date_naive() + chrono::Days::new(1);
            let date = tomorrow.format("%Y %m %d").to_string();
            let parts: Vec<&str> = date.split(' ').collect();
            params.not_after = date_time_ymd(
                parts[0].parse().unwrap(),
                parts[1].parse().unwrap(),
                parts[2].parse().unwrap(),
            );
            let certificate = params.self_signed(&key).unwrap().pem();
            fs::write(&files[1], key.serialize_pem()).unwrap();
            fs::write(&files[0], certificate).unwrap();
            Cure::Files(before)
        }
        Fault::FrozenNode => Cure::Resume(Suspended::node_of(sandbox)),
        Fault::AnchorBacklog => {
            let cure = refuse_anchors(sandbox).await;
            let order = partner.order(sandbox, wallet, "000123456789").await;
            let (status, accepted) = partner.submit(&order).await;
            assert_eq!(status, 202, "{accepted}");
            cure
        }
        Fault::UnavailableDatabase => {
            let server = fs::read_to_string(sandbox.dir().join("postgres/data/postmaster.pid")).unwrap();
            let server = server.lines().next().unwrap().trim().to_owned();
            let children = Command::new("pgrep").args(["-P", &server]).output().unwrap();
            let children = String::from_utf8(children.stdout).unwrap();
            let pids = std::iter::once(server.clone()).chain(children.lines().map(str::to_owned)).collect();
            Cure::Resume(Suspended::new(pids))
        }
        Fault::SilentBank => {
            let order = partner.order(sandbox, wallet, "bene_silent:dest_10000007").await;
            let (status, accepted) = partner.submit(&order).await;
            assert_eq!(status, 202, "{accepted}");
            Cure::Nothing
        }
    }
}

impl Cure {
    async fn apply(self, sandbox: &Sandbox) -> bool {
        match self {
            Self::Files(files) => {
                for (path, content) in files.into_iter().rev() {
                    fs::write(path, content).unwrap();
                }
            }
            Self::Resume(suspended) => drop(suspended),
            Self::Code(address, code) => {
                call_node(sandbox, "anvil_setCode", json!([address, code])).await;
            }
            Self::Nothing => return false,
        }
        true
    }
}

pub(crate) async fn call_node(sandbox: &Sandbox, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let answer = reqwest::Client::new().post(sandbox.text("/chain/rpcUrl")).json(&request).send().await;
    let answer: Value = answer.unwrap().json().await.unwrap();
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].clone()
}

/// Puts a contract in the anchor's place that refuses `anchor` and `anchorMany`, and carries out everything else as the
/// anchor does, from a copy of its code.
async fn refuse_anchors(sandbox: &Sandbox) -> Cure {
    let anchor = sandbox.text("/chain/contracts/anchor");
    let code = call_node(sandbox, "eth_getCode", json!([anchor, "latest"])).await;
    let copy = "00000000000000000000000000000000c0ffee00";
    call_node(sandbox, "anvil_setCode", json!([format!("0x{copy}"), code])).await;
    let selector = |signature: &str| hex::encode(&alloy::primitives::keccak256(signature)[..4]);
    let (one, many) = (selector("anchor(bytes32)"), selector("anchorMany(bytes32[])"));
    // The call's data to memory; its selector; to the end if it is one of both; else a delegated call of the copy.
    let refusing = format!(
        "0x363d3d373d3560e01c8063{one}1460415763{many}146041573d3d363d73{copy}5af43d600060003e3d6000f35b60006000fd"
    );
    call_node(sandbox, "anvil_setCode", json!([anchor, refusing])).await;
    Cure::Code(anchor, code.as_str().unwrap().to_owned())
}
