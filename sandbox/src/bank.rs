//! A bank at the other end of the folder that behaves badly on purpose, by the last four characters of the creditor's
//! account. It is an external system: its received orders are in a folder of its own, survives every crash,
//! and it pays each order it receives, so that a second one would be seen.
//!
//! | account | reports |
//! |---|---|
//! | …0001 | accepted at once, settled after about 2 s |
//! | …0002 | refused: the account is closed (AC04) |
//! | …0004 | nothing for about 3 s, then settled, said three times |
//! | …0005 | garbage, half a file, then settled |
//! | …0007 | nothing, ever |
//! | …0009 | a report that is partly accepted, with this payment settled and a foreign one refused |
//! | …0010 | settled, then refused |
//! | …0011 | another amount booked, then the right one |
//! | …0012 | taken for a duplicate, then settled |
//! | …0013 | settled, then returned |
//! | …0014 | nothing for about 25 s, then settled and booked |
//! | …0041 | accepted at once, settled and booked at 08:00 UTC of the next business day |
//! | …0042 | settled, then returned after three days |
//! | …0027 | booked, then an answer to a recall that nobody requested |
//! | else | accepted, then booked (camt.054); an instant payment is settled at once |
//!
//! A bank that verifies payees says first what it has found, and the rest only once the payment is released: …0031 has
//! another holder, …0032 one of nearly the name, …0033 cannot be compared, all others match.
//!
//! It answers recalls by the account, too (`bank/recalls.rs`).
//!
//! With accounts it keeps books, and sends a statement (camt.053) a second after each change.

mod books;
pub mod profile;
mod recalls;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use tokio::fs;
use tokio::sync::watch;
use tracing::warn;

use self::books::Books;
use self::profile::Profile;
use self::recalls::Recall;
use self::statement::{Line, StatementOf};

use dvp_domain::calendar::Calendar;
pub use dvp_rails::iso20022::camt053 as statement;
use dvp_rails::iso20022::folder::{Folder, drop_into};
use dvp_rails::iso20022::schema::{Message, check, exponent};
use dvp_rails::iso20022::text::minor;
use dvp_rails::iso20022::xml::{Document, Node};
use dvp_store::database::clock;

/// When …0041 is paid, and …0042 comes back.
const OPENS_AT: NaiveTime = NaiveTime::from_hms_opt(8, 0, 0).unwrap();
const DAYS_TO_RETURN: TimeDelta = TimeDelta::days(3);

#[derive(Debug, Clone)]
pub struct Bank {
    folder: Folder,
    /// The orders it has received, and in a folder of their own the recalls.
    received: PathBuf,
    recalls: PathBuf,
    /// What it was answered when it asked for money back, which it leaves as it is.
    answers: PathBuf,
    books: Option<Books>,
    profile: Option<Arc<Profile>>,
}

/// A report that the bank sends at a delay after it received the order.
struct Reply {
    after: Duration,
    content: String,
    /// By this much the account's balance changes then, in minor units.
    booked: Option<Line>,
}

/// The fields of an order that the bank uses.
#[derive(Clone)]
struct Order {
    message_id: String,
    block_id: String,
    end_to_end_id: String,
    account: String,
    amount: String,
    currency: String,
    is_instant: bool,
}

impl Bank {
    /// `root` is the folder shared with it.
    pub async fn open(root: &Path) -> io::Result<Self> {
        let received = root.join("bank");
        let (recalls, answers) = (received.join("recalls"), received.join("answers"));
        fs::create_dir_all(&recalls).await?;
        fs::create_dir_all(&answers).await?;
        Folder::create_parts(root)?;
        Ok(Self { folder: Folder::at(root, None), received, recalls, answers, books: None, profile: None })
    }

    /// The same with books: its accounts by currency, and their numbers. It sends statements of them.
    pub async fn open_with_accounts(root: &Path, accounts: Vec<(String, String)>) -> io::Result<Self> {
        let books = Books::open(root, accounts).await?;
        Ok(Self { books: Some(books), ..Self::open(root).await? })
    }

    /// The same bank, with files as a real one writes them.
    #[must_use]
    pub fn as_profile(mut self, profile: Profile) -> Self {
        self.profile = Some(Arc::new(profile));
        if let Some(books) = &mut self.books {
            books.profile.clone_from(&self.profile);
        }
        self
    }

    /// Whether everything that it has to say is in the service's hands.
    pub async fn is_quiet(&self) -> io::Result<bool> {
        for (name, since) in files(&self.received).await? {
            for n in 0..self.replies(&name, since).await?.len() {
                if !fs::try_exists(self.received.join(format!("{name}.said{n}"))).await? {
                    return Ok(false);
                }
            }
        }
        let is_stated = match &self.books {
            Some(books) => books.is_stated().await?,
            None => true,
        };
        Ok(is_stated && fs::read_dir(self.folder.inbox()).await?.next_entry().await?.is_none())
    }

    /// The statements that it has sent.
    pub async fn statements(&self) -> io::Result<Vec<StatementOf>> {
        match &self.books {
            Some(books) => books.sent().await,
            None => Ok(Vec::new()),
        }
    }

    /// Money comes in, once under a reference.
    pub async fn deposit(&self, reference: &str, currency: &str, amount: i64) -> io::Result<()> {
        let Some(books) = &self.books else { return Ok(()) };
        let line = Line {
            currency: currency.to_owned(),
            amount,
            end_to_end_id: None,
            bank_reference: format!("IN{amount}"),
            text: Some(reference.to_owned()),
            at: clock::now().to_utc(),
        };
        books.book(reference, &line).await
    }

    /// Works until `stop` turns true.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            if let Err(error) = self.turn().await {
                warn!(%error, "simulated bank failed, will retry");
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Receives the orders and recalls in the outbox, and sends the reports that are due.
    pub async fn turn(&self) -> io::Result<()> {
        let mut orders = fs::read_dir(self.folder.outbox()).await?;
        while let Some(entry) = orders.next_entry().await? {
            // As a bank's poller does, it leaves what is still being written, and the service's probes.
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let received = match recalls::message_of(&fs::read(entry.path()).await?) {
                Some(Message::Camt056) => &self.recalls,
                Some(Message::Camt029) => &self.answers,
                _ => &self.received,
            };
            // The name says whether payees are verified.
            let name = entry.file_name().to_string_lossy().replace(".voi.", ".").replace(".voo.", ".");
            let mut to = received.join(&name);
            // The same order again is paid again.
            for n in 2.. {
                if !fs::try_exists(&to).await? {
                    break;
                }
                to = received.join(format!("again-{n}-{name}"));
            }
            fs::rename(entry.path(), &to).await?;
            if clock::ahead() != 0 {
                let opened = fs::File::options().write(true).open(&to).await?.into_std().await;
                opened.set_modified(clock::now().to_utc().into())?;
            }
        }
        for (name, since) in files(&self.received).await? {
            let replies = self.replies(&name, since).await?;
            self.answer(&self.received, &name, since, replies).await?;
        }
        for (name, since) in files(&self.recalls).await? {
            let content = fs::read(self.recalls.join(&name)).await?;
            let replies = match self.recall(&content).await? {
                Some(recall) => recall.replies(since.into()),
                None => vec![Reply::error()],
            };
            self.answer(&self.recalls, &name, since, replies).await?;
        }
        if let Some(books) = &self.books {
            books.state(&self.folder.inbox()).await?;
        }
        Ok(())
    }

    /// What it says of an order.
    async fn replies(&self, name: &str, since: SystemTime) -> io::Result<Vec<Reply>> {
        let content = fs::read(self.received.join(name)).await?;
        let verifies = self.profile.as_ref().is_some_and(|profile| profile.verifies_payees);
        let Some(order) = Order::read(&content).filter(|_| verifies) else {
            return Ok(replies(&content, since.into()));
        };
        let verified = Reply { after: Duration::ZERO, content: order.verified(since.into()), booked: None };
        let release = self.received.join(format!("{}.release", order.end_to_end_id));
        let released = match fs::metadata(release).await {
            Ok(found) => found.modified()?.max(since),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![verified]),
            Err(error) => return Err(error),
        };
        let later = released.duration_since(since).unwrap_or_default();
        let rest = replies(&content, released.into());
        let rest = rest.into_iter().map(|reply| Reply { after: later + reply.after, ..reply });
        Ok([verified].into_iter().chain(rest).collect())
    }

    /// A recall of an order that it has received.
    async fn recall(&self, content: &[u8]) -> io::Result<Option<Recall>> {
        let Some((end_to_end_id, case, name)) = recalls::named(content) else { return Ok(None) };
        let order = match fs::read(self.received.join(format!("{end_to_end_id}.xml"))).await {
            Ok(order) => Order::read(&order),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(order.map(|order| Recall::new(case, name, order)))
    }

    /// How many orders it has received: each was paid or refused.
    pub async fn count_received(&self) -> io::Result<usize> {
        Ok(files(&self.received).await?.len())
    }

    pub async fn count_recalls(&self) -> io::Result<usize> {
        Ok(files(&self.recalls).await?.len())
    }

    async fn answer(
        &self,
        folder: &Path,
        name: &str,
        since: SystemTime,
        replies: Vec<Reply>,
    ) -> io::Result<()> {
        let age = SystemTime::from(clock::now().to_utc()).duration_since(since).unwrap_or_default();
        for (n, reply) in replies.into_iter().enumerate() {
            let said = folder.join(format!("{name}.said{n}"));
            let late = self.profile.as_ref().map_or(0, |profile| profile.late_ms);
            if reply.after + Duration::from_millis(late) <= age && !fs::try_exists(&said).await? {
                if let (Some(books), Some(line)) = (&self.books, &reply.booked) {
                    self.book(books, &format!("{n}-{name}"), line).await?;
                }
                let plain = || vec![("", reply.content.clone().into_bytes())];
                let written = self.profile.as_ref().map_or_else(plain, |one| one.files(&reply.content));
                for (before, content) in written {
                    drop_into(&self.folder.inbox(), &format!("{before}{n}-{name}"), &content).await?;
                }
                fs::write(&said, b"").await?;
            }
        }
        Ok(())
    }
}

impl Bank {
    /// Books a payment or its return, with what the bank keeps.
    async fn book(&self, books: &Books, name: &str, line: &Line) -> io::Result<()> {
        let Some(profile) = &self.profile else { return books.book(name, line).await };
        let amount = if line.amount > 0 { line.amount - profile.return_deducts_minor } else { line.amount };
        books.book(name, &Line { amount, ..line.clone() }).await?;
        if line.amount > 0 || profile.charge_minor == 0 {
            return Ok(());
        }
        let bank_reference = format!("FEE{}", line.bank_reference);
        let (end_to_end_id, amount) = (None, -profile.charge_minor);
        let text = Some("charges".to_owned());
        let charge = Line { end_to_end_id, bank_reference, amount, text, ..line.clone() };
        books.book(&format!("fee-{name}"), &charge).await
    }
}

fn millis(delta: TimeDelta) -> u64 {
    u64::try_from(delta.num_milliseconds()).unwrap_or_default()
}

/// The received files of a folder, and since when they are there.
async fn files(folder: &Path) -> io::Result<Vec<(String, SystemTime)>> {
    let (mut found, mut entries) = (Vec::new(), fs::read_dir(folder).await?);
    while let Some(entry) = entries.next_entry().await? {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".xml") {
            found.push((name, entry.metadata().await?.modified()?));
        }
    }
    Ok(found)
}

impl Reply {
    /// To a file that the bank cannot read.
    fn error() -> Self {
        let content = "<html>500 Internal Server Error".to_owned();
        Self { after: Duration::ZERO, content, booked: None }
    }
}

fn replies(content: &[u8], at: DateTime<Utc>) -> Vec<Reply> {
    let Some(order) = Order::read(content) else { return vec![Reply::error()] };
    let report = |status: &str, reason: Option<&str>| order.report(status, reason, at);
    let settled = || report("ACSC", None);
    let booked = || order.booked(&order.amount, None, at);
    let opening = Calendar::Both.business_day_after(at.date_naive(), 1).and_time(OPENS_AT).and_utc();
    let until_opening = millis(opening - at);
    // When the account is debited and credited again, by the number of what is said then.
    let (script, debited, credited): (Vec<(u64, String)>, _, _) = match order.suffix() {
        "0001" => (vec![(0, report("ACSP", None)), (2_000, settled())], Some(1), None),
        "0002" => (vec![(0, report("RJCT", Some("AC04")))], None, None),
        "0004" => (vec![(3_000, settled()), (3_000, booked()), (3_200, settled())], Some(0), None),
        "0005" => {
            let half: String = settled().chars().take(200).collect();
            let script = vec![(0, "garbage \u{0} & <".to_owned()), (100, half), (400, settled())];
            (script, Some(2), None)
        }
        "0007" => (Vec::new(), None, None),
        "0009" => (vec![(0, order.partly(at))], Some(0), None),
        "0010" => (vec![(0, settled()), (600, report("RJCT", Some("AC01")))], Some(0), None),
        "0011" => (vec![(0, order.booked("0.01", None, at)), (500, booked())], Some(1), None),
        "0012" => (vec![(0, report("RJCT", Some("AM05"))), (600, settled())], Some(1), None),
        "0013" => {
            let returned = order.booked(&order.amount, Some("AC04"), at);
            (vec![(0, settled()), (600, returned)], Some(0), Some(1))
        }
        "0014" => (vec![(25_000, settled()), (25_000, booked())], Some(0), None),
        "0041" => {
            let late = order.booked(&order.amount, None, opening);
            (vec![(0, report("ACSP", None)), (until_opening, late)], Some(1), None)
        }
        "0042" => {
            let returned = order.booked(&order.amount, Some("AC04"), at + DAYS_TO_RETURN);
            (vec![(0, settled()), (millis(DAYS_TO_RETURN), returned)], Some(0), Some(1))
        }
        "0027" => (vec![(0, booked()), (300, recalls::never_requested(&order, at))], Some(0), None),
        _ if order.is_instant => (vec![(0, settled()), (200, booked())], Some(0), None),
        _ => (vec![(0, report("ACSP", None)), (200, booked())], Some(1), None),
    };
    script
        .into_iter()
        .enumerate()
        .map(|(n, (after, content))| {
            let sign = i64::from(credited == Some(n)) - i64::from(debited == Some(n));
            let booked = (sign != 0).then(|| order.line(sign)).flatten();
            Reply { after: Duration::from_millis(after), content, booked }
        })
        .collect()
}

impl Order {
    /// Reads an order as a bank does: an order that violates the schema is refused.
    fn read(content: &[u8]) -> Option<Self> {
        let document = Document::read(content).ok()?;
        if !check(Message::Pain001, &document).is_empty() {
            return None;
        }
        let body = document.root.child("CstmrCdtTrfInitn")?;
        let block = body.child("PmtInf")?;
        let payment = block.child("CdtTrfTxInf")?;
        let amount = payment.at("Amt/InstdAmt")?;
        let account =
            payment.text_at("CdtrAcct/Id/IBAN").or_else(|| payment.text_at("CdtrAcct/Id/Othr/Id"))?;
        Some(Self {
            message_id: body.text_at("GrpHdr/MsgId")?.to_owned(),
            block_id: block.text_at("PmtInfId")?.to_owned(),
            end_to_end_id: payment.text_at("PmtId/EndToEndId")?.to_owned(),
            account: account.to_owned(),
            amount: amount.text.clone(),
            currency: amount.attribute("Ccy")?.to_owned(),
            is_instant: block.text_at("PmtTpInf/LclInstrm/Cd") == Some("INST"),
        })
    }

    /// The last four characters of the account, which select how the bank behaves.
    fn suffix(&self) -> &str {
        self.account.get(self.account.len().saturating_sub(4)..).unwrap_or_default()
    }

    /// The entry of the account's statement.
    fn line(&self, sign: i64) -> Option<Line> {
        let amount = minor(&self.amount, exponent(&self.currency))?;
        Some(Line {
            currency: self.currency.clone(),
            amount: sign.checked_mul(i64::try_from(amount.get()).ok()?)?,
            end_to_end_id: Some(self.end_to_end_id.clone()),
            bank_reference: self.bank_reference(),
            text: None,
            at: clock::now().to_utc(),
        })
    }

    fn report(&self, status: &str, reason: Option<&str>, at: DateTime<Utc>) -> String {
        self.report_of("ACCP", vec![self.transaction(&self.end_to_end_id, status, reason)], at)
    }

    /// What the beneficiary's bank says of the account's holder.
    fn verified(&self, at: DateTime<Utc>) -> String {
        let (code, name) = match self.suffix() {
            "0031" => ("RVNM", None),
            "0032" => ("RVMC", Some("RVMC Janet Doe")),
            "0033" => ("RVNA", None),
            _ => ("RCVC", None),
        };
        let mut payment = self.transaction(&self.end_to_end_id, code, None);
        payment.children.extend(name.map(|name| Node::leaf("StsRsnInf/AddtlInf", name)));
        self.report_of(if code == "RCVC" { code } else { "RVCM" }, vec![payment], at)
    }

    fn partly(&self, at: DateTime<Utc>) -> String {
        let foreign = self.transaction("SOMEBODY-ELSES", "RJCT", Some("AC01"));
        self.report_of("PART", vec![foreign, self.transaction(&self.end_to_end_id, "ACSC", None)], at)
    }

    fn transaction(&self, id: &str, status: &str, reason: Option<&str>) -> Node {
        let mut children = vec![Node::leaf("OrgnlEndToEndId", id), Node::leaf("TxSts", status)];
        children.extend(reason.map(|code| Node::leaf("StsRsnInf/Rsn/Cd", code)));
        if status == "ACSC" {
            children.push(Node::leaf("AcctSvcrRef", self.bank_reference()));
        }
        Node::of("TxInfAndSts", children)
    }

    fn bank_reference(&self) -> String {
        format!("BK{}", self.end_to_end_id.chars().take(16).collect::<String>())
    }

    fn report_of(&self, group: &str, transactions: Vec<Node>, at: DateTime<Utc>) -> String {
        let block = [Node::leaf("OrgnlPmtInfId", self.block_id.clone())].into_iter().chain(transactions);
        let children = [
            self.header("S", at),
            Node::of(
                "OrgnlGrpInfAndSts",
                [
                    Node::leaf("OrgnlMsgId", self.message_id.clone()),
                    Node::leaf("OrgnlMsgNmId", Message::Pain001.name()),
                    Node::leaf("GrpSts", group),
                ],
            ),
            Node::of("OrgnlPmtInfAndSts", block),
        ];
        Message::Pain002.document("CstmrPmtStsRpt", children).render()
    }

    fn header(&self, kind: &str, at: DateTime<Utc>) -> Node {
        let time = at.format("%Y-%m-%dT%H:%M:%S").to_string();
        Node::of(
            "GrpHdr",
            [Node::leaf("MsgId", format!("{kind}{}", self.end_to_end_id)), Node::leaf("CreDtTm", time)],
        )
    }

    /// A debit that was booked, or a credit that gives it back for a reason.
    fn booked(&self, amount: &str, returned: Option<&str>, at: DateTime<Utc>) -> String {
        let money = |name| Node::leaf(name, amount).with_attribute("Ccy", &self.currency);
        let refs = Node::of(
            "Refs",
            [
                Node::leaf("AcctSvcrRef", self.bank_reference()),
                Node::leaf("EndToEndId", self.end_to_end_id.clone()),
            ],
        );
        let mut payment = vec![refs, money("Amt")];
        payment.extend(returned.map(|code| Node::leaf("RtrInf/Rsn/Cd", code)));
        let entry = Node::of(
            "Ntry",
            [
                money("Amt"),
                Node::leaf("CdtDbtInd", if returned.is_some() { "CRDT" } else { "DBIT" }),
                Node::leaf("Sts/Cd", "BOOK"),
                Node::leaf("BookgDt/DtTm", at.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
                Node::leaf("BkTxCd/Prtry/Cd", "TRF"),
                Node::of("NtryDtls/TxDtls", payment),
            ],
        );
        let account = Node::leaf("Acct/Id/Othr/Id", "1");
        let notification = Node::of("Ntfctn", [Node::leaf("Id", "N1"), account, entry]);
        let children = [self.header("N", at), notification];
        Message::Camt054.document("BkToCstmrDbtCdtNtfctn", children).render()
    }
}

#[cfg(test)]
mod tests;
