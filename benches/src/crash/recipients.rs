//! The recipients of payouts. The last four characters of an account select the bank's behaviour.

use std::sync::Arc;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::process::text;
use crate::dice::Dice;

/// Mostly well-behaved. The simulated rails do the conversion, too.
const SIMULATED: [&str; 9] = ["0000", "0000", "0000", "0001", "0002", "0003", "0004", "0005", "0006"];
/// Of the bank in files. Nothing here stays without its end.
const BANK: [&str; 10] = ["0000", "0001", "0002", "0004", "0005", "0009", "0010", "0011", "0012", RETURNED];
/// Of the bank in files, those that it answers within a few seconds.
const PROMPT: [&str; 5] = ["0000", "0000", "0001", "0002", RETURNED];
/// The bank gives these payments back, of all that it makes.
pub(super) const RETURNED: &str = "0013";
/// The bank is silent about these for longer than any other.
const SILENT: &str = "0014";

type Command<'a> = &'a dyn Fn(&[&str]) -> anyhow::Result<Value>;

#[derive(Debug, Clone)]
pub(crate) struct Recipient {
    /// `bene_…:dest_…`
    pub name: String,
    /// The same account with all that an order can say of it in place of the name.
    pub details: Option<Value>,
    pub is_returned: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Recipients {
    usd: Arc<[Recipient]>,
    eur: Arc<[Recipient]>,
    /// For euros: one of those, and one that the bank is silent about.
    firsts: Arc<[Recipient]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Those that the simulated rails know without a registry.
    Simulated,
    /// Those that the bank in files is done with in a few seconds.
    Prompt,
    /// All that it has an end for, and one that it is silent about for long.
    All,
}

impl Recipients {
    pub(crate) fn register(kind: Kind, command: Command<'_>) -> anyhow::Result<Self> {
        match kind {
            Kind::Simulated => Ok(Self::simulated()),
            Kind::Prompt => Self::register_these(command, &PROMPT),
            Kind::All => {
                let recipients = Self::register_these(command, &BANK)?;
                let returned = recipients.eur.iter().find(|one| one.is_returned).context("no recipient")?;
                Ok(Self { firsts: [returned.clone(), in_euros(command, SILENT)?].into(), ..recipients })
            }
        }
    }

    pub(crate) fn simulated() -> Self {
        let all: Arc<[Recipient]> = SIMULATED
            .map(|last| {
                let name = format!("bene_drill:dest_1000{last}");
                Recipient { name, details: None, is_returned: false }
            })
            .into();
        Self { usd: Arc::clone(&all), eur: all, firsts: Arc::default() }
    }

    /// One in dollars and one in euros that the bank pays at once, for a bank in files.
    pub(crate) fn register_straight(command: Command<'_>) -> anyhow::Result<[String; 2]> {
        let Self { usd, eur, .. } = Self::register_these(command, &["0000"])?;
        let name = |all: &[Recipient]| all.first().map(|one| one.name.clone()).context("no recipient");
        Ok([name(&usd)?, name(&eur)?])
    }

    /// Enters them into the registry by one operator and has another verify them.
    fn register_these(command: Command<'_>, accounts: &[&str]) -> anyhow::Result<Self> {
        let in_dollars = |last: &&str| {
            let account = format!("00012345{last}");
            let details = json!({
                "account": account, "name": "Jane Doe", "country": "US", "payoutMethod": "ach",
                "bank": "USABA021000021",
            });
            registered(command, "USD", details)
        };
        Ok(Self {
            usd: accounts.iter().map(in_dollars).collect::<anyhow::Result<_>>()?,
            eur: accounts.iter().map(|last| in_euros(command, last)).collect::<anyhow::Result<_>>()?,
            firsts: Arc::default(),
        })
    }

    /// The account of a recipient that an order names by the registry's ids or by the account itself.
    pub(super) fn account(&self, named: &str) -> String {
        let mut all = self.usd.iter().chain(&*self.eur).chain(&*self.firsts);
        let details = all.find(|one| one.name == named).and_then(|one| one.details.as_ref());
        let account = details.and_then(|details| details["account"].as_str());
        account.unwrap_or(named).to_owned()
    }

    /// The recipient of the first order for euros of a caller: a silence is long, so it begins early.
    pub(super) fn first(&self, caller: u64, dice: &mut Dice) -> anyhow::Result<&Recipient> {
        match self.firsts.get(usize::try_from(caller)?) {
            Some(first) => Ok(first),
            None => self.pick("EUR", dice),
        }
    }

    pub(crate) fn pick(&self, currency: &str, dice: &mut Dice) -> anyhow::Result<&Recipient> {
        let all = if currency == "USD" { &self.usd } else { &self.eur };
        all.get(dice.index(all.len())).context("no recipient")
    }
}

fn in_euros(command: Command<'_>, last: &str) -> anyhow::Result<Recipient> {
    let account = german_iban(&format!("37040044053201{last}"))?;
    let details = json!({"account": account, "name": "Jane Doe", "country": "DE", "payoutMethod": "sepa"});
    registered(command, "EUR", details)
}

fn registered(command: Command<'_>, currency: &str, details: Value) -> anyhow::Result<Recipient> {
    let detail = |name: &str| text(&details, &format!("/{name}"));
    let mut enter = vec!["beneficiary", "create", "--partner", "acme", "--as", "jo"];
    enter.extend(["--currency", currency, "--name", detail("name")?, "--country", detail("country")?]);
    enter.extend(["--account", detail("account")?, "--method", detail("payoutMethod")?]);
    if let Ok(bank) = detail("bank") {
        enter.extend(["--bank", bank]);
    }
    let entered = command(&enter)?;
    let destination = text(&entered, "/destinationId")?;
    let verify = ["beneficiary", "verify", "--destination", destination, "--as", "kim"];
    command(&[&verify[..], &["--evidence", "call to its owner"]].concat())?;
    let is_returned = detail("account")?.ends_with(RETURNED);
    Ok(Recipient { name: text(&entered, "/account")?.to_owned(), details: Some(details), is_returned })
}

/// With its check digits (ISO 13616).
fn german_iban(bban: &str) -> anyhow::Result<String> {
    let number: u128 = format!("{bban}131400").parse()?;
    Ok(format!("DE{:02}{bban}", 98 - number % 97))
}
