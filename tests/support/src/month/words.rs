//! A bank that changes its word about a payment, by its files: it refuses and books, books and returns, deducts its charge,
//! takes a return back, and is late. The service reads the files as any other bank's.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::terms::Terms;
use dvp_rails::iso20022::BankFiles;
use dvp_rails::iso20022::folder::drop_into;
use dvp_rails::iso20022::outage::stamp;
use sqlx::PgPool;
use sqlx::types::Json;
use tempfile::TempDir;

use super::bank::{Bank, booked_at};
use crate::dice::Dice;
use crate::market::debtors;

/// What the bank deducts from a return, in minor units.
const CHARGE: i128 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Refused,
    Booked,
    /// Booked days later, near the timelock or after it.
    BookedLate,
    Returned,
    ReturnedShort,
    TakenBack,
}

use Word::{Booked, BookedLate, Refused, Returned, ReturnedShort, TakenBack};

/// Payments to these accounts, and what the bank says of them, in order.
pub(super) const SCRIPTS: [(&str, &[Word]); 9] = [
    ("000123450031", &[Refused, Booked]),
    ("000123450032", &[Refused, Booked, Returned]),
    ("000123450033", &[Booked, ReturnedShort]),
    ("000123450034", &[Booked, Returned, TakenBack]),
    ("000123450035", &[Booked, ReturnedShort, TakenBack]),
    ("000123450036", &[Refused, Booked, Returned, TakenBack]),
    ("000123450037", &[Booked, Returned, TakenBack, Returned]),
    ("000123450038", &[Refused, BookedLate]),
    ("000123450039", &[Refused, BookedLate, Returned]),
];

fn script(account: &str) -> Option<&'static [Word]> {
    SCRIPTS.into_iter().find(|(one, _)| *one == account).map(|(_, words)| words)
}

pub(super) fn is_fickle(account: &str) -> bool {
    script(account).is_some()
}

#[derive(Debug, Clone)]
struct Due {
    execution: String,
    end_to_end_id: String,
    currency: String,
    amount: i128,
    word: Word,
    rest: &'static [Word],
    /// What came by the last return.
    came: i128,
}

/// What the bank has said of a payment, and when.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) execution: String,
    pub(super) word: Word,
    pub(super) at: DateTime<Utc>,
}

pub(super) struct Fickle {
    pub(super) files: BankFiles,
    _folder: TempDir,
    seen: BTreeSet<String>,
    due: BTreeMap<(DateTime<Utc>, u64), Due>,
    pub(super) said: Vec<Said>,
    turns: u64,
}

impl Fickle {
    pub(super) async fn open(pool: PgPool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        stamp(&mut pool.acquire().await.unwrap(), folder.path(), "jo", false).await.unwrap();
        let debtors = debtors([("USD", "400500600", "SANDUS33")]);
        let files = BankFiles::open(pool, folder.path(), debtors).await.unwrap();
        Self {
            files,
            _folder: folder,
            seen: BTreeSet::new(),
            due: BTreeMap::new(),
            said: Vec::new(),
            turns: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// Whether the bank will say more of a payment.
    pub(super) fn will_say_more(&self, execution: &str) -> bool {
        self.due.values().any(|due| due.execution == execution)
    }

    fn plan(&mut self, at: DateTime<Utc>, due: Due) {
        self.turns += 1;
        self.due.insert((at, self.turns), due);
    }

    /// Takes the new payments in, and says what is due.
    pub(super) async fn turn(&mut self, pool: &PgPool, bank: &Bank, now: DateTime<Utc>, dice: &mut Dice) {
        let rows: Vec<(String, String, String, String, Json<Terms>)> = sqlx::query_as(
            "select b.execution, b.end_to_end_id, b.currency, b.amount::text, e.terms \
             from bank_payment b join execution e on e.reference = b.execution \
             where b.status = 'sent' order by b.execution",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        for (execution, end_to_end_id, currency, amount, Json(terms)) in rows {
            if !self.seen.insert(execution.clone()) {
                continue;
            }
            let account = terms.request.beneficiary.as_ref().and_then(|one| one.account()).unwrap();
            let (word, rest) = script(account).unwrap().split_first().unwrap();
            let amount = amount.parse().unwrap();
            let due = Due { execution, end_to_end_id, currency, amount, word: *word, rest, came: amount };
            self.plan(booked_at(now), due);
        }
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            let (at, _) = *first.key();
            let due = first.remove();
            self.say(bank, due, at, dice).await;
        }
    }

    async fn say(&mut self, bank: &Bank, mut due: Due, at: DateTime<Utc>, dice: &mut Dice) {
        let (document, moved) = match due.word {
            Refused => (refusal(&due.end_to_end_id), 0),
            Booked | BookedLate => {
                (entry(&due, "<CdtDbtInd>DBIT</CdtDbtInd>", "", due.amount, at), -due.amount)
            }
            Returned | ReturnedShort => {
                due.came = if due.word == Returned { due.amount } else { due.amount - CHARGE };
                let more = "<RtrInf><Rsn><Cd>AC04</Cd></Rsn></RtrInf>";
                (entry(&due, "<CdtDbtInd>CRDT</CdtDbtInd>", more, due.came, at), due.came)
            }
            TakenBack => {
                let direction = "<CdtDbtInd>DBIT</CdtDbtInd><RvslInd>true</RvslInd>";
                (entry(&due, direction, "", due.came, at), -due.came)
            }
        };
        if moved != 0 {
            bank.note(&due.execution, &due.currency, moved, at);
        }
        self.turns += 1;
        let name = format!("{:06}.xml", self.turns);
        // Statement and notification repeat each other.
        for name in [name.clone(), format!("again-{name}")] {
            let content = document.replace("MSG", &name);
            drop_into(&self.files.folder().inbox(), &name, content.as_bytes()).await.unwrap();
            assert_eq!(self.files.take_in().await.unwrap(), 1, "{name}");
        }
        self.said.push(Said { execution: due.execution.clone(), word: due.word, at });
        if let Some((word, rest)) = due.rest.split_first() {
            let days = 1 + i64::try_from(dice.throw(3)).unwrap();
            let late = if *word == BookedLate { 3 + i64::try_from(dice.throw(6)).unwrap() } else { 0 };
            let next = at + TimeDelta::days(days + late) + TimeDelta::hours(2);
            self.plan(next, Due { word: *word, rest, ..due });
        }
    }
}

fn refusal(id: &str) -> String {
    format!(
        "<Document xmlns='urn:iso:std:iso:20022:tech:xsd:pain.002.001.10'><CstmrPmtStsRpt><GrpHdr><MsgId>MSG</MsgId>\
         <CreDtTm>2032-03-01T12:00:40</CreDtTm></GrpHdr><OrgnlGrpInfAndSts><OrgnlMsgId>M{id}</OrgnlMsgId>\
         <OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId><GrpSts>ACCP</GrpSts></OrgnlGrpInfAndSts><OrgnlPmtInfAndSts>\
         <OrgnlPmtInfId>P{id}</OrgnlPmtInfId><TxInfAndSts><OrgnlEndToEndId>{id}</OrgnlEndToEndId><TxSts>RJCT</TxSts>\
         <StsRsnInf><Rsn><Cd>AC04</Cd></Rsn></StsRsnInf></TxInfAndSts></OrgnlPmtInfAndSts></CstmrPmtStsRpt></Document>"
    )
}

fn entry(due: &Due, indicators: &str, more: &str, amount: i128, at: DateTime<Utc>) -> String {
    let Due { end_to_end_id: id, currency, .. } = due;
    let amount = format!("{}.{:02}", amount / 100, amount % 100);
    let at = at.format("%Y-%m-%dT%H:%M:%SZ");
    format!(
        "<Document xmlns='urn:iso:std:iso:20022:tech:xsd:camt.054.001.08'><BkToCstmrDbtCdtNtfctn><GrpHdr>\
         <MsgId>MSG</MsgId><CreDtTm>{at}</CreDtTm></GrpHdr><Ntfctn><Id>MSG</Id><Acct><Id><Othr><Id>400500600</Id></Othr>\
         </Id></Acct><Ntry><Amt Ccy='{currency}'>{amount}</Amt>{indicators}<Sts><Cd>BOOK</Cd></Sts><BookgDt><DtTm>{at}\
         </DtTm></BookgDt><BkTxCd/><NtryDtls><TxDtls><Refs><EndToEndId>{id}</EndToEndId></Refs>{more}</TxDtls></NtryDtls>\
         </Ntry></Ntfctn></BkToCstmrDbtCdtNtfctn></Document>"
    )
}
