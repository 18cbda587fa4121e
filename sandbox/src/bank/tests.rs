//! What the bank writes is as the schema has it. The files were checked with the published schemas, too.

use dvp_rails::iso20022::answers::read;
use expect_test::expect_file;

use super::*;

fn at() -> DateTime<Utc> {
    "2026-11-21T12:00:40Z".parse().unwrap()
}

fn order() -> Order {
    Order {
        message_id: "M0123456789abcdef".into(),
        block_id: "P0123456789abcdef".into(),
        end_to_end_id: "0123456789abcdef0123456789abcdef".into(),
        account: "000123456789".into(),
        amount: "99.35".into(),
        currency: "USD".into(),
        is_instant: false,
    }
}

/// What the bank says of the recall of a payment to such an account.
fn said_of(suffix: &str, n: usize) -> String {
    let order = Order { account: format!("00012345{suffix}"), ..order() };
    let recall =
        Recall::new("RCL0123456789ABCDEF0123456789ABCDEF".into(), "DVP Settlement Ltd".into(), order);
    recall.replies(at()).remove(n).content
}

fn statement() -> statement::StatementOf {
    let line = |amount, end_to_end_id: Option<&str>, text: Option<&str>| Line {
        currency: "USD".into(),
        amount,
        end_to_end_id: end_to_end_id.map(str::to_owned),
        bank_reference: "BK0123456789abcdef".into(),
        text: text.map(str::to_owned),
        at: at(),
    };
    statement::StatementOf {
        account: "400500600".into(),
        currency: "USD".into(),
        id: "USD-2".into(),
        from: at() - chrono::TimeDelta::days(1),
        to: at(),
        opening: -65,
        lines: vec![
            line(-9_935, Some("0123456789abcdef0123456789abcdef"), None),
            line(10_000, None, Some("W-7")),
        ],
    }
}

#[test]
fn each_kind_of_file_is_the_committed_one_and_as_the_schema_has_it() {
    let order = order();
    let files = [
        (Message::Pain002, order.report("ACSC", None, at()), expect_file!["golden/pain.002.settled.xml"]),
        (
            Message::Pain002,
            order.report("RJCT", Some("AC04"), at()),
            expect_file!["golden/pain.002.refused.xml"],
        ),
        (Message::Pain002, order.partly(at()), expect_file!["golden/pain.002.partly.xml"]),
        (Message::Camt054, order.booked("99.35", None, at()), expect_file!["golden/camt.054.booked.xml"]),
        (
            Message::Camt054,
            order.booked("99.35", Some("AC04"), at()),
            expect_file!["golden/camt.054.returned.xml"],
        ),
        (Message::Camt029, said_of("0021", 0), expect_file!["golden/camt.029.rejected.xml"]),
        (Message::Camt029, said_of("6789", 0), expect_file!["golden/camt.029.pending.xml"]),
        (Message::Camt029, said_of("6789", 1), expect_file!["golden/camt.029.accepted.xml"]),
        (Message::Camt029, said_of("0026", 0), expect_file!["golden/camt.029.partly.xml"]),
        (Message::Camt029, said_of("0025", 2), expect_file!["golden/camt.029.foreign.xml"]),
        (
            Message::Camt029,
            recalls::never_requested(&order, at()),
            expect_file!["golden/camt.029.unrequested.xml"],
        ),
        (Message::Camt053, statement().render(), expect_file!["golden/camt.053.xml"]),
    ];
    for (message, content, golden) in files {
        golden.assert_eq(&content);
        let document = Document::read(content.as_bytes()).unwrap();
        assert_eq!(check(message, &document), [], "{}", message.name());
        read(content.as_bytes(), at()).unwrap();
    }
}

#[test]
fn a_statement_is_read_as_it_was_written() {
    let statement = statement();
    let read = read(statement.render().as_bytes(), at()).unwrap().statements.remove(0);
    assert_eq!((read.opening, read.closing), (-65, statement.closing().into()));
    assert_eq!((read.begins_at, read.ends_at), (statement.from, statement.to));
    let amounts: Vec<i128> = read.entries.iter().map(|entry| entry.amount).collect();
    assert_eq!(amounts, [-9_935, 10_000]);
    assert_eq!(read.entries[0].end_to_end_id, statement.lines[0].end_to_end_id);
    assert!(read.entries[1].references.contains(&"W-7".to_owned()));
}

#[tokio::test]
async fn entries_are_on_one_statement_each_wherever_the_bank_stops() {
    let dir = tempfile::tempdir().unwrap();
    let accounts = vec![("USD".to_owned(), "400500600".to_owned())];
    let open = || Bank::open_with_accounts(dir.path(), accounts.clone());
    let bank = open().await.unwrap();
    let past = |reference: &str, amount| Line {
        currency: "USD".into(),
        amount,
        end_to_end_id: None,
        bank_reference: "B".into(),
        text: Some(reference.to_owned()),
        at: at() - chrono::TimeDelta::days(300),
    };
    let books = bank.books.clone().unwrap();
    for (reference, amount) in [("a", 100), ("b", -30), ("a", 100)] {
        books.book(reference, &past(reference, amount)).await.unwrap();
    }
    bank.turn().await.unwrap();
    // The bank has stopped before it put an entry away.
    let folder = dir.path().join("bank/books");
    fs::rename(folder.join("stated/b.json"), folder.join("entries/b.json")).await.unwrap();
    let bank = open().await.unwrap();
    bank.turn().await.unwrap();
    books.book("c", &past("c", 7)).await.unwrap();
    books.book("a", &past("a", 100)).await.unwrap();
    bank.turn().await.unwrap();
    bank.turn().await.unwrap();
    let mut balances = Vec::new();
    for number in 1..3 {
        let path = bank.folder.inbox().join(format!("statement-USD-{number}.xml"));
        let content = fs::read(path).await.unwrap();
        let read = read(&content, at()).unwrap().statements.remove(0);
        balances.push((read.opening, read.closing, read.entries.len()));
    }
    assert_eq!(balances, [(0, 70, 2), (70, 77, 1)]);
    assert!(!fs::try_exists(bank.folder.inbox().join("statement-USD-3.xml")).await.unwrap());
}
