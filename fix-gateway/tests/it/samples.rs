//! The page for counterparties shows every message beside those of the test session, as it is sent and answered.

use std::fs;
use std::path::Path;

use dvp_fix::codec::Message;

use super::client::Client;
use super::harness::{FixHarness, LIMIT, VERSIONS, order};

/// Fields that the page leaves out: the frame, the CompIDs and the numbers.
const FRAME: [u32; 6] = [8, 9, 10, 34, 49, 56];
/// Times, and what differs from run to run.
const MASKED: [&str; 12] =
    ["17", "37", "52", "60", "62", "117", "198", "322", "1369", "20001", "20002", "20003"];

/// Fields as the page has them: values that differ from run to run end after their beginning.
fn masked(fields: &str) -> String {
    let field = |field: &str| match field.split_once('=') {
        Some((tag, value)) if MASKED.contains(&tag) => {
            let kept: String = value.chars().take_while(char::is_ascii_alphabetic).collect();
            let rest = if kept.len() < value.len() { "…" } else { "" };
            format!("{tag}={kept}{rest}")
        }
        _ => field.to_owned(),
    };
    fields.split('|').map(field).collect::<Vec<_>>().join("|")
}

fn received(message: &Message) -> String {
    let fields = message.fields().iter().filter(|field| !FRAME.contains(&field.tag));
    let text = |field| String::from_utf8_lossy(message.value(field));
    masked(&fields.map(|field| format!("{}={}", field.tag, text(field))).collect::<Vec<_>>().join("|"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_other_message_is_on_the_page_as_it_is_sent_and_answered() {
    const BEGIN: &str = "<!-- other messages -->\n```text\n";
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut client = gateway.client_of(VERSIONS[1]).await;
    let now = || Client::utc().to_millis_text();
    let mut page = String::new();
    let pair = "55=USDC/USD";
    for (kind, body, answers) in [
        ("x", "320=S-1|559=4".to_owned(), vec!["y"]),
        ("V", format!("262=M-1|263=0|264=2|267=2|269=0|269=1|146=1|{pair}"), vec!["W"]),
        ("V", "262=M-2|263=0|264=2|267=1|269=0|146=1|55=NONE/USD".to_owned(), vec!["Y"]),
        ("R", format!("131=Q-1|146=1|{pair}|54=2|38=100"), vec!["S"]),
        ("R", format!("131=Q-2|146=1|{pair}|38=100"), vec!["S"]),
        ("R", "131=Q-3|146=1|55=NONE/USD|54=2|38=100".to_owned(), vec!["AG"]),
        ("D", order("O-1", "00000008", LIMIT), vec!["8"]),
        ("H", format!("11=O-1|54=2|{pair}"), vec!["8"]),
        ("AF", "584=A-1|585=7".to_owned(), vec!["8"]),
        ("G", format!("11=O-2|41=O-1|38=50|40=2|44=0.99|54=2|{pair}|60={}", now()), vec!["9"]),
        ("F", format!("11=O-3|41=NONE|54=2|{pair}|60={}", now()), vec!["9"]),
        ("q", format!("11=O-4|530=7|60={}", now()), vec!["r", "8"]),
        ("E", format!("66=L-1|394=1|68=0|73=1|11=O-5|67=1|{pair}|54=2"), vec!["j"]),
        ("D", "11=O-6".to_owned(), vec!["3"]),
    ] {
        client.send(kind, &body).await;
        let sent = masked(&body);
        page += &format!("> 35={kind}|{sent}\n");
        for answer in answers {
            page += &format!("< {}\n", received(&client.expect(answer).await));
        }
        page.push('\n');
    }
    gateway.stop().await;
    let page = page.trim_end().to_owned() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fix.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/fix.md has a place for the messages");
    let (written, after) = rest.split_once("```").unwrap();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{page}```{after}")).unwrap();
    } else {
        assert_eq!(written, page, "UPDATE_EXPECT=1 rewrites the messages in docs/fix.md");
    }
}
