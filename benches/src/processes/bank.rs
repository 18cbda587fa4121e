//! The bank at the other end of the folder that all processes share. It misbehaves by the account, and beside that it
//! sends answers of before again, now and then: the same file, and the same words in another message, after later ones.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use dvp_rails::iso20022::folder::drop_into;
use dvp_rails::iso20022::schema::Message;
use dvp_sandbox::bank::Bank;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::dice::Dice;

/// Currency and number of the accounts that are paid from.
pub(super) const ACCOUNTS: [(&str, &str); 2] = [("USD", "400500600"), ("EUR", "DE89370400440532013000")];
/// What the bank says that can be said in another message: of its statements there is one each.
const WORDS: [Message; 2] = [Message::Pain002, Message::Camt054];

pub(super) struct SharedBank {
    pub(super) root: PathBuf,
    stop: watch::Sender<bool>,
    bank: JoinHandle<()>,
    /// Returns how many answers were sent again.
    echo: JoinHandle<anyhow::Result<usize>>,
}

impl SharedBank {
    /// `deposits`: reference, currency and amount of what the accounts hold at first.
    pub(super) async fn start(
        root: &Path,
        deposits: &[(&str, &str, i64)],
        dice: Dice,
    ) -> anyhow::Result<Self> {
        let accounts = ACCOUNTS.map(|(currency, number)| (currency.to_owned(), number.to_owned()));
        let bank = Bank::open_with_accounts(root, accounts.to_vec()).await?;
        for (reference, currency, amount) in deposits {
            bank.deposit(reference, currency, *amount).await?;
        }
        let stop = watch::Sender::new(false);
        let bank = tokio::spawn(bank.run(stop.subscribe()));
        let echo = tokio::spawn(echo(root.to_owned(), dice, stop.subscribe()));
        Ok(Self { root: root.to_owned(), stop, bank, echo })
    }

    /// Away, no process can move a file to the bank, as when the share of its folder is gone.
    pub(super) fn move_outbox(&self, is_away: bool) -> anyhow::Result<()> {
        let [here, away] = ["outbox", "away"].map(|name| self.root.join(name));
        let (from, to) = if is_away { (here, away) } else { (away, here) };
        std::fs::rename(from, to).context("the outbox")
    }

    /// Whether a payment's file was moved to the bank.
    pub(super) fn is_given(&self, end_to_end_id: &str) -> bool {
        let name = format!("{end_to_end_id}.xml");
        ["outbox", "bank"].iter().any(|part| self.root.join(part).join(&name).exists())
    }

    /// Stops it. Returns how many answers it sent again.
    pub(super) async fn end(&mut self) -> anyhow::Result<usize> {
        self.stop.send_replace(true);
        (&mut self.bank).await?;
        (&mut self.echo).await?
    }
}

impl Drop for SharedBank {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn echo(root: PathBuf, mut dice: Dice, mut stop: watch::Receiver<bool>) -> anyhow::Result<usize> {
    let mut sent = 0;
    while !*stop.borrow() {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(100 + dice.roll(900))) => {}
            _ = stop.changed() => continue,
        }
        let mut archived = Vec::new();
        for entry in std::fs::read_dir(root.join("archive"))? {
            archived.push(entry?.file_name().to_string_lossy().into_owned());
        }
        // The order of a directory is none that a seed gives again.
        archived.sort();
        let Some(name) = archived.get(dice.index(archived.len())) else { continue };
        let mut content = String::from_utf8(std::fs::read(root.join("archive").join(name))?)?;
        if WORDS.iter().any(|message| content.contains(&message.namespace())) && dice.roll(2) == 0 {
            content = in_another_message(&content, sent)?;
        }
        drop_into(&root.join("inbox"), &format!("later-{sent}-{name}"), content.as_bytes()).await?;
        sent += 1;
    }
    Ok(sent)
}

/// The same words under another id of the message: a file of its own.
fn in_another_message(content: &str, number: usize) -> anyhow::Result<String> {
    let (before, rest) = content.split_once("<MsgId>").context("a message without its id")?;
    let (_, after) = rest.split_once("</MsgId>").context("a message without its id")?;
    let other = format!("{before}<MsgId>LATER{number}</MsgId>{after}");
    ensure!(other != content, "the message is the same");
    Ok(other)
}
