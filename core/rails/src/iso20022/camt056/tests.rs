//! What banks ask back is read in the versions and forms in which they pass it on, and answered by the schema.

use chrono::{DateTime, Utc};
use dvp_domain::recall::RefusalReason;
use dvp_store::orders::received_recalls::ReceivedRecall;

use super::super::answers::{FileError, ParsedFile, read as read_file};
use super::super::camt029;
use super::super::schema::check;
use super::*;

fn at() -> DateTime<Utc> {
    "2026-05-03T12:00:40Z".parse().unwrap()
}

fn file(version: &str, body: &str) -> Result<ParsedFile, FileError> {
    let text = format!(
        "<Document xmlns=\"urn:iso:std:iso:20022:tech:xsd:camt.056.001.{version}\"><FIToFIPmtCxlReq>{body}</FIToFIPmtCxlReq></Document>"
    );
    read_file(text.as_bytes(), at())
}

fn assigned(bic: &str) -> String {
    format!(
        "<Assgnmt><Id>A-1</Id><Assgnr><Agt><FinInstnId><{bic}>DEUTDEFF</{bic}></FinInstnId></Agt></Assgnr>\
         <Assgne><Agt><FinInstnId><{bic}>SANDUS33</{bic}></FinInstnId></Agt></Assgne>\
         <CreDtTm>2026-05-02T09:00:00Z</CreDtTm></Assgnmt>\
         <Case><Id>CASE-7</Id><Cretr><Pty><Nm>Jane Doe</Nm></Pty></Cretr></Case>"
    )
}

const PAYMENT: &str = "<CxlId>C-1</CxlId><OrgnlGrpInf><OrgnlMsgId>M-1</OrgnlMsgId><OrgnlMsgNmId>pacs.008.001.08</OrgnlMsgNmId></OrgnlGrpInf>\
     <OrgnlEndToEndId>DEP-1</OrgnlEndToEndId><OrgnlTxId>T-1</OrgnlTxId>\
     <OrgnlIntrBkSttlmAmt Ccy=\"EUR\">1000.5</OrgnlIntrBkSttlmAmt>\
     <CxlRsnInf><Orgtr><Nm>Jane Doe</Nm></Orgtr><Rsn><Cd>AC03</Cd></Rsn><AddtlInf>typed</AddtlInf><AddtlInf>wrongly</AddtlInf></CxlRsnInf>";

fn one(file: ParsedFile) -> NewReceivedRecall {
    let [asked] = <[_; 1]>::try_from(file.asked).unwrap();
    asked
}

#[test]
fn a_request_of_any_version_says_the_same() {
    for (version, bic) in [("01", "BIC"), ("08", "BICFI"), ("12", "BICFI")] {
        let text = format!("{}<Undrlyg><TxInf>{PAYMENT}</TxInf></Undrlyg>", assigned(bic));
        let read = file(version, &text).unwrap();
        assert_eq!(read.set_aside, [""; 0]);
        let text = |text: &str| Some(text.to_owned());
        let expected = NewReceivedRecall {
            assigner: "DEUTDEFF".to_owned(),
            request: "C-1".to_owned(),
            case_id: text("CASE-7"),
            case_creator: text("Jane Doe"),
            message_id: text("M-1"),
            end_to_end_id: "DEP-1".to_owned(),
            uetr: None,
            transaction_id: text("T-1"),
            amount: Some(Minor::new(100_050)),
            currency: text("EUR"),
            reason: text("AC03"),
            information: text("typed wrongly"),
        };
        assert_eq!(one(read), expected);
    }
    assert!(matches!(file("13", &assigned("BICFI")), Err(FileError::UnknownMessage(_))));
}

#[test]
fn a_part_that_is_not_understood_is_set_aside_alone() {
    let money = |amount: &str| {
        format!(
            "<TxInf><OrgnlEndToEndId>DEP-{amount}</OrgnlEndToEndId><OrgnlIntrBkSttlmAmt Ccy=\"EUR\">{amount}</OrgnlIntrBkSttlmAmt></TxInf>"
        )
    };
    let other =
        "<TxInf><OrgnlTxId>T-2</OrgnlTxId><OrgnlIntrBkSttlmAmt Ccy=\"XXZ\">1</OrgnlIntrBkSttlmAmt></TxInf>";
    let nameless = "<TxInf><CxlId>C-9</CxlId><OrgnlEndToEndId>NOTPROVIDED</OrgnlEndToEndId></TxInf>";
    let parts = [money("0"), money("1.005"), money("-1"), other.to_owned(), nameless.to_owned(), money("2")];
    let read = file("08", &format!("{}<Undrlyg>{}</Undrlyg>", assigned("BICFI"), parts.concat())).unwrap();
    assert_eq!(read.set_aside.len(), 5, "{:?}", read.set_aside);
    let read = one(read);
    assert_eq!((read.end_to_end_id.as_str(), read.request.as_str()), ("DEP-2", "CASE-7"));
    let nothing = file("08", &assigned("BICFI"));
    assert_eq!(nothing.unwrap_err().to_string(), "the message names no payment");
    let unnamed = "<TxInf><OrgnlTxId>T-1</OrgnlTxId></TxInf><TxInf><OrgnlTxId>T-2</OrgnlTxId></TxInf>";
    let read = file("08", &format!("{}<Undrlyg>{unnamed}</Undrlyg>", assigned("BICFI"))).unwrap();
    let requests: Vec<&str> = read.asked.iter().map(|asked| asked.request.as_str()).collect();
    assert_eq!(requests, ["CASE-7/T-1", "CASE-7/T-2"]);
    let whole = "<Undrlyg><OrgnlGrpInfAndCxl><OrgnlMsgId>M-2</OrgnlMsgId></OrgnlGrpInfAndCxl></Undrlyg>";
    let read = one(file("08", &format!("{}{whole}", assigned("BICFI"))).unwrap());
    assert_eq!((read.message_id.as_deref(), read.end_to_end_id.as_str()), (Some("M-2"), ""));
}

#[test]
fn an_answer_keeps_to_the_schema_whatever_the_request_left_out() {
    let debtor = Debtor {
        name: "DVP".into(),
        currency: "EUR".into(),
        account: "DE89370400440532013000".into(),
        bic: "SANDUS33".into(),
        country: "DE".into(),
        town: None,
        street: None,
        post_code: None,
        purpose: None,
    };
    let full = format!("{}<Undrlyg><TxInf>{PAYMENT}</TxInf></Undrlyg>", assigned("BICFI"));
    let full = one(file("08", &full).unwrap());
    let bare = NewReceivedRecall {
        assigner: "Some Bank".into(),
        request: "C-1".into(),
        case_id: Some("CASE".into()),
        uetr: Some("97ED4827-7B6F-4491-A06F-B548D5A7512D".into()),
        ..NewReceivedRecall::default()
    };
    let unnamed = NewReceivedRecall { case_id: None, end_to_end_id: "DEP-1".into(), ..bare.clone() };
    for asked in [full, bare, unnamed] {
        for refusal in [None].into_iter().chain(RefusalReason::ALL.map(Some)) {
            let recall = ReceivedRecall {
                id: "rcr_0123456789abcdef0123456789abcdef".parse().unwrap(),
                asked: asked.clone(),
                received_at: at(),
                answer: Some(refusal),
                answered_at: Some(at()),
                giving: None,
                sent_at: None,
            };
            let document = camt029::build(&debtor, &recall, refusal, at());
            assert_eq!(check(Message::Camt029, &document), []);
            let text = document.render();
            let status = if refusal.is_some() { "<TxCxlSts>RJCR" } else { "<TxCxlSts>ACCR" };
            assert!(text.contains(status) && text.contains("RCA0123456789ABCDEF"), "{text}");
            assert_eq!(text.contains("<Cd>"), refusal.is_some());
        }
    }
}
