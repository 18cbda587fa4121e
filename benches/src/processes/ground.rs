//! What the processes share: a database, a chain with the contracts, the bank's folder, a configuration, a partner with
//! its sessions and recipients.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bank::{ACCOUNTS, SharedBank};
use crate::crash::recipients::{Kind, Recipients};
use crate::dice::Dice;
use crate::scenes::served::{self, ServedProcess};

const PASSWORD: &str = "a password of the drill";
/// What the provider and the partner have, by the id of the deposit: asset and minor units.
const DEPOSITS: [(&str, &str, i64); 3] = [
    ("opening-usd", "USD", 100_000_000_000),
    ("opening-eur", "EUR", 100_000_000_000),
    ("wire-1", "USD", 100_000_000_000),
];

/// Euros beside the market.
const EUROS: &str = r#"
[[assets]]
symbol = "EUR"
exponent = 2
currency = "EUR"
[[pairs]]
base = "USD"
quote = "EUR"
reference_price = "0.92"
protocol_fee_bps = 5
payout_fee_minor = "50"
"#;

pub(super) struct Ground {
    pub(super) service: served::Ground,
    pub(super) bank: SharedBank,
    pub(super) recipients: Recipients,
    /// What a client knows, without the addresses of a process.
    pub(super) known: Value,
}

impl Ground {
    pub(super) async fn prepare(
        binary: PathBuf,
        dir: &Path,
        sessions: usize,
        authority: &str,
        dice: Dice,
    ) -> anyhow::Result<Self> {
        let service = served::Ground::at(binary, dir).await;
        service.write("receiver.pem", authority);
        service.write("password", PASSWORD);
        service.write("dvp.toml", &configured(&service));
        let bank = SharedBank::start(&service.path("bank"), &DEPOSITS, dice).await?;
        let known = furnish(&service, sessions).await;
        let recipients = Recipients::register(Kind::All, &|words| Ok(service.said(words)))?;
        Ok(Self { service, bank, recipients, known })
    }

    pub(super) fn serve(&self, log: &str) -> ServedProcess {
        let command = self.service.dvp("dvp.toml", &["serve", "--roles", "api,fix,indexer,worker"]);
        ServedProcess::start(command, self.service.path(log))
    }
}

fn configured(service: &served::Ground) -> String {
    let account = |(currency, number): (&str, &str)| {
        format!(
            "{{ name = \"DVP Drill\", currency = \"{currency}\", account = \"{number}\", bic = \"SANDDEFF\", \
             country = \"DE\" }}"
        )
    };
    let accounts = ACCOUNTS.map(account).join(", ");
    let [bank, authority] = ["bank", "receiver.pem"].map(|name| service.path(name).display().to_string());
    let config = service.configured(&[("payout = \"simulated\"", "payout = \"bank_files\"".to_owned())]);
    format!(
        r#"{config}{EUROS}
[fix.forward]
listen = "127.0.0.1:0"
[webhooks]
ca = "{authority}"
allow_private = true
[bank]
folder = "{bank}"
settles_after = "1s"
accounts = [{accounts}]
"#
    )
}

/// Creates the schema, the partner with its key, balances and sessions. Returns what a client knows of them.
async fn furnish(service: &served::Ground, sessions: usize) -> Value {
    // One orders over REST and one over FIX.
    let wallets = [service.accounts[4].clone(), service.accounts[7].clone()];
    service.fund(&service.deployment, &wallets, 1_000_000_000_000).await;
    service.said(&["migrate"]);
    service.said(&["bank", "folder", "stamp"]);
    service.said(&["partner", "create", "--name", "acme", "--tier", "enterprise", "--limit", "600000"]);
    for (id, asset, amount) in DEPOSITS {
        let owner = match id {
            "wire-1" => ["partner", "deposit", "--name", "acme"],
            _ => ["provider", "deposit", "--provider", "north"],
        };
        let deposit = ["--asset", asset, "--amount-minor", &amount.to_string(), "--id", id];
        service.said(&[&owner[..], &deposit].concat());
    }
    let key = service.said(&["key", "issue", "--partner", "acme", "--env", "test"]);
    let password = format!("file:{}", service.path("password").display());
    let mut known = Vec::new();
    for n in 0..sessions {
        let begin_string = if n % 2 == 0 { "FIX.4.4" } else { "FIX.4.2" };
        let comp_id = format!("ACME{n}");
        let add = ["fix-session", "add", "--begin-string", begin_string, "--sender-comp-id", &comp_id];
        service.said(&[&add[..], &["--partner", "acme", "--password", &password]].concat());
        known.push(json!({
            "beginString": begin_string, "senderCompId": comp_id, "username": "acme", "password": PASSWORD,
        }));
    }
    let mut seen = service.seen("", &key, &service.deployment, &wallets);
    seen["fix"] = json!({ "sessions": known });
    seen
}
