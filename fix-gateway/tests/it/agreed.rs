//! What a session may agree on about the form of messages.

use dvp_fix::{
    Precision,
    codec::{Body, Encoding, Message},
};

use super::{
    client::Client,
    harness::{FixHarness, LIMIT, LOGON, VERSIONS, cancel, order},
};

/// The tags of timestamps in our messages.
const TIMES: [u32; 5] = [52, 60, 62, 122, 20113];

/// Has each timestamp of the message this many digits after its point? Answers how many timestamps it has.
fn times_with(message: &Message, digits: usize) -> usize {
    let times = message.fields().iter().filter(|field| TIMES.contains(&field.tag));
    let texts = times.map(|field| String::from_utf8(message.value(field).to_vec()).unwrap());
    let bytes = if digits == 0 { 17 } else { 18 + digits };
    texts.inspect(|text| assert_eq!(text.len(), bytes, "{message:?}")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_timestamp_has_the_agreed_fraction_and_a_resend_repeats_the_first() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut next_out = 1;
    for (name, digits) in [("seconds", 0), ("millis", 3), ("micros", 6), ("nanos", 9)] {
        harness.change_settings(|settings| settings.time_precision = name.to_owned()).await;
        let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        client.next_out = next_out;
        let logon = client.log_on_when_let_in(gateway.addr, LOGON).await;
        assert_eq!(times_with(&logon, digits), 1);
        let report = client.ask("D", &order(&format!("o-{name}"), "00000008", LIMIT), "8").await;
        assert_eq!(times_with(&report, digits), 2, "SendingTime and TransactTime");
        let quote = client.ask("R", "131=q|146=1|55=USDC/USD|54=2|38=100", "S").await;
        assert_eq!(times_with(&quote, digits), 3, "ValidUntilTime, too");
        let rejected = client.ask("F", &cancel(&format!("c-{name}"), "none"), "9").await;
        assert_eq!(times_with(&rejected, digits), 2);

        // The precision of the first time is that of OrigSendingTime, also after another was agreed on.
        let (seq, sent) = (report.seq().unwrap(), report.text(52).unwrap().to_owned());
        let again = client.ask("2", &format!("7={seq}|16={seq}"), "8").await;
        assert_eq!((times_with(&again, digits), again.text(122)), (3, Some(sent.as_str())));
        assert_eq!(again.text(60), report.text(60));
        client.log_out().await;
        harness.change_settings(|settings| settings.time_precision = "seconds".to_owned()).await;
        next_out = client.next_out;
        let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        client.next_out = next_out;
        let logon = client.log_on_when_let_in(gateway.addr, LOGON).await;
        assert_eq!(times_with(&logon, 0), 1);
        let again = client.ask("2", &format!("7={seq}|16={seq}"), "8").await;
        assert_eq!((again.text(52).unwrap().len(), again.text(122)), (17, Some(sent.as_str())));
        client.log_out().await;
        next_out = client.next_out;
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_logon_is_answered_without_a_fraction_where_it_has_none() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for (precision, digits) in [(Precision::Seconds, 0), (Precision::Millis, 3), (Precision::Nanos, 3)] {
        let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        client.precision = precision;
        client.send("A", &format!("98=0|108=-5|{LOGON}")).await;
        assert_eq!(times_with(&client.expect("5").await, digits), 1);
    }
    gateway.stop().await;
}

/// The body with its text in ISO-8859-1, all of whose letters it has.
fn latin_1(text: &str) -> Body {
    let bytes = text.chars().map(|letter| if letter == '|' { 1 } else { u8::try_from(letter).unwrap() });
    Body::from_bytes(bytes.chain([1]).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_of_a_session_may_be_latin_1_and_is_kept_as_utf_8() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.text_encoding = "ISO-8859-1".to_owned()).await;
    let (gateway, mut client) = harness.logged_on().await;
    client.encoding = Encoding::Latin1;
    let body = format!(
        "347=ISO-8859-1|453=1|448=Müller & Söhne|447=D|452=1|58=à la carte|{}",
        order("café", "00000008", LIMIT)
    );
    let body = body.replace("Jane Doe", "Jürg Ångström");
    client.send_body("D", &latin_1(&body)).await;
    let new = client.report("café", "0").await;
    assert_eq!(new.text(448), Some("Müller & Söhne"), "{new:?}");
    let seq = new.seq().unwrap();
    let again = client.ask("2", &format!("7={seq}|16={seq}"), "8").await;
    assert_eq!((again.text(11), again.text(448)), (Some("café"), Some("Müller & Söhne")));
    client.send_body("1", &latin_1("112=été")).await;
    assert_eq!(client.next().await.unwrap().text(112), Some("été"));
    // Control characters are refused, as in UTF-8.
    client.send_body("H", &latin_1("11=caf\u{85}|54=2|55=USDC/USD")).await;
    let refused = client.expect("3").await;
    assert_eq!((refused.text(371), refused.text(373)), (Some("11"), Some("6")), "{refused:?}");
    client.log_out().await;
    gateway.stop().await;
    let kept = "select count(*) from fix_order where cl_ord_id = 'café' and details->>'symbol' = 'USDC/USD'";
    assert_eq!(harness.count(kept).await, 1);
    let named = "select count(*) from execution where terms::text like '%Jürg Ångström%'";
    assert_eq!(harness.count(named).await, 1);
    let shown =
        "select count(*) from fix_message where cl_ord_id = 'café' and content like '%448=Müller & Söhne%'";
    assert_eq!(harness.count(shown).await, 3, "the order, its report, and the report again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_may_name_the_sessions_encoding_and_no_other() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let text = "MessageEncoding(347) of this session is UTF-8";
    for version in VERSIONS {
        let mut client = Client::connect(gateway.addr, version.0, version.1).await;
        client.log_on_when_let_in(gateway.addr, version.2).await;
        let status = |name: &str| format!("347={name}|11=none|54=2|55=USDC/USD");
        for name in ["ISO-8859-1", "EUC-JP", "nonsense"] {
            let refused = client.ask("H", &status(name), "3").await;
            assert_eq!((refused.text(371), refused.text(58)), (Some("347"), Some(text)), "{refused:?}");
            assert_eq!(refused.text(373), Some("5"));
        }
        for name in ["UTF-8", "utf-8"] {
            assert_eq!(client.ask("H", &status(name), "8").await.text(103), Some("5"));
        }
        client.log_out().await;
        let mut client = Client::connect(gateway.addr, version.0, version.1).await;
        client.send("A", &format!("347=EUC-JP|98=0|108=30|{}", version.2)).await;
        let refused = client.expect("5").await;
        assert_eq!(refused.text(58), Some(format!("tag 347: {text}").as_str()), "{refused:?}");
    }
    gateway.stop().await;
}
