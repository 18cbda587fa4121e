//! Written files match the schema, read files are interpreted correctly, and reports may come in any order.

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::beneficiary::{Beneficiary, BeneficiaryAddress, PayoutMethod};
use dvp_domain::ids::RecallId;
use dvp_domain::money::Minor;
use dvp_domain::payment::{PaymentStatus, PaymentSubject};
use dvp_domain::recall::{RecallAnswer, RecallReason, RecallSubject};
use expect_test::{expect, expect_file};

use super::answers::read;
use super::camt029::RecallReport;
use super::camt056::{self, RecallRequest, case_of, recall_of};
use super::instruction::{Debtor, Instruction, check_payout, uetr};
use super::pain001::{build, message_id};
use super::schema::{Message, check};
use super::status::{After, Known, Ordered, apply};
use super::word::{GivenBack, PaymentReport, Word};
use super::xml::{Document, Node};
use crate::{LegKind, PayoutOrder, RailRequest, Unpayable};

fn at() -> DateTime<Utc> {
    "2026-11-21T12:00:40Z".parse().unwrap()
}

fn debtor(currency: &str) -> Debtor {
    Debtor {
        name: "DVP Settlement Ltd".into(),
        currency: currency.into(),
        account: if currency == "EUR" { "DE89370400440532013000".into() } else { "400500600".into() },
        bic: "SANDDEFF".into(),
        country: "DE".into(),
        town: Some("Frankfurt am Main".into()),
        street: Some("Taunusanlage 1".into()),
        post_code: Some("60329".into()),
        purpose: None,
    }
}

/// A payment that each rail takes.
fn request(method: PayoutMethod) -> RailRequest {
    let (account, swift_code, bank, currency) = match method {
        PayoutMethod::Sepa | PayoutMethod::SepaInstant => ("DE89 3704 0044 0532 0130 00", None, None, "EUR"),
        PayoutMethod::Swift => ("GB82WEST12345698765432", Some("westgb2l"), None, "USD"),
        PayoutMethod::Wire => ("000123456789", None, Some("USABA021000021 JPMorgan Chase"), "USD"),
        PayoutMethod::Ach => ("000123456789", None, Some("USABA021000021"), "USD"),
    };
    let address = BeneficiaryAddress {
        line1: "1 Königstraße".into(),
        city: "Zürich".into(),
        state: "ZH".into(),
        postal_code: "8001".into(),
    };
    RailRequest {
        trace: None,
        leg: LegKind::Payout,
        reference: "0123456789abcdef".repeat(4),
        account: account.into(),
        beneficiary: Some(Beneficiary {
            account: Some(account.into()),
            name: Some("Müller & Söhne <GmbH>".into()),
            country: Some("CH".into()),
            payout_method: Some(method),
            swift_code: swift_code.map(str::to_owned),
            bank: bank.map(str::to_owned),
            address: Some(address),
            travel_rule_data: None,
        }),
        amount: Minor::new(9_935),
        currency: currency.into(),
        exponent: 2,
        sold: None,
        provider_reference: None,
        execution: "exe_1".into(),
        payer_reference: Some("INV-2026/7 für März".into()),
        partner: String::new(),
        not_after: at() + TimeDelta::seconds(10),
    }
}

fn order(method: PayoutMethod) -> Document {
    let request = request(method);
    let instruction = Instruction::of(&request).unwrap().made_for("Ağrı Ödeme Ltd");
    build(&message_id(&instruction.end_to_end_id), &debtor(&request.currency), &[instruction], at())
}

fn refusal(change: impl Fn(&mut RailRequest), method: PayoutMethod) -> &'static str {
    let mut request = request(method);
    change(&mut request);
    Instruction::of(&request).map_or_else(|Unpayable { code, .. }| code, |_| "taken")
}

/// The answer to an order with a payer's reference of its own.
fn of_deposit(reference: &str, method: PayoutMethod) -> &'static str {
    let request = request(method);
    let order = PayoutOrder {
        beneficiary: request.beneficiary.as_ref(),
        amount: request.amount,
        currency: &request.currency,
        exponent: request.exponent,
        reference: Some(("metadata.depositReference", reference)),
    };
    check_payout(&order).map_or_else(|Unpayable { code, .. }| code, |()| "taken")
}

#[test]
fn each_rails_order_is_the_committed_file_and_matches_the_schema() {
    for method in PayoutMethod::ALL {
        let document = order(method);
        assert_eq!(check(Message::Pain001, &document), [], "{method:?}");
        let text = document.render();
        match method {
            PayoutMethod::Sepa => expect_file!["golden/sepa.xml"].assert_eq(&text),
            PayoutMethod::SepaInstant => expect_file!["golden/sepa_instant.xml"].assert_eq(&text),
            PayoutMethod::Swift => expect_file!["golden/swift.xml"].assert_eq(&text),
            PayoutMethod::Wire => expect_file!["golden/wire.xml"].assert_eq(&text),
            PayoutMethod::Ach => expect_file!["golden/ach.xml"].assert_eq(&text),
        }
        assert_eq!(Document::read(text.as_bytes()).unwrap().root.children, document.root.children);
    }
}

#[test]
fn an_address_is_written_with_town_and_country_or_not_at_all() {
    let mut request = request(PayoutMethod::Sepa);
    let beneficiary = request.beneficiary.as_mut().unwrap();
    beneficiary.address.as_mut().unwrap().city = " ".into();
    let payment = Instruction::of(&request).unwrap();
    let debtor = Debtor { town: None, ..debtor("EUR") };
    let text = build("M1", &debtor, &[payment], at()).render();
    assert!(!text.contains("PstlAdr"), "{text}");
}

#[test]
fn a_message_of_many_payments_counts_and_sums_them() {
    let of = |method| Instruction::of(&request(method)).unwrap();
    let payments = [of(PayoutMethod::Wire), of(PayoutMethod::Ach)];
    let document = build("M1", &debtor("USD"), &payments, at());
    assert_eq!(check(Message::Pain001, &document), []);
    let header = document.root.at("CstmrCdtTrfInitn/GrpHdr").unwrap();
    assert_eq!((header.text_at("NbOfTxs"), header.text_at("CtrlSum")), (Some("2"), Some("198.70")));
}

#[test]
fn an_order_that_a_rail_cannot_carry_is_refused_before_it_is_sent() {
    use PayoutMethod::{Ach, Sepa, Swift, Wire};
    let details = |change: fn(&mut Beneficiary)| {
        move |request: &mut RailRequest| change(request.beneficiary.as_mut().unwrap())
    };
    assert_eq!(refusal(|_| {}, Sepa), "taken");
    assert_eq!(refusal(|r| r.beneficiary = None, Ach), "beneficiary_details_missing");
    let reference = details(|b| b.account = Some("bene_a:dest_1".into()));
    assert_eq!(refusal(reference, Ach), "beneficiary_unknown");
    assert_eq!(refusal(|r| r.currency = "USD".into(), Sepa), "currency_not_served_by_rail");
    assert_eq!(
        refusal(details(|b| b.account = Some("000123456789".into())), Sepa),
        "beneficiary_account_invalid"
    );
    let broken = details(|b| b.account = Some("DE88370400440532013000".into()));
    assert_eq!(refusal(broken, Swift), "beneficiary_account_invalid", "an IBAN with wrong check digits");
    assert_eq!(refusal(details(|b| b.swift_code = None), Swift), "beneficiary_bank_missing");
    assert_eq!(refusal(details(|b| b.swift_code = Some("NOBIC".into())), Swift), "beneficiary_bank_invalid");
    assert_eq!(refusal(details(|b| b.bank = Some("First National".into())), Ach), "beneficiary_bank_missing");
    assert_eq!(refusal(details(|b| b.address = None), Wire), "beneficiary_address_missing");
    assert_eq!(refusal(details(|b| b.name = Some("日本".into())), Wire), "beneficiary_name_unwritable");
    let long = details(|b| b.name = Some("Ä".repeat(36)));
    assert_eq!(refusal(long, Sepa), "beneficiary_name_unwritable", "72 letters");
    assert_eq!(refusal(long, Wire), "taken");
    assert_eq!(refusal(details(|b| b.name = Some("J".repeat(23))), Ach), "beneficiary_name_unwritable");
    for (method, most) in [(Sepa, 99_999_999_999), (Wire, 999_999_999_999), (Ach, 9_999_999_999)] {
        assert_eq!(refusal(|r| r.amount = Minor::new(most), method), "taken", "{method:?}");
        assert_eq!(
            refusal(|r| r.amount = Minor::new(most + 1), method),
            "amount_over_rail_limit",
            "{method:?}"
        );
    }
    for (method, most) in [(Sepa, 140), (Swift, 140), (Ach, 80)] {
        assert_eq!(refusal(|r| r.payer_reference = Some("R".repeat(most)), method), "taken", "{method:?}");
        for unwritable in ["R".repeat(most + 1), "請求書 7".into()] {
            let to = |request: &mut RailRequest| request.payer_reference = Some(unwritable.clone());
            assert_eq!(refusal(to, method), "taken", "{method:?}: a correlation key");
            assert_eq!(of_deposit(&unwritable, method), "reference_unwritable", "{method:?}");
        }
    }
    assert_eq!(
        refusal(details(|b| b.account = Some("XX86ABCDEFGHIJK".into())), Wire),
        "beneficiary_account_invalid"
    );
    for method in [Swift, Wire] {
        let no_town = details(|b| b.address.as_mut().unwrap().city.clear());
        assert_eq!(refusal(no_town, method), "beneficiary_address_missing", "{method:?}");
        assert_eq!(
            refusal(details(|b| b.country = None), method),
            "beneficiary_address_missing",
            "{method:?}"
        );
    }
    for method in [Sepa, Wire] {
        for to in [
            details(|b| b.address.as_mut().unwrap().city = "東京".into()),
            details(|b| b.address.as_mut().unwrap().city = "Ö".repeat(18)),
        ] {
            assert_eq!(refusal(to, method), "beneficiary_address_unwritable", "{method:?}");
        }
    }
    let mut unwritable = request(Ach);
    unwritable.beneficiary.as_mut().unwrap().address.as_mut().unwrap().state = "\u{6771}".into();
    assert_eq!(Instruction::of(&unwritable).unwrap_err().field, "beneficiary.address.state");
    assert_eq!(refusal(|r| r.exponent = 6, Wire), "amount_unwritable");
    assert_eq!(refusal(|r| r.amount = Minor::ZERO, Wire), "amount_unwritable");
}

#[test]
fn a_payment_has_the_same_ids_at_every_attempt_and_unique_ones() {
    let first = Instruction::of(&request(PayoutMethod::Swift)).unwrap();
    let again = Instruction::of(&request(PayoutMethod::Swift)).unwrap();
    assert_eq!(first.end_to_end_id, again.end_to_end_id);
    let mut other = request(PayoutMethod::Swift);
    other.reference = "f".repeat(64);
    assert_ne!(uetr(&Instruction::of(&other).unwrap().end_to_end_id), uetr(&first.end_to_end_id));
    assert!(message_id(&first.end_to_end_id).len() <= 35);
}

/// Changes the first element of a name, wherever it is.
fn change(node: &mut Node, name: &str, change: &dyn Fn(&mut Node)) -> bool {
    if node.name == name {
        change(node);
        return true;
    }
    node.children.iter_mut().any(|child| self::change(child, name, change))
}

#[test]
fn every_kind_of_schema_violation_is_found() {
    let broken = |name: &str, by: &dyn Fn(&mut Node)| {
        let mut document = order(PayoutMethod::Wire);
        assert!(change(&mut document.root, name, by), "{name}");
        let found = check(Message::Pain001, &document);
        found.first().map(|violation| format!("{}: {}", violation.path, violation.what)).unwrap_or_default()
    };
    let found = [
        broken("GrpHdr", &|node| node.children.swap(0, 1)),
        broken("GrpHdr", &|node| drop(node.children.remove(0))),
        broken("MsgId", &|node| node.text = "x".repeat(36)),
        broken("MsgId", &|node| node.text.clear()),
        broken("PmtMtd", &|node| node.text = "CHK".into()),
        broken("PmtMtd", &|node| node.name = "PmtMethod".into()),
        broken("InstdAmt", &|node| node.text = "1.005".into()),
        broken("InstdAmt", &|node| node.attributes.clear()),
        broken("InstdAmt", &|node| node.text = "-1.00".into()),
        broken("BICFI", &|node| node.text = "SANDDE".into()),
        broken("CreDtTm", &|node| node.text = "yesterday".into()),
        broken("Dt", &|node| node.text = "2026-02-30".into()),
        broken("CdtrAcct", &|node| {
            node.children[0].children.push(Node::leaf("IBAN", "DE89370400440532013000"));
        }),
        broken("UETR", &|node| node.text = node.text.to_uppercase()),
        broken("PmtInf", &|node| node.text = "text".into()),
        broken("Ctry", &|node| node.text = "CHE".into()),
        broken("RmtInf", &|node| node.children[0].text = "a\u{7}b".into()),
    ];
    expect![[r#"
        Document/CstmrCdtTrfInitn/GrpHdr: MsgId is out of order
        Document/CstmrCdtTrfInitn/GrpHdr: MsgId occurs 0 times
        Document/CstmrCdtTrfInitn/GrpHdr/MsgId: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" is no text35
        Document/CstmrCdtTrfInitn/GrpHdr/MsgId: "" is no text35
        Document/CstmrCdtTrfInitn/PmtInf/PmtMtd: "CHK" is no TRF
        Document/CstmrCdtTrfInitn/PmtInf: unknown element PmtMethod
        Document/CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf/Amt/InstdAmt: "1.005" is no amount of USD
        Document/CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf/Amt/InstdAmt: an amount without its currency
        Document/CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf/Amt/InstdAmt: "-1.00" is no amount of USD
        Document/CstmrCdtTrfInitn/PmtInf/DbtrAgt/FinInstnId/BICFI: "SANDDE" is no bic
        Document/CstmrCdtTrfInitn/GrpHdr/CreDtTm: "yesterday" is no datetime
        Document/CstmrCdtTrfInitn/PmtInf/ReqdExctnDt/Dt: "2026-02-30" is no date
        Document/CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf/CdtrAcct/Id: 2 of exactly one choice
        Document/CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf/PmtId/UETR: "01234567-89AB-4DEF-8123-456789ABCDEF" is no uuid4
        Document/CstmrCdtTrfInitn/PmtInf: text between elements
        Document/CstmrCdtTrfInitn/PmtInf/Dbtr/PstlAdr/Ctry: "CHE" is no country
        Document/CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf/RmtInf/Ustrd: "a\u{7}b" is no text140"#]].assert_eq(&found.join("\n"));
    let mut other = order(PayoutMethod::Wire);
    other.namespace = Message::Pain002.namespace();
    assert_eq!(check(Message::Pain001, &other).len(), 1);
}

fn report(inner: &str) -> Vec<u8> {
    format!(
        "<Document xmlns='{}'><CstmrPmtStsRpt><GrpHdr><MsgId>S1</MsgId><CreDtTm>2026-11-21T12:00:40</CreDtTm>\
         </GrpHdr>{inner}</CstmrPmtStsRpt></Document>",
        Message::Pain002.namespace()
    )
    .into_bytes()
}

fn said(content: &[u8]) -> Vec<PaymentReport> {
    read(content, at()).unwrap().said
}

fn pending(status: &str) -> Word {
    Word::Pending { status: status.into() }
}

#[test]
fn a_payments_status_precedes_that_of_its_block_and_message() {
    let group = |status: &str| {
        format!(
            "<OrgnlGrpInfAndSts><OrgnlMsgId>M1</OrgnlMsgId><OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId>\
             <GrpSts>{status}</GrpSts></OrgnlGrpInfAndSts>"
        )
    };
    let only = said(&report(&group("ACTC")));
    assert_eq!(only, [PaymentReport { of: PaymentSubject::Message("M1".into()), word: pending("ACTC") }]);
    let block =
        "<OrgnlPmtInfAndSts><OrgnlPmtInfId>P1</OrgnlPmtInfId><PmtInfSts>ACCP</PmtInfSts></OrgnlPmtInfAndSts>";
    let blocks = said(&report(&format!("{}{block}", group("ACCP"))));
    assert_eq!(blocks, [PaymentReport { of: PaymentSubject::Block("P1".into()), word: pending("ACCP") }]);
    let parts = "<OrgnlPmtInfAndSts><OrgnlPmtInfId>P1</OrgnlPmtInfId><PmtInfSts>PART</PmtInfSts>\
                 <TxInfAndSts><OrgnlEndToEndId>E1</OrgnlEndToEndId><TxSts>ACSC</TxSts>\
                 <AccptncDtTm>2026-11-21T11:00:00+01:00</AccptncDtTm><AcctSvcrRef>B1</AcctSvcrRef></TxInfAndSts>\
                 <TxInfAndSts><OrgnlEndToEndId>E2</OrgnlEndToEndId><TxSts>RJCT</TxSts><StsRsnInf><Rsn><Cd>AC04</Cd>\
                 </Rsn><AddtlInf>closed</AddtlInf></StsRsnInf></TxInfAndSts></OrgnlPmtInfAndSts>";
    let paid = Word::Paid {
        at: "2026-11-21T10:00:00Z".parse().unwrap(),
        bank_reference: Some("B1".into()),
        amount: None,
    };
    let refused = Word::Refused { reason: "AC04".into(), text: "closed".into() };
    let of = |id: &str| PaymentSubject::Payment(id.into());
    let payments = said(&report(&format!("{}{parts}", group("PART"))));
    assert_eq!(
        payments,
        [PaymentReport { of: of("E1"), word: paid }, PaymentReport { of: of("E2"), word: refused.clone() }]
    );
    // A listed payment without a status of its own has that of its block, and else that of the message.
    let because = "<StsRsnInf><Rsn><Cd>AC04</Cd></Rsn><AddtlInf>closed</AddtlInf></StsRsnInf>";
    let listed = |block: &str| {
        format!(
            "<OrgnlPmtInfAndSts><OrgnlPmtInfId>P1</OrgnlPmtInfId>{block}<TxInfAndSts>\
             <OrgnlEndToEndId>E1</OrgnlEndToEndId></TxInfAndSts></OrgnlPmtInfAndSts>"
        )
    };
    for (of_group, of_block) in [
        ("PART", format!("<PmtInfSts>RJCT</PmtInfSts>{because}")),
        ("RJCT", format!("<PmtInfSts>RJCT</PmtInfSts>{because}")),
        ("RJCT", because.to_owned()),
    ] {
        let payments = said(&report(&format!("{}{}", group(of_group), listed(&of_block))));
        assert_eq!(
            payments,
            [PaymentReport { of: of("E1"), word: refused.clone() }],
            "{of_group} {of_block}"
        );
    }
    let partly = said(&report(&format!("{}{}", group("RJCT"), listed("<PmtInfSts>PART</PmtInfSts>"))));
    assert_eq!(partly, [], "a block that is partly accepted decides nothing about its payments");
}

#[test]
fn a_refusal_as_a_duplicate_does_not_refuse_the_payment() {
    let inner = "<OrgnlGrpInfAndSts><OrgnlMsgId>M1</OrgnlMsgId><OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId>\
                 <GrpSts>RJCT</GrpSts><StsRsnInf><Rsn><Cd>AM05</Cd></Rsn></StsRsnInf></OrgnlGrpInfAndSts>";
    assert_eq!(said(&report(inner))[0].word, Word::TakenForDuplicate);
    // The status and the reason may be at different levels.
    let because = |code: &str| format!("<StsRsnInf><Rsn><Cd>{code}</Cd></Rsn></StsRsnInf>");
    let of = |of_group: &str, of_block: &str, payment: &str| {
        let content = report(&format!(
            "<OrgnlGrpInfAndSts><OrgnlMsgId>M1</OrgnlMsgId><OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId>\
             <GrpSts>RJCT</GrpSts>{of_group}</OrgnlGrpInfAndSts><OrgnlPmtInfAndSts><OrgnlPmtInfId>P1</OrgnlPmtInfId>\
             {of_block}{payment}</OrgnlPmtInfAndSts>"
        ));
        said(&content)
    };
    let duplicate = |of| [PaymentReport { of, word: Word::TakenForDuplicate }];
    let (payment, block) = (PaymentSubject::Payment("E1".into()), PaymentSubject::Block("P1".into()));
    for own in
        ["", "<TxSts>RJCT</TxSts>", "<TxSts>RJCT</TxSts><StsRsnInf><Rsn><Cd>NARR</Cd></Rsn></StsRsnInf>"]
    {
        let listed = format!("<TxInfAndSts><OrgnlEndToEndId>E1</OrgnlEndToEndId>{own}</TxInfAndSts>");
        assert_eq!(of(&because("DU01"), "", &listed), duplicate(payment.clone()), "{own}");
        assert_eq!(of("", &because("DU01"), &listed), duplicate(payment.clone()), "{own}");
    }
    assert_eq!(of(&because("DU01"), "<PmtInfSts>RJCT</PmtInfSts>", ""), duplicate(block.clone()));
    assert_eq!(of("", &because("DU01"), ""), duplicate(block));
    assert_eq!(of(&because("DU01"), "", ""), duplicate(PaymentSubject::Message("M1".into())));
}

fn notification(entry: &str) -> Vec<u8> {
    format!(
        "<Document xmlns='{}'><BkToCstmrDbtCdtNtfctn><GrpHdr><MsgId>N1</MsgId><CreDtTm>2026-11-21T12:00:40Z</CreDtTm>\
         </GrpHdr><Ntfctn><Id>N1</Id><Acct><Id><Othr><Id>1</Id></Othr></Id></Acct><Ntry>{entry}</Ntry></Ntfctn>\
         </BkToCstmrDbtCdtNtfctn></Document>",
        Message::Camt054.namespace()
    )
    .into_bytes()
}

#[test]
fn only_a_booked_debit_is_a_payment_and_a_returned_credit_a_return() {
    let reversible = |direction: &str, reversal: &str, status: &str, more: &str| {
        let content = notification(&format!(
            "<Amt Ccy='USD'>99.35</Amt><CdtDbtInd>{direction}</CdtDbtInd>{reversal}<Sts><Cd>{status}</Cd></Sts>\
             <BookgDt><Dt>2026-11-20</Dt></BookgDt><BkTxCd/><NtryDtls><TxDtls><Refs><EndToEndId>E1</EndToEndId></Refs>\
             {more}</TxDtls></NtryDtls>"
        ));
        said(&content).pop().map(|said| said.word)
    };
    let entry = |direction: &str, status: &str, more: &str| reversible(direction, "", status, more);
    let paid = Word::Paid {
        at: "2026-11-20T00:00:00Z".parse().unwrap(),
        bank_reference: None,
        amount: Some(("99.35".into(), "USD".into())),
    };
    assert_eq!(entry("DBIT", "BOOK", ""), Some(paid));
    assert_eq!(entry("DBIT", "PDNG", ""), Some(pending("PDNG")));
    assert_eq!(entry("DBIT", "INFO", ""), None);
    assert_eq!(entry("CRDT", "BOOK", ""), None, "money of another payer");
    let returned = |reason: &str, amount: &str, by| {
        let (reason, amount) = (reason.to_owned(), Some((amount.to_owned(), "USD".to_owned())));
        Some(Word::Returned { reason, at: "2026-11-20T00:00:00Z".parse().unwrap(), amount, by })
    };
    let info = "<RtrInf><Rsn><Cd>AC04</Cd></Rsn></RtrInf>";
    let deducted = format!("<Amt Ccy='USD'>90</Amt>{info}");
    assert_eq!(entry("CRDT", "BOOK", info), returned("AC04", "99.35", GivenBack::Return));
    assert_eq!(entry("CRDT", "BOOK", &deducted), returned("AC04", "90", GivenBack::Return));
    let reversal = "<RvslInd>true</RvslInd>";
    let taken_back = Word::TakenBack {
        at: "2026-11-20T00:00:00Z".parse().unwrap(),
        amount: Some(("99.35".into(), "USD".into())),
    };
    assert_eq!(reversible("DBIT", reversal, "BOOK", ""), Some(taken_back));
    assert_eq!(reversible("DBIT", reversal, "PDNG", ""), None);
    let reversed = reversible("CRDT", reversal, "BOOK", "");
    assert_eq!(reversed, returned("NARR", "99.35", GivenBack::Reversal));
    assert_eq!(
        reversible("CRDT", reversal, "BOOK", info),
        returned("AC04", "99.35", GivenBack::Return),
        "a return that is booked as a reversal"
    );
}

#[test]
fn every_form_that_the_types_of_a_schema_have_is_read() {
    let plain = "<Amt Ccy='USD'>99.35</Amt><CdtDbtInd>CRDT</CdtDbtInd><RvslInd>true</RvslInd><Sts><Cd>BOOK</Cd></Sts>\
                 <BookgDt><Dt>2026-11-20</Dt></BookgDt><BkTxCd/><NtryDtls><TxDtls><Refs><EndToEndId>E1</EndToEndId>\
                 </Refs></TxDtls></NtryDtls>";
    let returned = |at: &str| {
        let (at, amount) = (at.parse().unwrap(), Some(("99.35".to_owned(), "USD".to_owned())));
        let word = Word::Returned { reason: "NARR".into(), at, amount, by: GivenBack::Reversal };
        [PaymentReport { of: PaymentSubject::Payment("E1".into()), word }]
    };
    let day = returned("2026-11-20T00:00:00Z");
    let (date, supplement) = ("<Dt>2026-11-20</Dt>", "</TxDtls>");
    for (from, to) in [
        ("true", "1"),
        ("true", " true "),
        ("99.35", "+99.350"),
        ("99.35", "099.35"),
        ("99.35", "\n  99.35\n"),
        ("99.35", "<![CDATA[99.35]]>"),
        ("99.35", "99<!-- point -->.35"),
        ("99.35", "<?bank page?>&#57;9.35"),
        ("E1", "\r\n\tE1\r\n"),
        ("BOOK", "\n BOOK"),
        (date, "<Dt>2026-11-20+01:00</Dt>"),
        (date, "<Dt>2026-11-20Z</Dt>"),
        (date, "<DtTm>2026-11-20T00:00:00</DtTm>"),
        (date, "<DtTm>2026-11-20T01:00:00.000000+01:00</DtTm>"),
        (date, "<DtTm>2026-11-19T24:00:00Z</DtTm>"),
        (supplement, "<RmtInf><Ustrd>line one\nline\ttwo</Ustrd></RmtInf></TxDtls>"),
        (supplement, "<AddtlTxInf>line one\nline\ttwo</AddtlTxInf></TxDtls>"),
        (
            supplement,
            "<SplmtryData><Envlp><x:Any xmlns:x='urn:bank'><x:EndToEndId>E2</x:EndToEndId><Amt xmlns=''/></x:Any>\
             </Envlp></SplmtryData></TxDtls>",
        ),
    ] {
        let entry = plain.replacen(from, to, 1);
        assert_ne!(entry, plain, "{from}");
        assert_eq!(said(&notification(&entry)), day, "{to}");
    }
    // Prefixes, and namespaces that are declared and not used.
    let prefixed = String::from_utf8(notification(plain)).unwrap();
    let prefixed = prefixed.replace("</", "</n:").replace('<', "<n:").replace("<n:/n:", "</n:");
    let prefixed =
        prefixed.replace("xmlns=", "xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' xmlns:n=");
    assert_eq!(said(prefixed.as_bytes()), day);
}

#[test]
fn files_that_are_not_answers_are_refused() {
    let order = order(PayoutMethod::Ach).render();
    let half: String = order.chars().take(300).collect();
    let unknown = report("<OrgnlGrpInfAndSts><OrgnlMsgId>M1</OrgnlMsgId></OrgnlGrpInfAndSts>");
    for bad in [b"garbage".to_vec(), order.into_bytes(), half.into_bytes(), unknown, Vec::new()] {
        assert!(read(&bad, at()).is_err(), "{}", String::from_utf8_lossy(&bad));
    }
}

#[test]
fn the_table_of_statuses_and_reports_is_complete() {
    let booked = |(amount, currency): (&str, &str)| (amount.to_owned(), currency.to_owned());
    let paid = |amount: Option<(&str, &str)>| Word::Paid {
        at: at(),
        bank_reference: None,
        amount: amount.map(booked),
    };
    let back = |by: GivenBack, amount: Option<(&str, &str)>| Word::Returned {
        reason: "AC04".into(),
        at: at(),
        amount: amount.map(booked),
        by,
    };
    let words = [
        ("pending", pending("ACSP")),
        ("paid", paid(None)),
        ("booked", paid(Some(("99.350", "USD")))),
        ("booked short", paid(Some(("99.34", "USD")))),
        ("booked in another currency", paid(Some(("99.35", "EUR")))),
        ("refused", Word::Refused { reason: "AC04".into(), text: String::new() }),
        ("duplicate", Word::TakenForDuplicate),
        ("returned", back(GivenBack::Return, None)),
        ("returned in full", back(GivenBack::Return, Some(("99.350", "USD")))),
        ("returned short", back(GivenBack::Return, Some(("0.01", "USD")))),
        ("returned with more", back(GivenBack::Return, Some(("99.36", "USD")))),
        ("returned in another currency", back(GivenBack::Return, Some(("90.00", "EUR")))),
        ("reversed", back(GivenBack::Reversal, Some(("99.35", "USD")))),
        ("reversed short", back(GivenBack::Reversal, Some(("0.01", "USD")))),
        ("taken back", Word::TakenBack { at: at(), amount: Some(booked(("99.35", "USD"))) }),
        ("taken back short", Word::TakenBack { at: at(), amount: Some(booked(("0.01", "USD"))) }),
        ("reversed with more", back(GivenBack::Reversal, Some(("993.50", "USD")))),
    ];
    let ordered = Ordered { amount: Minor::new(9_935), currency: "USD", exponent: 2 };
    let mut table = String::new();
    let mut check = |known: Known, taken_for_paid: bool| {
        for (name, word) in &words {
            let After { now, alarm } = apply(known, taken_for_paid, word, ordered);
            let alarm = alarm.map(|alarm| format!(" ALARM {alarm}")).unwrap_or_default();
            let recorded = if taken_for_paid { ", recorded as paid" } else { "" };
            table.push_str(&format!("{}{recorded} + {name} -> {}{alarm}\n", text(known), text(now)));
        }
    };
    let plain =
        |status| Known { status, booked_late: false, came_back: false, taken_back: false, debt_paid: false };
    for status in PaymentStatus::ALL {
        check(plain(status), false);
    }
    for known in [
        Known { came_back: true, ..plain(PaymentStatus::Refused) },
        Known { booked_late: true, ..plain(PaymentStatus::Refused) },
        Known { booked_late: true, came_back: true, ..plain(PaymentStatus::Refused) },
        Known { came_back: true, ..plain(PaymentStatus::Returned) },
        Known { came_back: true, taken_back: true, ..plain(PaymentStatus::Returned) },
        Known { booked_late: true, came_back: true, taken_back: true, ..plain(PaymentStatus::Refused) },
    ] {
        check(known, false);
    }
    check(plain(PaymentStatus::Sent), true);
    check(plain(PaymentStatus::Refused), true);
    check(Known { booked_late: true, ..plain(PaymentStatus::Refused) }, true);
    for status in [PaymentStatus::Sent, PaymentStatus::Paid, PaymentStatus::Refused] {
        check(Known { debt_paid: true, ..plain(status) }, true);
    }
    expect_file!["statuses.txt"].assert_eq(&table);
}

fn text(known: Known) -> String {
    let booked = if known.booked_late { ", booked late" } else { "" };
    // What has the status is not told twice.
    let back = if known.came_back && known.status != PaymentStatus::Returned { ", come back" } else { "" };
    let back = if known.taken_back { format!("{back}, taken back") } else { back.to_owned() };
    let debt = if known.debt_paid { ", debt paid" } else { "" };
    format!("{}{booked}{back}{debt}", known.status.as_str())
}

fn recall_id() -> RecallId {
    RecallId::from_unique("0123456789abcdef0123456789abcdef")
}

#[test]
fn a_recall_is_the_committed_file_and_matches_the_schema() {
    let id = recall_id();
    let end_to_end_id = "0123456789ABCDEF0123456789ABCDEF";
    let message_id = message_id(end_to_end_id);
    let build = |reason, information| {
        let recall = RecallRequest {
            id: &id,
            approved_at: at(),
            reason,
            information,
            end_to_end_id,
            message_id: &message_id,
            amount: Minor::new(9_935),
            currency: "USD",
            exponent: 2,
        };
        camt056::build(&debtor("USD"), &recall)
    };
    let document = build(RecallReason::Fraud, Some("Zahlung <doppelt> & größer"));
    expect_file!["golden/recall.xml"].assert_eq(&document.render());
    let long = "é".repeat(105);
    for reason in RecallReason::ALL {
        for information in [None, Some(""), Some("日本"), Some(&*long)] {
            assert_eq!(
                check(Message::Camt056, &build(reason, information)),
                [],
                "{reason:?} {information:?}"
            );
        }
    }
    let case = case_of(&id);
    assert_eq!((case.len(), recall_of(&case).as_deref()), (35, Some(id.as_str())));
    assert_eq!(recall_of("BANK-7"), None);
}

fn resolution(inner: &str) -> Vec<u8> {
    format!(
        "<Document xmlns='{}'><RsltnOfInvstgtn><Assgnmt><Id>R1</Id><Assgnr><Agt><FinInstnId><BICFI>SANDUS33</BICFI>\
         </FinInstnId></Agt></Assgnr><Assgne><Pty><Nm>us</Nm></Pty></Assgne><CreDtTm>2026-11-21T12:00:40</CreDtTm>\
         </Assgnmt>{inner}</RsltnOfInvstgtn></Document>",
        Message::Camt029.namespace()
    )
    .into_bytes()
}

fn answered(inner: &str) -> Vec<RecallReport> {
    let read = read(&resolution(inner), at()).unwrap();
    assert_eq!((read.message_id.as_str(), read.said.len()), ("R1", 0));
    read.recalls
}

#[test]
fn a_payments_answer_precedes_that_of_its_message_and_of_the_whole() {
    let ours = "RCL0123456789ABCDEF0123456789ABCDEF";
    let case = format!("<RslvdCase><Id>{ours}</Id><Cretr><Pty><Nm>us</Nm></Pty></Cretr></RslvdCase>");
    let sts = |code: &str| format!("<Sts><Conf>{code}</Conf></Sts>");
    let of = |case: bool, payment: Option<PaymentSubject>| RecallSubject {
        case: case.then(|| recall_id().into()),
        payment,
    };
    let payment = |id: &str| Some(PaymentSubject::Payment(id.into()));
    let report = |of, answer| RecallReport { of, answer };
    for (code, answer) in [
        ("CNCL", RecallAnswer::Accepted),
        ("PECR", RecallAnswer::PartlyAccepted),
        ("RJCR", RecallAnswer::Rejected { reason: "NARR".into(), text: String::new() }),
        ("PDCR", RecallAnswer::Pending { status: "PDCR".into() }),
        ("INFO", RecallAnswer::Pending { status: "INFO".into() }),
    ] {
        assert_eq!(answered(&format!("{case}{}", sts(code))), [report(of(true, None), answer)], "{code}");
    }
    // Without a case of ours, and without any word of a payment.
    let nobody = report(of(false, None), RecallAnswer::Accepted);
    assert_eq!(answered(&sts("CNCL")), [nobody]);
    let other = "<RslvdCase><Id>BANK-7</Id><Cretr><Pty><Nm>us</Nm></Pty></Cretr></RslvdCase>";
    let inner = format!(
        "{other}{}<CxlDtls><OrgnlGrpInfAndSts><OrgnlMsgId>M1</OrgnlMsgId><OrgnlMsgNmId>pain.001.001.09</OrgnlMsgNmId>\
         <GrpCxlSts>PACR</GrpCxlSts></OrgnlGrpInfAndSts><OrgnlPmtInfAndSts><OrgnlPmtInfId>P1</OrgnlPmtInfId>\
         <PmtInfCxlSts>RJCR</PmtInfCxlSts><CxlStsRsnInf><Rsn><Cd>ARDT</Cd></Rsn><AddtlInf>gone</AddtlInf></CxlStsRsnInf>\
         <TxInfAndSts><OrgnlEndToEndId>E1</OrgnlEndToEndId></TxInfAndSts></OrgnlPmtInfAndSts><TxInfAndSts>\
         <OrgnlInstrId>E2</OrgnlInstrId><TxCxlSts>ACCR</TxCxlSts></TxInfAndSts><TxInfAndSts>\
         <OrgnlEndToEndId>E3</OrgnlEndToEndId></TxInfAndSts></CxlDtls>",
        sts("PDCR")
    );
    let refused = RecallAnswer::Rejected { reason: "ARDT".into(), text: "gone".into() };
    assert_eq!(
        answered(&inner),
        [
            report(of(false, payment("E2")), RecallAnswer::Accepted),
            report(of(false, payment("E3")), RecallAnswer::Pending { status: "PDCR".into() }),
            report(of(false, payment("E1")), refused),
        ]
    );
    // A block, a message, and the message of the request itself.
    let group = |id: &str| {
        format!(
            "{}<CxlDtls><OrgnlGrpInfAndSts><OrgnlMsgId>{id}</OrgnlMsgId><OrgnlMsgNmId>x</OrgnlMsgNmId>\
             <GrpCxlSts>ACCR</GrpCxlSts></OrgnlGrpInfAndSts></CxlDtls>",
            sts("CNCL")
        )
    };
    let message = Some(PaymentSubject::Message("M1".into()));
    assert_eq!(answered(&group("M1")), [report(of(false, message), RecallAnswer::Accepted)]);
    assert_eq!(answered(&group(ours)), [report(of(true, None), RecallAnswer::Accepted)]);
    let block = format!(
        "{}<CxlDtls><OrgnlPmtInfAndSts><OrgnlPmtInfId>P1</OrgnlPmtInfId></OrgnlPmtInfAndSts></CxlDtls>",
        sts("CNCL")
    );
    let of_block = of(false, Some(PaymentSubject::Block("P1".into())));
    assert_eq!(answered(&block), [report(of_block, RecallAnswer::Accepted)]);
    // A payment that only the bank's own ids name is nobody's.
    let theirs = format!(
        "{}<CxlDtls><TxInfAndSts><OrgnlGrpInf><OrgnlMsgId>M1</OrgnlMsgId><OrgnlMsgNmId>x</OrgnlMsgNmId></OrgnlGrpInf>\
         <OrgnlTxId>T1</OrgnlTxId></TxInfAndSts></CxlDtls>",
        sts("CNCL")
    );
    assert_eq!(answered(&theirs), [report(of(false, None), RecallAnswer::Accepted)]);
    // Our own request is no answer.
    let request = resolution(&sts("CNCL"));
    let request = String::from_utf8(request).unwrap().replace("camt.029.001.09", "camt.056.001.08");
    assert!(read(request.as_bytes(), at()).is_err());
}
