//! What the bank says has the same meaning in every version, and what is not understood costs itself only.

use expect_test::expect;

use super::super::instruction::uetr;
use super::*;

fn at() -> DateTime<Utc> {
    "2026-11-21T12:00:40Z".parse().unwrap()
}

fn file(name: &str, body: &str) -> Vec<u8> {
    format!("<Document xmlns='urn:iso:std:iso:20022:tech:xsd:{name}'>{body}</Document>").into_bytes()
}

fn report(version: &str, parts: &str) -> Vec<u8> {
    let group = "<GrpHdr><MsgId>S1</MsgId><CreDtTm>2026-11-21T12:00:40</CreDtTm></GrpHdr><OrgnlGrpInfAndSts>\
                 <OrgnlMsgId>M1</OrgnlMsgId><OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId></OrgnlGrpInfAndSts>";
    file(&format!("pain.002.001.{version}"), &format!("<CstmrPmtStsRpt>{group}{parts}</CstmrPmtStsRpt>"))
}

fn transaction(id: &str, status: &str) -> String {
    format!("<TxInfAndSts><OrgnlEndToEndId>{id}</OrgnlEndToEndId><TxSts>{status}</TxSts></TxInfAndSts>")
}

fn block(transactions: &str) -> String {
    format!("<OrgnlPmtInfAndSts><OrgnlPmtInfId>P1</OrgnlPmtInfId>{transactions}</OrgnlPmtInfAndSts>")
}

/// An entry of one payment.
fn entry(id: &str) -> String {
    format!(
        "<Ntry><Amt Ccy='USD'>1.00</Amt><CdtDbtInd>DBIT</CdtDbtInd><Sts><Cd>BOOK</Cd></Sts><BookgDt><Dt>2026-11-20</Dt>\
         </BookgDt><BkTxCd/><NtryDtls><TxDtls><Refs><EndToEndId>{id}</EndToEndId></Refs></TxDtls></NtryDtls></Ntry>"
    )
}

/// The message, the element of its body and that of its report.
const REPORTS: [(&str, &str, &str); 3] = [
    ("camt.052.001", "BkToCstmrAcctRpt", "Rpt"),
    ("camt.053.001", "BkToCstmrStmt", "Stmt"),
    ("camt.054.001", "BkToCstmrDbtCdtNtfctn", "Ntfctn"),
];

fn account_report((name, body, of): (&str, &str, &str), version: &str, content: &str) -> Vec<u8> {
    let header = "<GrpHdr><MsgId>N1</MsgId><CreDtTm>2026-11-21T12:00:40Z</CreDtTm></GrpHdr>";
    let account = "<Id>R1</Id><Acct><Id><Othr><Id>400</Id></Othr></Id><Ccy>USD</Ccy></Acct>";
    let body = format!("<{body}>{header}<{of}>{account}{content}</{of}></{body}>");
    file(&format!("{name}.{version}"), &body)
}

fn notification(content: &str) -> Vec<u8> {
    account_report(REPORTS[2], "08", content)
}

fn balances(opening: &str, closing: &str) -> String {
    let balance = |kind: &str, amount: &str| {
        format!(
            "<Bal><Tp><CdOrPrtry><Cd>{kind}</Cd></CdOrPrtry></Tp><Amt Ccy='USD'>{amount}</Amt><CdtDbtInd>CRDT</CdtDbtInd>\
             <Dt><Dt>2026-11-20</Dt></Dt></Bal>"
        )
    };
    format!("{}{}", balance("OPBD", opening), balance("CLBD", closing))
}

fn statement(content: &str) -> Vec<u8> {
    account_report(REPORTS[1], "08", content)
}

/// Two payments of ours by the references of one: none of them is taken for the other.
#[test]
fn a_part_that_names_two_of_our_payments_is_set_aside() {
    let (one, other) = ("0".repeat(32), "1".repeat(32));
    let refused = |content: String| match read(&report("10", &content), at()) {
        Err(FileError::SetAside(parts)) => told_each(&parts),
        other => panic!("{other:?}"),
    };
    let of_block = |id: &str, transactions: &str| {
        format!("<OrgnlPmtInfAndSts><OrgnlPmtInfId>P{id}</OrgnlPmtInfId>{transactions}</OrgnlPmtInfAndSts>")
    };
    let both = |name: &str, id: &str| {
        let more = format!("<{name}>{id}</{name}><TxSts>");
        transaction(&one, "RJCT").replace("<TxSts>", &more)
    };
    let instruction = of_block(&one, &both("OrgnlInstrId", &other));
    let by_uetr = of_block(&one, &both("OrgnlUETR", &uetr(&other).unwrap()));
    assert_eq!(said(&read(&report("10", &by_uetr), at()).unwrap()), [(&*one, "refused")], "the bank's own");
    for part in [instruction, of_block(&other, &transaction(&one, "RJCT"))] {
        assert!(refused(part).ends_with("it names two payments"));
    }
    // A message of one payment that is refused as a whole, with a part about another one.
    let part = of_block(&other, &transaction(&other, "ACSC"));
    let whole = String::from_utf8(report("10", &part)).unwrap();
    let whole = whole.replace("<OrgnlMsgId>M1<", &format!("<OrgnlMsgId>M{one}<"));
    let whole = whole.replace("</OrgnlMsgNmId>", "</OrgnlMsgNmId><GrpSts>RJCT</GrpSts>");
    assert!(matches!(read(whole.as_bytes(), at()), Err(FileError::SetAside(_))), "{whole}");
    // Each by its own references.
    let two = format!(
        "{}{}",
        of_block(&one, &transaction(&one, "RJCT")),
        of_block(&other, &transaction(&other, "ACSC"))
    );
    let read_two = read(&report("10", &two), at()).unwrap();
    assert_eq!(said(&read_two), [(&*one, "refused"), (&*other, "paid")]);
    // The same of an entry.
    let entry = entry(&one).replace("</Refs>", &format!("<InstrId>{other}</InstrId></Refs>"));
    let Err(FileError::SetAside(parts)) = read(&notification(&entry), at()) else { panic!("it counts") };
    assert!(parts[0].why.ends_with("it names two payments"), "{parts:?}");
}

/// The verification of payees, at each level.
#[test]
fn what_a_bank_finds_of_a_payee_is_a_result_of_its_own() {
    let of = |content: &[u8]| read(content, at()).unwrap().said.remove(0).word;
    let checked = |payee, name: Option<&str>| Word::Checked { payee, name: name.map(str::to_owned) };
    for (code, payee) in [
        ("RCVC", PayeeCheck::Match),
        ("RVMC", PayeeCheck::CloseMatch),
        ("RVNM", PayeeCheck::NoMatch),
        ("RVNA", PayeeCheck::NotPossible),
        ("RVCM", PayeeCheck::NoMatch),
    ] {
        let of_payment = report("10", &block(&transaction("E1", code)));
        assert_eq!(of(&of_payment), checked(payee, None), "{code}");
        let of_block = report("14", &block(&format!("<PmtInfSts>{code}</PmtInfSts>")));
        assert_eq!(of(&of_block), checked(payee, None), "{code} of a block");
    }
    let close = |text: &str| {
        let why = format!("<StsRsnInf><AddtlInf>{text}</AddtlInf></StsRsnInf></TxInfAndSts>");
        block(&transaction("E1", "RVMC").replace("</TxInfAndSts>", &why))
    };
    for (text, name) in [("Jane Doe", Some("Jane Doe")), ("RVMC Jane Doe", Some("Jane Doe")), ("RVMC", None)]
    {
        assert_eq!(of(&report("10", &close(text))), checked(PayeeCheck::CloseMatch, name), "{text}");
    }
    // Not completed yet.
    assert_eq!(of(&report("10", &block(&transaction("E1", "RVNC")))).as_str(), "not decided yet");
}

/// The payments that a file is about, with what it says of them.
fn said(file: &ParsedFile) -> Vec<(&str, &'static str)> {
    let of_statements = file.statements.iter().flat_map(|statement| &statement.said);
    file.said
        .iter()
        .chain(of_statements)
        .map(|report| match &report.of {
            PaymentSubject::Payment(id) | PaymentSubject::Block(id) | PaymentSubject::Message(id) => {
                (id.as_str(), report.word.as_str())
            }
            PaymentSubject::Uetr(_) => ("a UETR", report.word.as_str()),
        })
        .collect()
}

#[test]
fn every_version_says_the_same() {
    for version in 3..=14 {
        let content = report(&format!("{version:02}"), &block(&transaction("E1", "ACSC")));
        assert_eq!(said(&read(&content, at()).unwrap()), [("E1", "paid")], "pain.002.001.{version:02}");
        let answer = "<RsltnOfInvstgtn><Assgnmt><Id>R1</Id><Assgnr><Agt><FinInstnId><BIC/></FinInstnId></Agt></Assgnr></Assgnmt><Sts><Conf>RJCR</Conf></Sts><CxlDtls><TxInfAndSts>\
             <OrgnlEndToEndId>E1</OrgnlEndToEndId></TxInfAndSts></CxlDtls></RsltnOfInvstgtn>";
        let file = read(&file(&format!("camt.029.001.{version:02}"), answer), at()).unwrap();
        assert_eq!(file.recalls.len(), 1, "camt.029.001.{version:02}");
        assert_eq!(file.recalls[0].answer.as_str(), "rejected");
        assert_eq!(file.set_aside.len(), usize::from(version == 9), "camt.029.001.{version:02}");
    }
    for version in 2..=13 {
        for kind in REPORTS {
            // The status was text once; then it became a choice. So the amount of a payment.
            let entries = if version < 8 {
                let amount = "<AmtDtls><TxAmt><Amt Ccy='USD'>1</Amt></TxAmt></AmtDtls></TxDtls>";
                entry("E1").replace("<Cd>BOOK</Cd>", "BOOK").replace("</TxDtls>", amount)
            } else {
                entry("E1").replace("</TxDtls>", "<Amt Ccy='USD'>1</Amt></TxDtls>")
            };
            let content = format!("{}{entries}", balances("3", "2"));
            let read = read(&account_report(kind, &format!("{version:02}"), &content), at()).unwrap();
            let name = format!("{}.{version:02}", kind.0);
            assert_eq!(said(&read), [("E1", "paid")], "{name}");
            assert_eq!(read.name, name);
            assert_eq!(read.statements.len(), usize::from(kind.2 == "Stmt"), "{name}");
        }
    }
}

#[test]
fn a_batch_of_an_early_version_has_its_amounts_among_the_details() {
    let payment = |id: &str, amount: &str| {
        format!(
            "<TxDtls><Refs><EndToEndId>{id}</EndToEndId></Refs><AmtDtls><TxAmt><Amt Ccy='USD'>{amount}</Amt></TxAmt>\
             </AmtDtls></TxDtls>"
        )
    };
    let entry = entry("E0").replace("<Cd>BOOK</Cd>", "BOOK");
    let (head, rest) = entry.split_once("<TxDtls>").unwrap();
    let tail = rest.split_once("</TxDtls>").unwrap().1;
    let content =
        format!("{}{head}{}{}{tail}", balances("3", "2"), payment("E1", ".40"), payment("E2", ".60"));
    let read = read(&account_report(REPORTS[1], "02", &content), at()).unwrap();
    let entries = &read.statements[0].entries;
    let amounts: Vec<_> = entries.iter().map(|one| (one.amount, one.end_to_end_id.as_deref())).collect();
    assert_eq!(amounts, [(-40, Some("E1")), (-60, Some("E2"))]);
    assert_eq!(said(&read), [("E1", "paid"), ("E2", "paid")]);
}

#[test]
fn a_message_that_is_not_read_is_refused_with_a_plain_reason() {
    let refusals: Vec<String> =
        ["camt.053.001.01", "camt.054.001.14", "pain.002.001.02", "camt.056.001.13", "pacs.008.001.08", ""]
            .map(|name| read(&file(name, "<A/>"), at()).unwrap_err().to_string())
            .into();
    expect![[r#"
        camt.053.001.01 is not read: of this message the versions 02 to 13 are
        camt.054.001.14 is not read: of this message the versions 02 to 13 are
        pain.002.001.02 is not read: of this message the versions 03 to 14 are
        camt.056.001.13 is not read: of this message the versions 01 to 12 are
        urn:iso:std:iso:20022:tech:xsd:pacs.008.001.08 is no message that is read
        urn:iso:std:iso:20022:tech:xsd: is no message that is read"#]]
    .assert_eq(&refusals.join("\n"));
}

fn told_each(parts: &[Part]) -> String {
    parts.iter().map(|part| part.why.as_str()).collect::<Vec<_>>().join("; ")
}

/// What is set aside of a file of three parts, in whose second one something is changed. The other two count.
fn set_aside(
    part: impl Fn(&str) -> String,
    as_file: impl Fn(&str) -> Vec<u8>,
    changes: &[(&str, &str)],
) -> String {
    let told = changes.iter().map(|(from, to)| {
        let changed = part("E2").replacen(from, to, 1);
        assert_ne!(changed, part("E2"), "{from}");
        let file = read(&as_file(&format!("{}{changed}{}", part("E1"), part("E3"))), at()).unwrap();
        assert_eq!(said(&file), [("E1", "paid"), ("E3", "paid")], "{to}");
        told_each(&file.set_aside)
    });
    told.collect::<Vec<_>>().join("\n")
}

#[test]
fn an_entry_that_is_not_understood_is_set_aside_alone() {
    let direction = "<CdtDbtInd>DBIT</CdtDbtInd>";
    let told = set_aside(
        entry,
        notification,
        &[
            (direction, ""),
            ("DBIT", "DEBIT"),
            (direction, "<CdtDbtInd>DBIT</CdtDbtInd><CdtDbtInd>CRDT</CdtDbtInd>"),
            ("<Amt Ccy='USD'>1.00</Amt>", ""),
            ("1.00", "1,00"),
            ("1.00", "-1.00"),
            ("1.00", "1.001"),
            ("Ccy='USD'", ""),
            ("USD", "dollars"),
            ("<Sts><Cd>BOOK</Cd></Sts>", ""),
            ("BOOK", "KOOB"),
            ("<Cd>BOOK</Cd>", "<Cd>BOOK</Cd><Prtry>PDNG</Prtry>"),
            ("2026-11-20", "20.11.2026"),
            ("<BkTxCd/>", "<BkTxCd/><RvslInd>maybe</RvslInd>"),
            ("<Refs>", "<Refs><EndToEndId>E9</EndToEndId>"),
            ("</Refs>", "</Refs><Amt Ccy='USD'>one</Amt>"),
            ("</Refs>", "</Refs><CdtDbtInd>CRDT</CdtDbtInd>"),
            ("</Refs>", "</Refs><RtrInf/><RtrInf/>"),
        ],
    );
    expect![[r#"
        entry 2 of R1: it is neither a credit nor a debit
        entry 2 of R1: CdtDbtInd is DEBIT
        entry 2 of R1: CdtDbtInd is given more than once
        entry 2 of R1: it has no amount
        entry 2 of R1: 1,00 is no amount of USD
        entry 2 of R1: -1.00 is no amount of USD
        entry 2 of R1: 1.001 is no amount of USD
        entry 2 of R1: the amount 1.00 has no currency
        entry 2 of R1: dollars is no currency
        entry 2 of R1: it has no status
        entry 2 of R1: its status KOOB is not known
        entry 2 of R1: it has several statuses
        entry 2 of R1: 20.11.2026 is no date
        entry 2 of R1: RvslInd is maybe
        payment 1 of entry 2 of R1: EndToEndId is given more than once
        payment 1 of entry 2 of R1: one is no amount of USD
        payment 1 of entry 2 of R1: its CdtDbtInd is not that of its entry
        payment 1 of entry 2 of R1: RtrInf is given more than once"#]]
    .assert_eq(&told);
}

#[test]
fn a_payment_in_a_status_report_that_is_not_understood_is_set_aside_alone() {
    let told = set_aside(
        |id| transaction(id, "ACSC"),
        |transactions| report("10", &block(transactions)),
        &[
            ("<TxSts>ACSC</TxSts>", ""),
            ("<TxSts>", "<TxSts>RJCT</TxSts><TxSts>"),
            ("<OrgnlEndToEndId>E2</OrgnlEndToEndId>", ""),
            ("<OrgnlEndToEndId>", "<OrgnlEndToEndId>E9</OrgnlEndToEndId><OrgnlEndToEndId>"),
            ("</TxSts>", "</TxSts><AccptncDtTm>noon</AccptncDtTm>"),
        ],
    );
    expect![[r#"
        payment 2 of block P1: it has no status
        payment 2 of block P1: TxSts is given more than once
        payment 2 of block P1: it names no payment
        payment 2 of block P1: OrgnlEndToEndId is given more than once
        payment 2 of block P1: noon is no time"#]]
    .assert_eq(&told);
}

#[test]
fn a_payment_without_an_id_is_the_only_one_of_its_block_or_message() {
    let unnamed = "<TxInfAndSts><TxSts>ACSC</TxSts></TxInfAndSts>";
    let of = |content: &str| {
        let file = read(&report("10", content), at());
        file.map(|file| file.said.into_iter().map(|report| report.of).collect::<Vec<_>>())
    };
    assert_eq!(of(&block(unnamed)), Ok(vec![PaymentSubject::Block("P1".into())]));
    let no_block = format!("<OrgnlPmtInfAndSts>{unnamed}</OrgnlPmtInfAndSts>");
    assert_eq!(of(&no_block), Ok(vec![PaymentSubject::Message("M1".into())]));
    for several in [block(&unnamed.repeat(2)), no_block.repeat(2)] {
        assert!(matches!(of(&several), Err(FileError::SetAside(parts)) if parts.len() == 2), "{several}");
    }
    // A block that is not understood does not leave the word to the message.
    let twice = "<PmtInfSts>RJCT</PmtInfSts><PmtInfSts>ACSC</PmtInfSts>";
    let refused = String::from_utf8(report("10", &block(twice))).unwrap();
    let refused = refused.replace("</OrgnlMsgNmId>", "</OrgnlMsgNmId><GrpSts>RJCT</GrpSts>");
    let told = read(refused.as_bytes(), at()).unwrap_err().to_string();
    assert_eq!(told, "block P1: PmtInfSts is given more than once");
}

#[test]
fn an_unknown_element_is_told_and_costs_nothing_else() {
    let typo = entry("E1").replace("NtryDtls", "NtryDtl");
    let told = read(&notification(&format!("{typo}{}", entry("E2"))), at()).unwrap();
    assert_eq!(said(&told), [("E2", "paid")]);
    assert_eq!(told.set_aside, ["unknown element Document/BkToCstmrDbtCdtNtfctn/Ntfctn/Ntry/NtryDtl"]);
    // A later version has elements that are not known here.
    let later = account_report(REPORTS[2], "13", &format!("{}<Later/>", entry("E2")));
    assert_eq!(read(&later, at()).unwrap().set_aside, [""; 0]);
}

#[test]
fn a_statement_without_one_of_its_entries_counts_when_its_balances_do_without_it() {
    let broken = |of: &str| entry("E2").replace("1.00", of);
    let whole = format!("{}{}{}", balances("3", "2"), entry("E1"), broken("one"));
    let file = read(&statement(&whole), at()).unwrap();
    assert_eq!((file.statements.len(), said(&file)), (1, vec![("E1", "paid")]));
    assert_eq!(file.set_aside, ["entry 2 of R1: one is no amount of USD"]);
    // Else its payments count, and the statement does not.
    let file = read(&statement(&whole.replace(">2<", ">1<")), at()).unwrap();
    assert_eq!((file.statements.len(), said(&file)), (0, vec![("E1", "paid")]));
    assert_eq!(
        file.set_aside,
        [
            "entry 2 of R1: one is no amount of USD",
            "statement R1 opens with 300, closes with 100, and its entries lead to 200"
        ]
    );
    // One that contradicts itself does not count at all.
    let wrong = format!("{}{}", balances("3", "1"), entry("E1"));
    let refused = read(&statement(&wrong), at()).unwrap_err().to_string();
    assert_eq!(refused, "statement R1 opens with 300, closes with 100, and its entries lead to 200");
    // Nor does it cost another one.
    let both = String::from_utf8(statement(&wrong)).unwrap();
    let right = format!(
        "<Stmt><Id>R2</Id><Acct><Id><IBAN>DE89370400440532013000</IBAN></Id></Acct>{}{}</Stmt></BkToCstmrStmt>",
        balances("3", "2"),
        entry("E3")
    );
    let file = read(both.replace("</BkToCstmrStmt>", &right).as_bytes(), at()).unwrap();
    assert_eq!(said(&file), [("E3", "paid")]);
    assert_eq!(file.set_aside, [refused.as_str()]);
}

#[test]
fn a_payment_that_contradicts_its_entry_is_told_and_the_entry_counts() {
    let contradicting = entry("E1").replace("</Refs>", "</Refs><CdtDbtInd>CRDT</CdtDbtInd>");
    let file = read(&statement(&format!("{}{contradicting}", balances("3", "2"))), at()).unwrap();
    assert_eq!(file.statements[0].entries.len(), 1);
    assert_eq!(file.statements[0].entries[0].amount, -100);
    assert_eq!(said(&file), []);
    assert_eq!(file.set_aside, ["payment 1 of entry 1 of R1: its CdtDbtInd is not that of its entry"]);
    // What remains of payments in both directions is no contradiction.
    let payment = |id: &str, amount: &str, direction: &str| {
        format!(
            "<TxDtls><Refs><EndToEndId>{id}</EndToEndId></Refs><Amt Ccy='USD'>{amount}</Amt><CdtDbtInd>{direction}</CdtDbtInd>\
             {}</TxDtls>",
            if direction == "CRDT" { "<RtrInf/>" } else { "" }
        )
    };
    let net = |returned: &str| {
        let entry = entry("E0");
        let (head, rest) = entry.split_once("<TxDtls>").unwrap();
        let tail = rest.split_once("</TxDtls>").unwrap().1;
        let payments = payment("E1", "1.50", "DBIT") + &payment("E2", returned, "CRDT");
        read(&statement(&format!("{}{head}{payments}{tail}", balances("3", "2"))), at()).unwrap()
    };
    let file = net("0.50");
    assert_eq!(said(&file), [("E1", "paid"), ("E2", "returned")]);
    assert_eq!(file.set_aside, [""; 0]);
    let file = net("0.60");
    assert_eq!(said(&file), [("E1", "paid")]);
    assert_eq!(file.set_aside, ["payment 2 of entry 1 of R1: its CdtDbtInd is not that of its entry"]);
}

#[test]
fn a_payment_is_recognised_by_any_of_its_ids() {
    let id = "0123456789ABCDEF0123456789ABCDEF";
    let own = "<TxDtls><Refs><EndToEndId>E1</EndToEndId></Refs></TxDtls>";
    let refs = |refs: String| format!("<TxDtls><Refs>{refs}</Refs></TxDtls>");
    let missing = "<EndToEndId>NOTPROVIDED</EndToEndId>";
    for by in [
        refs(format!("<EndToEndId>{id}</EndToEndId>")),
        refs(format!("<InstrId>{id}</InstrId>{missing}")),
        refs(format!("<PmtInfId>P{id}</PmtInfId>")),
        refs(format!("<InstrId>{id}</InstrId><EndToEndId>cut off by the bank</EndToEndId>")),
        refs(format!("<MsgId>M{id}</MsgId>{missing}")),
        format!("<Btch><PmtInfId>P{id}</PmtInfId><NbOfTxs>1</NbOfTxs></Btch>"),
        format!("<Btch><MsgId>M{id}</MsgId></Btch>"),
    ] {
        let content = format!("{}{}", balances("3", "2"), entry("E1").replace(own, &by));
        let file = read(&statement(&content), at()).unwrap();
        let word = Word::Paid {
            at: "2026-11-20T00:00:00Z".parse().unwrap(),
            bank_reference: None,
            amount: Some(("1".into(), "USD".into())),
        };
        let report = PaymentReport { of: PaymentSubject::Payment(id.into()), word };
        assert_eq!(file.statements[0].said, [report], "{by}");
        assert_eq!(file.statements[0].entries[0].end_to_end_id.as_deref(), Some(id), "{by}");
    }
    let uetr = uetr(id).unwrap();
    let by_uetr = |file: ParsedFile| {
        let statements = file.statements.into_iter().flat_map(|statement| statement.said);
        let of = file.said.into_iter().chain(statements).next().unwrap().of;
        of == PaymentSubject::Uetr("0123456789ab4def8123456789abcdef".into())
    };
    let content = entry("E1").replace(own, &refs(format!("<UETR>{uetr}</UETR>{missing}")));
    assert!(by_uetr(read(&statement(&format!("{}{content}", balances("3", "2"))), at()).unwrap()));
    let content = format!("<TxInfAndSts><OrgnlUETR>{uetr}</OrgnlUETR><TxSts>ACSC</TxSts></TxInfAndSts>");
    assert!(by_uetr(read(&report("10", &block(&content)), at()).unwrap()));
    for of_others in [
        refs(format!("<InstrId>I1</InstrId><MsgId>M1</MsgId>{missing}")),
        "<Btch><MsgId>M1</MsgId></Btch>".into(),
    ] {
        let content = format!("{}{}", balances("3", "2"), entry("E1").replace(own, &of_others));
        let file = read(&statement(&content), at()).unwrap();
        assert_eq!((said(&file), &file.set_aside), (vec![], &Vec::new()), "{of_others}");
    }
}
