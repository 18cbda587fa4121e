//! The bank's own books: what it has booked lies in a folder, survives every crash, and is on one statement each.
//!
//! ```text
//! books/*.json ── statements/CUR-n.json ──> inbox/statement-CUR-n.xml
//!       └─> stated/
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use dvp_rails::iso20022::folder::drop_into;
use dvp_store::database::clock;
use tokio::fs;

use super::profile::Profile;
use super::statement::{Line, StatementOf};

/// So long after an entry the statement that has it is written.
const STATED_AFTER: Duration = Duration::from_secs(1);

/// Accounts with their entries.
#[derive(Debug, Clone)]
pub(super) struct Books {
    root: PathBuf,
    /// Currency and number.
    accounts: Vec<(String, String)>,
    pub(super) profile: Option<Arc<Profile>>,
}

fn json<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(io::Error::other)
}

impl Books {
    pub(super) async fn open(root: &Path, accounts: Vec<(String, String)>) -> io::Result<Self> {
        let root = root.join("bank").join("books");
        for part in ["entries", "stated", "statements"] {
            fs::create_dir_all(root.join(part)).await?;
        }
        Ok(Self { root, accounts, profile: None })
    }

    /// Books once under a name.
    pub(super) async fn book(&self, name: &str, line: &Line) -> io::Result<()> {
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let name = format!("{name}.json");
        if fs::try_exists(self.root.join("stated").join(&name)).await? {
            return Ok(());
        }
        let content = serde_json::to_vec(line).map_err(io::Error::other)?;
        drop_into(&self.root.join("entries"), &name, &content).await
    }

    /// Whether every entry is on a statement.
    pub(super) async fn is_stated(&self) -> io::Result<bool> {
        Ok(fs::read_dir(self.root.join("entries")).await?.next_entry().await?.is_none())
    }

    /// The statements so far, by time.
    pub(super) async fn sent(&self) -> io::Result<Vec<StatementOf>> {
        let (mut all, mut entries) = (Vec::new(), fs::read_dir(self.root.join("statements")).await?);
        while let Some(entry) = entries.next_entry().await? {
            // What is still being written has a dot at its beginning.
            if !entry.file_name().to_string_lossy().starts_with('.') {
                let (statement, _): (StatementOf, Vec<String>) = json(&fs::read(entry.path()).await?)?;
                all.push(statement);
            }
        }
        all.sort_by_key(|statement| statement.from);
        Ok(all)
    }

    /// Writes the statements that are due.
    pub(super) async fn state(&self, inbox: &Path) -> io::Result<()> {
        let mut open: BTreeMap<(DateTime<Utc>, String), Line> = BTreeMap::new();
        let mut entries = fs::read_dir(self.root.join("entries")).await?;
        while let Some(entry) = entries.next_entry().await? {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".json") && !name.starts_with('.') {
                let line: Line = json(&fs::read(entry.path()).await?)?;
                open.insert((line.at, name), line);
            }
        }
        for (currency, account) in &self.accounts {
            self.state_account(currency, account, &open, inbox).await?;
        }
        Ok(())
    }

    async fn state_account(
        &self,
        currency: &str,
        account: &str,
        open: &BTreeMap<(DateTime<Utc>, String), Line>,
        inbox: &Path,
    ) -> io::Result<()> {
        let statements = self.root.join("statements");
        let path = |number: u32| statements.join(format!("{currency}-{number}.json"));
        let mut number = 0;
        while fs::try_exists(path(number + 1)).await? {
            number += 1;
        }
        let last: Option<(StatementOf, Vec<String>)> =
            if number == 0 { None } else { Some(json(&fs::read(path(number)).await?)?) };
        // A statement that a crash has left half done.
        if let Some((statement, names)) = &last {
            self.send(statement, names, inbox).await?;
        }
        let stated = last.as_ref().map(|(_, names)| names.as_slice()).unwrap_or_default();
        let mine =
            open.iter().filter(|((_, name), line)| line.currency == currency && !stated.contains(name));
        let mine: Vec<(&String, &Line)> = mine.map(|((_, name), line)| (name, line)).collect();
        let now = clock::now().to_utc();
        let wait = TimeDelta::from_std(STATED_AFTER).map_err(io::Error::other)?;
        if !mine.iter().any(|(_, line)| line.at + wait <= now) {
            return Ok(());
        }
        let before = last.map(|(statement, _)| statement);
        let first = mine.first().map_or(now, |(_, line)| line.at);
        let statement = StatementOf {
            account: account.to_owned(),
            currency: currency.to_owned(),
            id: format!("{currency}-{}", number + 1),
            from: before.as_ref().map_or(first, |before| before.to),
            to: now,
            opening: before.as_ref().map_or(0, StatementOf::closing),
            lines: mine.iter().map(|(_, line)| (*line).clone()).collect(),
        };
        let names: Vec<String> = mine.iter().map(|(name, _)| (*name).clone()).collect();
        let content = serde_json::to_vec(&(&statement, &names)).map_err(io::Error::other)?;
        drop_into(&statements, &format!("{currency}-{}.json", number + 1), &content).await?;
        self.send(&statement, &names, inbox).await
    }

    /// Sends a statement, and puts its entries away. Again changes nothing: the last entry is put away last.
    async fn send(&self, statement: &StatementOf, names: &[String], inbox: &Path) -> io::Result<()> {
        let mut is_first = true;
        for name in names {
            let from = self.root.join("entries").join(name);
            if !fs::try_exists(&from).await? {
                continue;
            }
            if std::mem::take(&mut is_first) {
                let (file, content) = (format!("statement-{}.xml", statement.id), statement.render());
                let plain = || vec![("", content.clone().into_bytes())];
                let written = self.profile.as_ref().map_or_else(plain, |profile| profile.files(&content));
                for (before, content) in written {
                    drop_into(inbox, &format!("{before}{file}"), &content).await?;
                }
            }
            fs::rename(from, self.root.join("stated").join(name)).await?;
        }
        Ok(())
    }
}
