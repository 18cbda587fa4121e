//! Statements by hand say what those of ISO files do.

use super::super::word::Word;
use super::*;

const OWN: &str = "0123456789ABCDEF0123456789ABCDEF";

fn at() -> DateTime<Utc> {
    "2026-01-05T12:00:40Z".parse().unwrap()
}

fn mt940_of(closing: &str, entries: &str) -> String {
    format!(
        "{{1:F01}}{{4:\r\n:20:STARTUMS\r\n:25:20041133/DE89370400440532013000\r\n:28C:7/2\r\n:60F:C251231EUR1000,\r\n{entries}\
         :62F:{closing}\r\n:64:C260102EUR1,\r\n-}}\r\n"
    )
}

#[test]
fn mt940_is_read_as_a_statement_of_camt() {
    // German subfields break the id; a reversal of a debit; an entry of the year before; what is expected only.
    let entries = format!(
        ":61:2601020102DR99,35NTRFNONREF//BK1\r\n:86:177?00SEPA?20EREF+{}?21{}SVWZ+Invoice 7?32Jane\r\n\
         :61:2601021231CR5,NTRFDEP-7\r\n:86:dep-1\r\nsecond line\r\n\
         :61:260102RD1,25NMSCWRONG\r\n:61:260103EC7,NTRFX\r\n\
         :61:260102C99,NTRFNONREF//BK9\r\n:86:/EREF/{OWN}//REMI/back\r\n",
        &OWN[..20],
        &OWN[20..]
    );
    let converted = convert_mt940(&mt940_of("C260102EUR1005,90", &entries), at()).unwrap();
    let [statement] = converted.statements.as_slice() else { panic!("{converted:?}") };
    assert_eq!((&*statement.account, &*statement.currency), ("DE89370400440532013000", "EUR"));
    assert_eq!((statement.opening, statement.closing, statement.page), (100_000, 100_590, 2));
    let entries = &statement.entries;
    let told: Vec<(i128, String, Option<&str>)> = entries
        .iter()
        .map(|one| (one.amount, one.booked_at.date_naive().to_string(), one.end_to_end_id.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            (-9_935, "2026-01-02".into(), Some(OWN)),
            (500, "2025-12-31".into(), None),
            (125, "2026-01-02".into(), None),
            (9_900, "2026-01-02".into(), Some(OWN)),
        ]
    );
    assert_eq!(entries[0].references, [OWN, "BK1"]);
    assert_eq!(entries[1].references, ["DEP-7", "dep-1", "second line"]);
    let words: Vec<&str> = statement.said.iter().map(|said| said.word.as_str()).collect();
    assert_eq!(words, ["paid", "returned"]);
    assert!(
        matches!(&statement.said[0].word, Word::Paid { amount: Some((amount, _)), .. } if amount == "99.35")
    );
}

#[test]
fn a_statement_that_does_not_add_up_or_lacks_something_is_refused() {
    let refused = |text: &str| convert_mt940(text, at()).unwrap_err().to_string();
    let one = ":61:260102D1,NTRFX\r\n";
    assert!(refused(&mt940_of("C260102EUR1000,", one)).contains("its entries lead to 99900"));
    assert!(refused(&mt940_of("C260102USD999,", one)).contains("opens in EUR and closes in USD"));
    assert!(refused(&mt940_of("C260102EUR999,", ":61:260102D1.5NTRFX\r\n")).contains("is no entry"));
    assert!(refused(&mt940_of("X260102EUR999,", one)).contains("is no balance"));
    assert!(refused(&mt940_of("C260102EUR999,", ":61:nonsense\r\n")).contains("is no entry"));
    assert!(refused("<Document/>").contains("no statement"));
    for cut in 0..mt940_of("C260102EUR999,", one).len() {
        // Never a panic.
        drop(convert_mt940(&mt940_of("C260102EUR999,", one)[cut..], at()));
    }
}

#[test]
fn what_we_write_as_mt940_is_read_back() {
    let line = |amount, end_to_end_id: Option<&str>| Line {
        currency: "USD".into(),
        amount,
        end_to_end_id: end_to_end_id.map(str::to_owned),
        bank_reference: "BK1".into(),
        text: end_to_end_id.map(str::to_owned),
        at: at(),
    };
    let of = StatementOf {
        account: "400500600".into(),
        currency: "USD".into(),
        id: "S1".into(),
        from: "2026-01-05T00:00:00Z".parse().unwrap(),
        to: "2026-01-06T00:00:00Z".parse().unwrap(),
        opening: -5,
        lines: vec![line(-9_935, Some(OWN)), line(1_000, None)],
    };
    let converted = convert_mt940(&of.mt940("DVP"), at()).unwrap();
    let [statement] = converted.statements.as_slice() else { panic!("{converted:?}") };
    assert_eq!((statement.opening, statement.closing), (-5, -8_940));
    assert_eq!(statement.entries[0].end_to_end_id.as_deref(), Some(OWN));
}

fn form(columns: &[(&str, &str)]) -> CsvForm {
    CsvForm {
        account: "DE89 3704 0044 0532 0130 00".into(),
        currency: "EUR".into(),
        name: "January".into(),
        opening: "1.000,00".into(),
        closing: "905,65-".into(),
        delimiter: b';',
        point: ',',
        date_format: "%d.%m.%Y".into(),
        columns: columns.iter().map(|(role, heading)| ((*role).to_owned(), (*heading).to_owned())).collect(),
    }
}

#[test]
fn csv_is_read_by_the_mapping_of_its_columns() {
    let columns = [("date", "Buchung"), ("amount", "Betrag"), ("reference", "Ref"), ("text", "Zweck")];
    let text = format!(
        "\u{feff}Buchung;Zweck;Betrag;Ref\n02.01.2026;\"Rechnung; {OWN}\";-1.910,65;BK1\n03.01.2026;dep-1;+5,00;\n;;;\n"
    );
    let converted = convert_csv(&text, &form(&columns), at()).unwrap();
    let [statement] = converted.statements.as_slice() else { panic!("{converted:?}") };
    assert_eq!((&*statement.account, statement.closing), ("DE89370400440532013000", -90_565));
    assert_eq!(statement.entries[0].end_to_end_id.as_deref(), Some(OWN));
    assert_eq!(statement.entries[1].references, ["dep-1"]);
    let two = [("date", "Buchung"), ("credit", "Haben"), ("debit", "Soll")];
    let text = "Buchung;Soll;Haben\n02.01.2026;1.910,65;\n03.01.2026;;5,00\n";
    assert_eq!(convert_csv(text, &form(&two), at()).unwrap().statements[0].closing, -90_565);
    for (columns, text, why) in [
        (&two[..], "Buchung;Soll\n", "no column is called Haben"),
        (&two[..1], text, "neither an amount nor credit and debit"),
        (&two[1..], text, "name no date"),
        (&two[..], "Buchung;Soll;Haben\n", "it has no entry"),
        (&two[..], "Buchung;Soll;Haben\n2026-01-02;1;\n", "line 2: 2026-01-02 is no date"),
        (&two[..], "Buchung;Soll;Haben\n02.01.2026;x;\n", "line 2: x is no amount of EUR"),
        (&two[..], "Buchung;Soll;Haben\n02.01.2026;1,00;\n", "its entries lead to 99900"),
        (&[("day", "Buchung")], text, "day is none of"),
    ] {
        let refused = convert_csv(text, &form(columns), at()).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
