//! What the bank's files say, as the service reads them, and the files that it writes, for checks by other programs.
//!
//! `bank_files read DIR` prints a JSON object for each file of a directory; `bank_files write DIR` writes payment orders
//! of every scheme to all names of the list that is read from the standard input (a name a line), a recall and a
//! statement.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::io::Read as _;
use std::path::Path;
use std::{env, fs, io};

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::beneficiary::{Beneficiary, BeneficiaryAddress, PayoutMethod};
use dvp_domain::ids::RecallId;
use dvp_domain::money::Minor;
use dvp_domain::payment::PaymentSubject;
use dvp_domain::recall::RecallReason;
use dvp_rails::iso20022::answers::{self, ParsedFile};
use dvp_rails::iso20022::camt053::{self, Line, StatementOf};
use dvp_rails::iso20022::camt056::{self, RecallRequest};
use dvp_rails::iso20022::instruction::{Debtor, Instruction, check_payout};
use dvp_rails::iso20022::pain001;
use dvp_rails::iso20022::word::PaymentReport;
use dvp_rails::{LegKind, PayoutOrder, RailRequest};
use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["read", folder] => read(Path::new(folder)),
        ["write", folder] => write(Path::new(folder)),
        _ => Err(io::Error::other("usage: bank_files read DIR, or bank_files write DIR < names")),
    }
}

fn read(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let understood = match answers::read(&fs::read(&path)?, Utc::now()) {
            Ok(file) => told(&name, &file),
            Err(error) => json!({ "file": name, "error": error.to_string(), "kind": kind(&error) }),
        };
        println!("{understood}");
    }
    Ok(())
}

const fn kind(error: &answers::FileError) -> &'static str {
    match error {
        answers::FileError::Unreadable(_) => "unreadable",
        answers::FileError::UnknownMessage(_) => "unknown message",
        answers::FileError::SetAside(_) => "set aside",
    }
}

fn told(name: &str, file: &ParsedFile) -> Value {
    let statements: Vec<Value> = file
        .statements
        .iter()
        .map(|one| {
            json!({
                "id": one.id, "account": one.account, "currency": one.currency, "opening": one.opening.to_string(),
                "closing": one.closing.to_string(), "entries": one.entries.len(),
            })
        })
        .collect();
    let of_statements = file.statements.iter().flat_map(|statement| &statement.said);
    let said: Vec<Value> = file.said.iter().chain(of_statements).map(word).collect();
    let recalls: Vec<Value> = file
        .recalls
        .iter()
        .map(|recall| json!([recall.of.payment.as_ref().map(id), format!("{:?}", recall.answer)]))
        .collect();
    let set_aside: Vec<&str> = file.set_aside.iter().map(|part| part.why.as_str()).collect();
    json!({ "file": name, "said": said, "statements": statements, "recalls": recalls, "setAside": set_aside })
}

fn word(report: &PaymentReport) -> Value {
    json!([id(&report.of), report.word.as_str()])
}

fn id(of: &PaymentSubject) -> &str {
    match of {
        PaymentSubject::Message(id)
        | PaymentSubject::Block(id)
        | PaymentSubject::Payment(id)
        | PaymentSubject::Uetr(id) => id,
    }
}

fn write(folder: &Path) -> io::Result<()> {
    let mut names = String::new();
    io::stdin().read_to_string(&mut names)?;
    let wrong = |what: &dyn std::fmt::Display| io::Error::other(what.to_string());
    let at: DateTime<Utc> = "2026-11-21T12:00:40Z".parse().map_err(|error| wrong(&error))?;
    for method in PayoutMethod::ALL {
        let (mut payments, mut currency) = (Vec::new(), String::new());
        for (n, name) in names.lines().filter(|name| !name.trim().is_empty()).enumerate() {
            let request = request(method, name, n, at);
            currency.clone_from(&request.currency);
            let order = PayoutOrder {
                beneficiary: request.beneficiary.as_ref(),
                amount: request.amount,
                currency: &request.currency,
                exponent: request.exponent,
                reference: None,
            };
            // Nacha's names are the shortest ones.
            if check_payout(&order).is_err() && method == PayoutMethod::Ach {
                continue;
            }
            let payment = Instruction::of(&request).map_err(|why| wrong(&format!("{name}: {why}")))?;
            payments.push(payment.made_for(name));
        }
        let document = pain001::build(&format!("M-{}", method.as_str()), &debtor(&currency), &payments, at);
        fs::write(folder.join(format!("{}.pain.001.001.09.xml", method.as_str())), document.render())?;
    }
    let recall = RecallRequest {
        id: &RecallId::from_unique("0123456789abcdef0123456789abcdef"),
        approved_at: at,
        reason: RecallReason::Customer,
        information: Some("Şirket: ödeme iptali"),
        end_to_end_id: &"0123456789ABCDEF".repeat(2),
        message_id: "M1",
        amount: Minor::new(9_935),
        currency: "EUR",
        exponent: 2,
    };
    fs::write(folder.join("recall.camt.056.001.08.xml"), camt056::build(&debtor("EUR"), &recall).render())?;
    let lines = names.lines().map(|name| Line {
        currency: "EUR".into(),
        amount: -9_935,
        end_to_end_id: None,
        bank_reference: "BK1".into(),
        text: Some(name.to_owned()),
        at,
    });
    let statement = StatementOf {
        account: "DE89370400440532013000".into(),
        currency: "EUR".into(),
        id: "S1".into(),
        from: at,
        to: at + TimeDelta::days(1),
        opening: 0,
        lines: lines.collect(),
    };
    let file = camt053::file("S1", at, [statement.statement(Some("Łódź Ğüneş ΑΒΓ"))]);
    fs::write(folder.join("statement.camt.053.001.08.xml"), file)
}

fn debtor(currency: &str) -> Debtor {
    Debtor {
        name: "Ödeme Hizmetleri Anonim Şirketi".into(),
        currency: currency.into(),
        account: if currency == "EUR" { "DE89370400440532013000".into() } else { "400500600".into() },
        bic: "SANDDEFF".into(),
        country: "DE".into(),
        town: Some("Köln".into()),
        street: Some("Taunusanlage 1".into()),
        post_code: Some("60329".into()),
        purpose: Some("TREA".into()),
    }
}

fn request(method: PayoutMethod, name: &str, n: usize, at: DateTime<Utc>) -> RailRequest {
    let (account, swift_code, bank, currency) = match method {
        PayoutMethod::Sepa | PayoutMethod::SepaInstant => ("DE89370400440532013000", None, None, "EUR"),
        PayoutMethod::Swift => ("GB82WEST12345698765432", Some("WESTGB2L"), None, "USD"),
        PayoutMethod::Wire => ("000123456789", None, Some("USABA021000021 JPMorgan Chase"), "USD"),
        PayoutMethod::Ach => ("000123456789", None, Some("USABA021000021"), "USD"),
    };
    let address = BeneficiaryAddress {
        line1: format!("{name} 1"),
        city: name.chars().take(16).collect(),
        state: String::new(),
        postal_code: "8001".into(),
    };
    RailRequest {
        trace: None,
        leg: LegKind::Payout,
        reference: format!("{n:064x}"),
        account: account.into(),
        beneficiary: Some(Beneficiary {
            account: Some(account.into()),
            name: Some(name.into()),
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
        payer_reference: Some(name.into()),
        partner: String::new(),
        not_after: at,
    }
}
