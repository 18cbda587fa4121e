//! The permitted values of each field of a peer's messages, and the answers to others.

use std::collections::BTreeSet;

use dvp_fix::codec::{Body, Message};
use dvp_fix_gateway::dictionaries::{Messages, TAKEN, TakenField};

use super::{
    client::Client,
    harness::{FIX_42, FIXT, FixHarness, LIMIT, LOGON, VERSIONS, cancel, logged_on, order},
};

const TO_US: [&str; 9] = ["D", "F", "H", "AF", "R", "G", "q", "x", "V"];

/// `11=x|55=y` as tags and values.
fn pairs(text: &str) -> Vec<(u32, Vec<u8>)> {
    let pair = |field: &str| field.split_once('=').map(|(tag, value)| (tag.parse().unwrap(), value.into()));
    text.split('|').filter_map(pair).collect()
}

/// A well-formed message of each type.
fn sample(msg_type: &str, id: &str) -> Vec<(u32, Vec<u8>)> {
    let time = Client::utc().to_millis_text();
    pairs(&match msg_type {
        "D" => order(id, "00000008", LIMIT),
        "F" => format!("11={id}|41=first|54=2|55=USDC/USD|60={time}"),
        "H" => "11=first|54=2|55=USDC/USD".to_owned(),
        "AF" => format!("584={id}|585=1|55=USDC/USD"),
        "q" => format!("11={id}|530=1|55=USDC/USD|60={time}"),
        "x" => format!("320={id}|559=0|55=USDC/USD"),
        "V" => format!("262={id}|263=0|264=0|267=2|269=0|269=1|146=1|55=USDC/USD"),
        "R" => format!("131={id}|146=1|55=USDC/USD|54=2|38=100"),
        _ => format!("11={id}|41=first|21=1|38=100|40=2|44=1|54=2|55=USDC/USD|60={time}"),
    })
}

/// The sample with one field's value replaced. A new one stands in the group where that has it, else in front.
fn with(msg_type: &str, id: &str, tag: u32, value: &[u8]) -> Body {
    let mut fields = sample(msg_type, id);
    match fields.iter_mut().find(|field| field.0 == tag) {
        Some(field) => field.1 = value.to_vec(),
        None if msg_type == "R" && matches!(tag, 1 | 15 | 60 | 303 | 537) => {
            fields.push((tag, value.to_vec()))
        }
        None => fields.insert(0, (tag, value.to_vec())),
    }
    fields.into_iter().fold(Body::new(), |body, (tag, value)| body.field(tag, value))
}

/// Does the answer refuse the message, and name the field?
fn names(answer: &Message, tag: u32) -> bool {
    let (text, named) = (answer.text(58).unwrap_or_default(), tag.to_string());
    let in_text = text.contains(&format!("({tag})")) || text.contains(&format!("tag {tag} "));
    match answer.msg_type() {
        b"3" => answer.text(371) == Some(named.as_str()),
        b"8" => answer.text(39) == Some("8") && in_text,
        // A replace request is always refused.
        b"9" => in_text || answer.text(434) == Some("2"),
        b"j" | b"AG" | b"b" | b"Y" => in_text,
        _ => false,
    }
}

/// Values that no field may have.
pub(crate) const HOSTILE: [(&str, &[u8]); 8] = [
    ("NUL", b"a\0b"),
    ("padding", b"1\0\0\0"),
    ("DEL", b"a\x7f"),
    ("escape", b"\x1b[2J"),
    ("C1", b"a\xc2\x85"),
    ("no UTF-8", b"\xff\xfe"),
    ("cut UTF-8", b"a\xe2\x82"),
    ("surrogate", b"\xed\xa0\x80"),
];

/// Invalid values of a field, with a name, and the SessionRejectReason(373) where exactly one is correct.
fn hostile(field: &TakenField) -> Vec<(&'static str, Vec<u8>, Option<&'static str>)> {
    let mut values = HOSTILE.map(|(what, value)| (what, value.to_vec(), Some("6"))).to_vec();
    values.push(("6,000 bytes", vec![b'1'; 6_000], None));
    values.push(("60,000 bytes", vec![b'1'; 60_000], None));
    // Prose is not kept.
    if field.tag != 58 {
        values.push(("line separator", "a\u{2028}b".into(), None));
    }
    values
}

async fn every_field_refuses_what_cannot_be_stored(version: (&'static str, &'static str, &'static str)) {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut client = gateway.client_of(version).await;
    client.send("D", &order("first", "00000008", LIMIT)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    let mut sent = 0;
    let later = ["AF", "q", "x"];
    for msg_type in TO_US.into_iter().filter(|msg_type| version != FIX_42 || !later.contains(msg_type)) {
        let messages = Messages::of(msg_type.as_bytes());
        for field in TAKEN.iter().filter(|field| field.is_taken_in(messages)) {
            for (what, value, reason) in hostile(field) {
                sent += 1;
                let body = with(msg_type, &format!("h{sent}"), field.tag, &value);
                client.send_body(msg_type, &body).await;
                let answer = client.expect_any(&["3", "8", "9", "AG", "Y", "b", "j"]).await;
                assert!(names(&answer, field.tag), "{what} in {} of {msg_type}: {answer:?}", field.name);
                // A field that the version does not have is refused for that.
                if answer.msg_type() == b"3" && !matches!(answer.text(373), Some("0" | "2")) {
                    assert!(
                        reason.is_none_or(|reason| answer.text(373) == Some(reason)),
                        "{what}: {answer:?}"
                    );
                }
            }
        }
    }
    assert!(sent > 500);
    // The session is up, none of the messages was stored, and other sessions are served.
    client.send("D", &order("last", "00000008", LIMIT)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    assert_eq!(harness.count("select count(*) from execution").await, 2);
    let longest = "select max(octet_length(cl_ord_id)::bigint) from fix_order";
    assert!(harness.count(longest).await <= 128);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_of_fix_42_refuses_values_that_cannot_be_stored() {
    every_field_refuses_what_cannot_be_stored(FIX_42).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_of_fix_44_refuses_values_that_cannot_be_stored() {
    every_field_refuses_what_cannot_be_stored(VERSIONS[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_of_fix_50_refuses_values_that_cannot_be_stored() {
    every_field_refuses_what_cannot_be_stored(FIXT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unusable_identifier_gets_a_business_reject() {
    let (_harness, gateway, mut client) = logged_on().await;
    let long = "x".repeat(129);
    for (msg_type, tag, name) in [
        ("D", 11, "ClOrdID"),
        ("F", 11, "ClOrdID"),
        ("F", 41, "OrigClOrdID"),
        ("G", 41, "OrigClOrdID"),
        ("H", 11, "ClOrdID"),
        ("AF", 584, "MassStatusReqID"),
        ("R", 131, "QuoteReqID"),
    ] {
        client.send_body(msg_type, &with(msg_type, "id", tag, long.as_bytes())).await;
        let reject = client.expect("j").await;
        let text = format!("{name}({tag}) must have at most 128 characters");
        assert_eq!((reject.text(372), reject.text(58)), (Some(msg_type), Some(text.as_str())), "{reject:?}");
        let is_own = tag != 41;
        assert_eq!(reject.text(379), (!is_own).then_some("id"), "{reject:?}");
    }
    // The longest that is taken.
    client.send("D", &order(&"é".repeat(128), "00000008", LIMIT)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsupported_instruction_is_refused_by_its_tag() {
    let (harness, gateway, mut client) = logged_on().await;
    let time = Client::utc().to_millis_text();
    let fields = [
        "152=100",
        "110=1",
        "64=20991231",
        "63=6",
        "120=EUR",
        "78=1|79=a|80=1",
        "111=1",
        "99=1",
        "854=0",
        "423=1",
        "210=1",
        "388=0|389=1",
        "167=FOR",
    ];
    for (n, field) in fields.into_iter().enumerate() {
        let tag: u32 = field.split_once('=').unwrap().0.parse().unwrap();
        let report = client.ask("D", &(order(&format!("u{n}"), "00000008", LIMIT) + "|" + field), "8").await;
        assert!(names(&report, tag), "{field}: {report:?}");
        assert_eq!(report.text(103), Some("11"), "{report:?}");
    }
    // A dollar amount of a token is no quantity of it.
    let report = client.ask("D", &(order("usd", "00000008", LIMIT) + "|15=USD"), "8").await;
    assert_eq!((report.text(39), report.text(103)), (Some("8"), Some("11")), "{report:?}");
    assert_eq!(report.text(58), Some("Currency(15) must be USDC, the base asset"));
    let refused = client.ask("R", "131=q|146=1|55=USDC/USD|54=2|38=100|15=USD", "AG").await;
    assert_eq!(refused.text(58), Some("Currency(15) must be USDC, the base asset"));
    client.send("R", "131=q|146=1|55=USDC/USD|54=2|38=100|64=20991231").await;
    assert!(names(&client.expect("AG").await, 64));
    client.send("D", &(order("usdc", "00000008", LIMIT) + "|15=USDC")).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    let refused = client.ask("F", &format!("11=c1|41=usdc|54=2|55=USDC/USD|60={time}|152=1"), "9").await;
    assert_eq!((refused.text(102), refused.text(39)), (Some("99"), Some("0")), "{refused:?}");
    assert!(names(&refused, 152));
    for (wrong, tag) in [("54=1|55=USDC/USD", 54), ("54=2|55=USD/EUR", 55)] {
        client.send("F", &format!("11=w{tag}|41=usdc|{wrong}|60={time}")).await;
        assert!(names(&client.expect("9").await, tag));
    }
    client.send("F", &format!("11=c2|37=exe_other|41=usdc|54=2|55=USDC/USD|60={time}")).await;
    assert_eq!(client.expect("9").await.text(102), Some("1"));
    client.send("H", "11=usdc|54=2|55=USDC/USD|583=a").await;
    assert!(names(&client.expect("j").await, 583));
    let refused = client.ask("AF", "584=m|585=7|1=mine", "j").await;
    assert!(names(&refused, 1) && refused.text(379) == Some("m"), "{refused:?}");
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 1);
}

/// What order management systems always send, beside what an order needs.
const ALWAYS_SENT: &str = "18=1|22=4|48=US0000000001|63=0|77=O|100=XDVP|114=N|9001=desk 7|5001=x";
/// Likewise, in versions after 4.2.
const PARTIES: &str = "453=2|448=ACME|447=D|452=1|802=1|523=desk|803=4|448=JO|447=D|452=12";
const ALWAYS_SENT_LATER: &str = "460=4|526=a|528=A|581=1|582=1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_systems_always_send_is_ignored_and_parties_dates_and_routes_come_back() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for version in VERSIONS {
        let (begin_string, comp_id, _) = version;
        let mut client = gateway.client_of(version).await;
        let is_42 = begin_string == "FIX.4.2";
        let today = Client::utc().to_millis_text()[..8].to_owned();
        let more = if is_42 { "109=ACME|47=A".to_owned() } else { format!("{ALWAYS_SENT_LATER}|{PARTIES}") };
        let extra = format!("{ALWAYS_SENT}|64={today}|59=0|{more}");
        let id = format!("i{comp_id}");
        let body = format!("50=JO|115=FUND|116=BOOK|{}|{extra}", order(&id, "00000008", LIMIT));
        let new = client.ask("D", &body, "8").await;
        assert_eq!((new.text(39), new.text(58)), (Some("0"), None), "{new:?}");
        let back = [57, 128, 129, 59, 63, 64].map(|tag| new.text(tag).unwrap_or("-"));
        assert_eq!(back, ["JO", "FUND", "BOOK", "0", "0", today.as_str()], "{new:?}");
        if is_42 {
            assert_eq!(new.text(109), Some("ACME"), "{new:?}");
        } else {
            let parties = PARTIES.replace('|', "\u{1}");
            assert!(String::from_utf8_lossy(new.view().bytes()).contains(&parties), "{new:?}");
        }
        // Of another day, or settled otherwise: that is another order.
        for (n, other) in ["64=20991231", "63=6"].into_iter().enumerate() {
            let refused =
                client.ask("D", &(order(&format!("{n}{id}"), "00000008", LIMIT) + "|" + other), "8").await;
            assert!(
                refused.text(39) == Some("8") && names(&refused, other[..2].parse().unwrap()),
                "{refused:?}"
            );
        }
        // Our own range is no other's.
        client.send("D", &(order(&format!("own{id}"), "00000008", LIMIT) + "|20999=1")).await;
        let refused = client.expect_any(&["3", "8"]).await;
        assert!(refused.msg_type() == b"3" || names(&refused, 20999), "{refused:?}");
        let more = if is_42 { "" } else { "|453=1|448=A|447=D|452=1" };
        let cancel = format!("50=JO|{}|9001=x{more}", cancel(&format!("c{comp_id}"), &id));
        let cancelled = client.ask("F", &cancel, "8").await;
        assert_eq!((cancelled.text(39), cancelled.text(57)), (Some("4"), Some("JO")), "{cancelled:?}");
        let late = client.ask("F", &cancel.replace(&format!("11=c{comp_id}"), "11=again"), "9").await;
        assert_eq!((late.text(102), late.text(57)), (Some("0"), Some("JO")), "{late:?}");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_its_own_list_of_what_is_ignored() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.ignored_fields = Some("18,111".into())).await;
    let (gateway, mut client) = harness.logged_on().await;
    let asked = |n: usize, field: &str| order(&format!("l{n}"), "00000008", LIMIT) + "|" + field;
    for (n, field) in ["18=1", "111=7"].into_iter().enumerate() {
        let new = client.ask("D", &asked(n, field), "8").await;
        assert_eq!(new.text(39), Some("0"), "{new:?}");
    }
    for (n, (field, tag)) in [("100=X", 100), ("453=1|448=A|447=D|452=1", 453)].into_iter().enumerate() {
        let refused = client.ask("D", &asked(10 + n, field), "8").await;
        assert!(names(&refused, tag), "{refused:?}");
    }
    let refused = client.ask("D", &asked(20, "9001=x"), "3").await;
    assert_eq!((refused.text(371), refused.text(373)), (Some("9001"), Some("0")), "{refused:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_connection_after_a_change_has_the_new_list() {
    let (harness, gateway, mut client) = logged_on().await;
    client.log_out().await;
    for (n, (list, status)) in
        [("18", "8"), ("18,100", "0"), ("18", "8"), ("18,100", "0")].into_iter().enumerate()
    {
        harness.change_settings(|settings| settings.ignored_fields = Some(list.into())).await;
        client.log_on_when_let_in(gateway.addr, LOGON).await;
        let said = client.ask("D", &(order(&format!("n{n}"), "00000008", LIMIT) + "|100=X"), "8").await;
        assert_eq!(said.text(39), Some(status), "{n}: {said:?}");
        client.log_out().await;
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_of_a_time_that_has_not_come_is_refused() {
    let (_harness, gateway, mut client) = logged_on().await;
    let later = Client::utc().0 + 200_000_000_000;
    let time = dvp_fix::UtcNanos(later).to_millis_text();
    let body = order("later", "00000008", LIMIT);
    let now = body.split('|').find(|field| field.starts_with("60=")).unwrap().to_owned();
    let refused = client.ask("D", &body.replace(&now, &format!("60={time}")), "8").await;
    assert_eq!(refused.text(58), Some("TransactTime(60) is more than 120 seconds ahead"), "{refused:?}");
    // A duplicate Logon is a duplicate like others.
    let logon = format!("43=Y|122={time}|98=0|108=30|{LOGON}", time = Client::utc().to_millis_text());
    client.send_as(1, None, "A", &logon).await;
    client.send("D", &order("goes on", "00000008", LIMIT)).await;
    assert_eq!(client.expect("8").await.text(39), Some("0"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replace_request_is_refused_in_every_version() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for version in VERSIONS {
        let (_, comp_id, _) = version;
        let mut client = gateway.client_of(version).await;
        let new = client.ask("D", &order(&format!("o{comp_id}"), "00000008", LIMIT), "8").await;
        // Every field of an order, and the order that is meant.
        let replacement = order(&format!("g{comp_id}"), "00000008", "40=2|44=1.01");
        let refused =
            client.ask("G", &format!("{replacement}|41=o{comp_id}|117=q|15=USDC|58=more"), "9").await;
        assert_eq!((refused.text(434), refused.text(102)), (Some("2"), Some("2")), "{refused:?}");
        assert_eq!((refused.text(37), refused.text(39)), (new.text(37), Some("0")), "{refused:?}");
        assert_eq!(refused.text(58), Some("orders are not replaced: cancel, and send another"));
        let refused = client.ask("G", &format!("{replacement}|41=nothing"), "9").await;
        assert_eq!(
            (refused.text(434), refused.text(37), refused.text(39)),
            (Some("2"), Some("NONE"), Some("8"))
        );
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_consumes_its_cl_ord_id() {
    let (harness, gateway, mut client) = logged_on().await;
    client.ask("D", &order("rests", "00000008", LIMIT), "8").await;
    // The request and the order in one go: one commit may have both.
    client.send("F", &cancel("unknown", "nothing")).await;
    client.send("D", &order("unknown", "00000008", LIMIT)).await;
    assert_eq!(client.expect("9").await.text(102), Some("1"));
    let mut answers = vec![client.expect("8").await];
    client.send("F", &cancel("done", "rests")).await;
    client.send("D", &order("done", "00000008", LIMIT)).await;
    assert_eq!(client.expect("8").await.text(39), Some("4"));
    answers.push(client.expect("8").await);
    client.send("F", &cancel("late", "rests")).await;
    client.send("D", &order("late", "00000008", LIMIT)).await;
    assert_eq!(client.expect("9").await.text(102), Some("0"));
    answers.push(client.expect("8").await);
    // Orders, too: refused by us, by the engine, and for their permits.
    for (id, body) in [
        ("listener", order("listener", "00000008", "40=3")),
        ("engine", order("engine", "00000008", "40=2|44=5")),
        ("permit", order("permit", "00000008", LIMIT).replace("|20003=0x", "|20003=0xzz")),
    ] {
        client.send("D", &body).await;
        client.send("D", &order(id, "00000008", LIMIT)).await;
        client.send("D", &body).await;
        assert_ne!(client.expect("8").await.text(103), Some("6"), "{id}");
        answers.push(client.expect("8").await);
        answers.push(client.expect("8").await);
    }
    for answer in &answers {
        assert_eq!((answer.text(39), answer.text(103)), (Some("8"), Some("6")), "{answer:?}");
    }
    let reported: BTreeSet<&str> = answers.iter().map(|answer| answer.text(11).unwrap()).collect();
    assert_eq!(reported, BTreeSet::from(["done", "listener", "engine", "late", "permit", "unknown"]));
    // A cancel request cannot take an order's name either.
    client.send("F", &cancel("listener", "rests")).await;
    assert_eq!(client.expect("9").await.text(102), Some("6"));
    gateway.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 1);
}
