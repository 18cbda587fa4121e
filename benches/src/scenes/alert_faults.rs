//! Faults of a sandbox's parts, and what undoes them.

use std::fs;
use std::path::PathBuf;

use chrono::Datelike as _;
use dvp_sandbox::embedded::signals::{processes, signal};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use super::sandbox::Sandbox;
use crate::rpc::Rpc;

/// Processes that are suspended until this is dropped.
pub struct Suspended(Vec<String>);

impl Suspended {
    fn new(pids: Vec<String>) -> Self {
        signal("-STOP", &pids).unwrap();
        Self(pids)
    }

    pub fn node_of(sandbox: &Sandbox) -> Self {
        let pid = fs::read_to_string(sandbox.dir().join("anvil/pid")).unwrap();
        Self::new(vec![pid.trim().to_owned()])
    }

    pub fn database_of(sandbox: &Sandbox) -> Self {
        let server = fs::read_to_string(sandbox.dir().join("postgres/data/postmaster.pid")).unwrap();
        Self::new(processes(server.lines().next().unwrap().trim().parse().unwrap()).unwrap())
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let _ = signal("-CONT", &self.0);
    }
}

/// Gives the FIX listener a certificate that expires tomorrow. Returns its files as they were.
pub fn expiring_certificate(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<u8>)> {
    let files = ["key.pem", "cert.pem"].map(|name| sandbox.dir().join("fix-tls").join(name));
    let before = files.iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let tomorrow = chrono::Utc::now().date_naive() + chrono::Days::new(1);
    let [month, day] = [tomorrow.month(), tomorrow.day()].map(|part| u8::try_from(part).unwrap());
    params.not_after = date_time_ymd(tomorrow.year(), month, day);
    let certificate = params.self_signed(&key).unwrap().pem();
    fs::write(&files[0], key.serialize_pem()).unwrap();
    fs::write(&files[1], certificate).unwrap();
    before
}

pub async fn call_node(sandbox: &Sandbox, method: &str, params: Value) -> Value {
    Rpc::new(&sandbox.text("/chain/rpcUrl")).one(method, params).await.unwrap()
}

/// Puts a contract in the anchor's place that refuses `anchor` and `anchorMany`, and carries out everything else as the
/// anchor does, from a copy of its code. Returns the address and its code.
pub async fn refuse_anchors(sandbox: &Sandbox) -> Value {
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
    json!([anchor, code])
}
