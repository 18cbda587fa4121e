//! A bank at the other end of the folder that behaves badly on purpose, by the last four characters of the creditor's
//! account. It stands for the world outside: what it has received lies in a folder of its own, survives every crash,
//! and it pays each order it receives, so that a second one would be seen.
//!
//! | account | what comes back |
//! |---|---|
//! | …0001 | accepted at once, settled after about 2 s |
//! | …0002 | refused: the account is closed (AC04) |
//! | …0004 | nothing for about 3 s, then settled, said three times |
//! | …0005 | garbage, half a file, then settled |
//! | …0007 | nothing, ever |
//! | …0009 | a report that is partly accepted, with this payment settled and a stranger's refused |
//! | …0010 | settled, then refused |
//! | …0011 | another amount booked, then the right one |
//! | …0012 | taken for a duplicate, then settled |
//! | …0013 | settled, then returned |
//! | else | accepted, then booked (camt.054) |

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use tokio::fs;
use tokio::sync::watch;
use tracing::warn;

use dvp_rails::iso20022::folder::{Folder, drop_into};
use dvp_rails::iso20022::schema::{Message, check};
use dvp_rails::iso20022::xml::{Document, Node};

/// The bank.
#[derive(Debug, Clone)]
pub struct Bank {
    folder: Folder,
    /// The orders it has received.
    received: PathBuf,
}

/// Something it will say, so long after it received the order.
struct Reply {
    after: Duration,
    content: String,
}

/// What it needs to know of an order.
struct Order {
    message_id: String,
    block_id: String,
    end_to_end_id: String,
    account: String,
    amount: String,
    currency: String,
}

impl Bank {
    /// `root` is the folder shared with it.
    pub async fn open(root: &Path) -> io::Result<Self> {
        let received = root.join("bank");
        fs::create_dir_all(&received).await?;
        Ok(Self { folder: Folder::open(root).await?, received })
    }

    /// Works until `stop` turns true.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            if let Err(error) = self.turn().await {
                warn!(%error, "the simulated bank");
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Receives what lies in the outbox, and says what is due.
    pub async fn turn(&self) -> io::Result<()> {
        let mut orders = fs::read_dir(self.folder.outbox()).await?;
        while let Some(entry) = orders.next_entry().await? {
            let mut to = self.received.join(entry.file_name());
            // The same order again is paid again.
            for n in 2.. {
                if !fs::try_exists(&to).await? {
                    break;
                }
                to = self.received.join(format!("again-{n}-{}", entry.file_name().to_string_lossy()));
            }
            fs::rename(entry.path(), to).await?;
        }
        let mut received = fs::read_dir(&self.received).await?;
        while let Some(entry) = received.next_entry().await? {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".xml") {
                self.answer(&name, entry.metadata().await?.modified()?).await?;
            }
        }
        Ok(())
    }

    /// How many orders it has received: each was paid or refused.
    pub async fn count_received(&self) -> io::Result<usize> {
        let (mut count, mut received) = (0, fs::read_dir(&self.received).await?);
        while let Some(entry) = received.next_entry().await? {
            count += usize::from(entry.file_name().to_string_lossy().ends_with(".xml"));
        }
        Ok(count)
    }

    async fn answer(&self, name: &str, since: SystemTime) -> io::Result<()> {
        let content = fs::read(self.received.join(name)).await?;
        let age = SystemTime::now().duration_since(since).unwrap_or_default();
        for (n, reply) in replies(&content, since.into()).into_iter().enumerate() {
            let said = self.received.join(format!("{name}.said{n}"));
            if reply.after <= age && !fs::try_exists(&said).await? {
                drop_into(&self.folder.inbox(), &format!("{n}-{name}"), reply.content.as_bytes()).await?;
                fs::write(&said, b"").await?;
            }
        }
        Ok(())
    }
}

fn replies(content: &[u8], at: DateTime<Utc>) -> Vec<Reply> {
    let Some(order) = Order::read(content) else {
        return vec![Reply { after: Duration::ZERO, content: "<html>500 Internal Server Error".to_owned() }];
    };
    let report = |status: &str, reason: Option<&str>| order.report(status, reason, at);
    let settled = || report("ACSC", None);
    let suffix = order.account.get(order.account.len().saturating_sub(4)..).unwrap_or_default();
    let script: Vec<(u64, String)> = match suffix {
        "0001" => vec![(0, report("ACSP", None)), (2_000, settled())],
        "0002" => vec![(0, report("RJCT", Some("AC04")))],
        "0004" => {
            vec![(3_000, settled()), (3_000, order.booked(&order.amount, None, at)), (3_200, settled())]
        }
        "0005" => {
            let half: String = settled().chars().take(200).collect();
            vec![(0, "garbage \u{0} & <".to_owned()), (100, half), (400, settled())]
        }
        "0007" => Vec::new(),
        "0009" => vec![(0, order.partly(at))],
        "0010" => vec![(0, settled()), (600, report("RJCT", Some("AC01")))],
        "0011" => {
            vec![(0, order.booked("0.01", None, at)), (500, order.booked(&order.amount, None, at))]
        }
        "0012" => vec![(0, report("RJCT", Some("AM05"))), (600, settled())],
        "0013" => vec![(0, settled()), (600, order.booked(&order.amount, Some("AC04"), at))],
        _ => vec![(0, report("ACSP", None)), (200, order.booked(&order.amount, None, at))],
    };
    script
        .into_iter()
        .map(|(after, content)| Reply { after: Duration::from_millis(after), content })
        .collect()
}

impl Order {
    /// Reads an order as a bank does: what breaks the schema's rules is no order.
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
        })
    }

    fn report(&self, status: &str, reason: Option<&str>, at: DateTime<Utc>) -> String {
        self.report_of("ACCP", vec![self.transaction(&self.end_to_end_id, status, reason)], at)
    }

    fn partly(&self, at: DateTime<Utc>) -> String {
        let foreign = self.transaction("SOMEBODY-ELSES", "RJCT", Some("AC01"));
        self.report_of("PART", vec![foreign, self.transaction(&self.end_to_end_id, "ACSC", None)], at)
    }

    fn transaction(&self, id: &str, status: &str, reason: Option<&str>) -> Node {
        let mut children = vec![Node::leaf("OrgnlEndToEndId", id), Node::leaf("TxSts", status)];
        children
            .extend(reason.map(|code| Node::of("StsRsnInf", [Node::of("Rsn", [Node::leaf("Cd", code)])])));
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
        let root = Node::of("Document", [Node::of("CstmrPmtStsRpt", children)]);
        Document { namespace: Message::Pain002.namespace(), root }.render()
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
        let code = Node::of("BkTxCd", [Node::of("Prtry", [Node::leaf("Cd", "TRF")])]);
        let refs = Node::of(
            "Refs",
            [
                Node::leaf("AcctSvcrRef", self.bank_reference()),
                Node::leaf("EndToEndId", self.end_to_end_id.clone()),
            ],
        );
        let mut payment = vec![refs, money("Amt")];
        payment.extend(returned.map(|code| Node::of("RtrInf", [Node::of("Rsn", [Node::leaf("Cd", code)])])));
        let date = Node::of("BookgDt", [Node::leaf("DtTm", at.format("%Y-%m-%dT%H:%M:%SZ").to_string())]);
        let entry = Node::of(
            "Ntry",
            [
                money("Amt"),
                Node::leaf("CdtDbtInd", if returned.is_some() { "CRDT" } else { "DBIT" }),
                Node::of("Sts", [Node::leaf("Cd", "BOOK")]),
                date,
                code,
                Node::of("NtryDtls", [Node::of("TxDtls", payment)]),
            ],
        );
        let account = Node::of("Acct", [Node::of("Id", [Node::of("Othr", [Node::leaf("Id", "1")])])]);
        let notification = Node::of("Ntfctn", [Node::leaf("Id", "N1"), account, entry]);
        let children = [self.header("N", at), notification];
        let root = Node::of("Document", [Node::of("BkToCstmrDbtCdtNtfctn", children)]);
        Document { namespace: Message::Camt054.namespace(), root }.render()
    }
}
