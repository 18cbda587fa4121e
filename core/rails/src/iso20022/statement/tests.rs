use expect_test::expect;

use super::super::answers::{FileError, read};
use super::super::schema::Message;
use super::super::word::{PaymentReport, Word};
use super::*;

fn file(statement: &str) -> Vec<u8> {
    format!(
        "<Document xmlns='{}'><BkToCstmrStmt><GrpHdr><MsgId>M1</MsgId><CreDtTm>2026-11-21T00:10:00Z</CreDtTm></GrpHdr>\
         <Stmt>{statement}</Stmt></BkToCstmrStmt></Document>",
        Message::Camt053.namespace()
    )
    .into_bytes()
}

const ACCOUNT: &str = "<Acct><Id><Othr><Id>400500600</Id></Othr></Id><Ccy>USD</Ccy></Acct>";

fn balance(kind: &str, amount: &str) -> String {
    let (direction, amount) = amount.strip_prefix('-').map_or(("CRDT", amount), |amount| ("DBIT", amount));
    format!(
        "<Bal><Tp><CdOrPrtry><Cd>{kind}</Cd></CdOrPrtry></Tp><Amt Ccy='USD'>{amount}</Amt>\
         <CdtDbtInd>{direction}</CdtDbtInd><Dt><Dt>2026-11-20</Dt></Dt></Bal>"
    )
}

fn entry(amount: &str, direction: &str, more: &str) -> String {
    format!(
        "<Ntry><NtryRef>7</NtryRef><Amt Ccy='USD'>{amount}</Amt><CdtDbtInd>{direction}</CdtDbtInd><Sts><Cd>BOOK</Cd></Sts>\
         <BookgDt><Dt>2026-11-20</Dt></BookgDt><AcctSvcrRef>B7</AcctSvcrRef><BkTxCd/>{more}</Ntry>"
    )
}

fn payment(id: &str, amount: Option<&str>) -> String {
    let amount = amount.map(|amount| format!("<Amt Ccy='USD'>{amount}</Amt>")).unwrap_or_default();
    format!(
        "<TxDtls><Refs><EndToEndId>{id}</EndToEndId></Refs>{amount}<RmtInf><Ustrd>invoice</Ustrd></RmtInf></TxDtls>"
    )
}

fn statement(opening: &str, closing: &str, entries: &str) -> String {
    let (opening, closing) = (balance("OPBD", opening), balance("CLBD", closing));
    format!("<Id>S1</Id>{ACCOUNT}{opening}{closing}{entries}")
}

fn parsed(statement: &str) -> Result<Vec<Statement>, FileError> {
    read(&file(statement), "2026-11-21T12:00:00Z".parse().unwrap()).map(|file| file.statements)
}

fn wrong(statement: &str) -> String {
    match parsed(statement) {
        Err(wrong @ FileError::SetAside(_)) => wrong.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn balances_entries_and_references_are_read() {
    let entries = format!(
        "{}{}",
        entry("99.35", "DBIT", &format!("<NtryDtls>{}</NtryDtls>", payment("E1", None))),
        entry("1000", "CRDT", "")
    );
    let read = parsed(&statement("-0.65", "900.00", &entries)).unwrap();
    expect![[r#"
        [
            Statement {
                account: "400500600",
                currency: "USD",
                id: "S1",
                page: 1,
                begins_at: 2026-11-20T00:00:00Z,
                ends_at: 2026-11-21T00:00:00Z,
                opening: -65,
                closing: 90000,
                entries: [
                    StatementEntry {
                        amount: -9935,
                        booked_at: 2026-11-20T00:00:00Z,
                        end_to_end_id: Some(
                            "E1",
                        ),
                        references: [
                            "E1",
                            "invoice",
                            "B7",
                            "7",
                        ],
                    },
                    StatementEntry {
                        amount: 100000,
                        booked_at: 2026-11-20T00:00:00Z,
                        end_to_end_id: None,
                        references: [
                            "B7",
                            "7",
                        ],
                    },
                ],
                said: [
                    PaymentReport {
                        of: Payment(
                            "E1",
                        ),
                        word: Paid {
                            at: 2026-11-20T00:00:00Z,
                            bank_reference: Some(
                                "B7",
                            ),
                            amount: Some(
                                (
                                    "99.35",
                                    "USD",
                                ),
                            ),
                        },
                    },
                ],
                span: Span {
                    start: 153,
                    end: 1006,
                },
            },
        ]
    "#]]
    .assert_debug_eq(&read);
}

#[test]
fn a_batch_is_read_payment_by_payment_when_its_parts_add_up() {
    let of = |parts: [&str; 2]| {
        let payments: String =
            parts.iter().zip(["E1", "E2"]).map(|(amount, id)| payment(id, Some(amount))).collect();
        let entries = entry("10.00", "DBIT", &format!("<NtryDtls>{payments}</NtryDtls>"));
        let read = parsed(&statement("10", "0", &entries)).unwrap().remove(0);
        read.entries.into_iter().map(|entry| (entry.amount, entry.end_to_end_id)).collect::<Vec<_>>()
    };
    assert_eq!(of(["4.00", "6.00"]), [(-400, Some("E1".into())), (-600, Some("E2".into()))]);
    assert_eq!(of(["4.00", "5.00"]), [(-1_000, None)], "what does not add up is one entry");
}

#[test]
fn what_is_pending_or_informs_is_no_entry() {
    let pending = entry("5.00", "DBIT", "").replace("BOOK", "PDNG")
        + &entry("5.00", "DBIT", "").replace("BOOK", "INFO");
    assert_eq!(parsed(&statement("1", "1", &pending)).unwrap()[0].entries, []);
}

#[test]
fn a_statement_that_contradicts_itself_is_refused() {
    let debit = entry("5.00", "DBIT", "");
    expect!["statement S1 opens with 1000, closes with 499, and its entries lead to 500"]
        .assert_eq(&wrong(&statement("10", "4.99", &debit)));
    let twice = format!("{debit}{debit}");
    expect!["statement S1 opens with 1000, closes with 500, and its entries lead to 0"]
        .assert_eq(&wrong(&statement("10", "5", &twice)));
    let euros = debit.replace("USD", "EUR");
    expect!["statement S1 has an entry that is not of USD"].assert_eq(&wrong(&statement("10", "5", &euros)));
    let one = format!("<Id>S1</Id>{ACCOUNT}{}", balance("CLBD", "0"));
    expect!["statement S1 has no opening or no closing balance"].assert_eq(&wrong(&one));
    let interim = format!("<Id>S1</Id>{ACCOUNT}{}", balance("ITBD", "0"));
    expect!["statement S1 has one balance only"].assert_eq(&wrong(&interim));
}

#[test]
fn a_page_in_the_middle_leads_from_one_interim_balance_to_the_next() {
    let page = format!(
        "<Id>S1</Id><StmtPgntn><PgNb>2</PgNb><LastPgInd>false</LastPgInd></StmtPgntn>{ACCOUNT}{}{}{}",
        balance("ITBD", "10"),
        balance("ITBD", "4"),
        entry("6", "DBIT", "")
    );
    let read = parsed(&page).unwrap().remove(0);
    assert_eq!((read.page, read.opening, read.closing), (2, 1_000, 400));
}

#[test]
fn what_counts_is_told_apart_from_what_does_not() {
    let first = parsed(&statement("10", "5", &entry("5.00", "DBIT", ""))).unwrap().remove(0);
    let written_otherwise = statement("10.00", "5.0", &entry("5", "DBIT", ""));
    assert_eq!(parsed(&written_otherwise).unwrap().remove(0).digest(), first.digest());
    let other = statement("10", "5", &entry("5", "DBIT", "").replace("B7", "B8"));
    assert_ne!(parsed(&other).unwrap().remove(0).digest(), first.digest());
}

#[test]
fn a_statement_says_of_payments_what_a_notification_says() {
    let entries = entry("99.35", "DBIT", &format!("<NtryDtls>{}</NtryDtls>", payment("E1", None)));
    let said = read(&file(&statement("99.35", "0", &entries)), "2026-11-21T12:00:00Z".parse().unwrap());
    let word = Word::Paid {
        at: "2026-11-20T00:00:00Z".parse().unwrap(),
        bank_reference: Some("B7".into()),
        amount: Some(("99.35".into(), "USD".into())),
    };
    let of = dvp_domain::payment::PaymentSubject::Payment("E1".into());
    assert_eq!(said.unwrap().statements.remove(0).said, [PaymentReport { of, word }]);
}
