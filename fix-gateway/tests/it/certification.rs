//! A peer's test session: the messages of the page for counterparties, sent as they are there, are its whole script.

use alloy::signers::local::PrivateKeySigner;
use chrono::{DateTime, TimeDelta, Utc};
use dvp_fix_gateway::certification::{Seen, Step};
use dvp_store::fix::archive::{self, Stretch, Wanted};
use dvp_testing::{
    market::TOKEN,
    orders::{permit, sign},
};

use super::{
    client::Client,
    harness::{FIX_42, FIXT, FixHarness, Gateway, SESSION},
};

/// The peer's messages on the page but Logons and Logouts: type, and body.
fn script() -> Vec<(String, String)> {
    let page = include_str!("../../../docs/fix.md");
    let samples = page.split_once("<!-- test session -->\n```text\n").unwrap().1.split_once("```").unwrap().0;
    let sent = samples.lines().filter_map(|line| line.strip_prefix("> "));
    let message = |line: &str| {
        let (kind, body) = line.strip_prefix("35=").unwrap().split_once('|').unwrap();
        let stamps = ["34=", "52="];
        let body = body.split('|').filter(|field| !stamps.iter().any(|stamp| field.starts_with(stamp)));
        (kind.to_owned(), body.collect::<Vec<_>>().join("|"))
    };
    sent.map(message).filter(|(kind, _)| kind != "A" && kind != "5").collect()
}

/// A body with this moment's time, a permit of its own, and ClOrdIDs of this session.
fn made_real(body: &str, session: &str) -> String {
    let signed = sign(&PrivateKeySigner::random(), permit(TOKEN, 100_000_000, 0));
    let field = |field: &str| {
        let (tag, value) = field.split_once('=').unwrap();
        match tag {
            "11" | "41" => format!("{tag}={session}-{value}"),
            "60" => format!("60={}", Client::utc().to_millis_text()),
            "20001" => "20001=0".to_owned(),
            "20002" => format!("20002={}", signed.deadline),
            "20003" => format!("20003={}", signed.signature),
            _ => field.to_owned(),
        }
    };
    body.split('|').map(field).collect::<Vec<_>>().join("|")
}

/// Reads all that was sent before the answer to a TestRequest.
async fn read_all(client: &mut Client) {
    client.send("1", "112=all").await;
    while client.next().await.unwrap().text(112) != Some("all") {}
}

async fn archived(harness: &FixHarness, session_id: &str) -> Vec<Seen> {
    let until = Utc::now() + TimeDelta::minutes(1);
    let stretch = Stretch { from: DateTime::UNIX_EPOCH, until, before: None };
    let mut conn = harness.pool().acquire().await.unwrap();
    let messages = archive::list_messages(&mut conn, session_id, Wanted::All, &stretch, 1000).await.unwrap();
    messages.iter().rev().map(Seen::from).collect()
}

/// The peer of a session follows the script but for the messages of one type.
async fn play(gateway: &Gateway, version: (&'static str, &'static str, &'static str), left_out: &str) {
    let (_, comp_id, logon) = version;
    let mut client = gateway.client_of(version).await;
    let mut resting = None;
    for (kind, body) in script().iter().filter(|(kind, _)| kind != left_out) {
        let body = made_real(body, comp_id);
        client.send(kind, &body).await;
        let id = |tag: &str| body.split('|').find_map(|field| field.strip_prefix(tag)).unwrap();
        match kind.as_str() {
            "D" if body.contains("55=NONE/USD") => drop(client.report(id("11="), "8").await),
            "D" if body.contains("=00000008") => {
                client.report(id("11="), "0").await;
                resting = Some(id("11=").to_owned());
            }
            "D" => drop(client.report(id("11="), "2").await),
            "F" => {
                assert_eq!(resting.as_deref(), Some(id("41=")));
                client.report(id("11="), "4").await;
            }
            _ => read_all(&mut client).await,
        }
    }
    client.log_out().await;
    client.forget_numbers();
    client.log_on_when_let_in(gateway.addr, &format!("{logon}|141=Y")).await;
    read_all(&mut client).await;
    client.log_out().await;
}

/// The steps that the archive does not have.
async fn missing(harness: &FixHarness, session_id: &str) -> Vec<(Step, String)> {
    let messages = archived(harness, session_id).await;
    let copies = archived(harness, SESSION).await;
    let script = Step::script(false, true).into_iter();
    script.filter_map(|step| Some((step, step.find(&messages, Some(&copies)).err()?))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_follows_the_script_passes_every_step() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.drop_copy = true).await;
    harness.settle_everything();
    let gateway = harness.gateway().await;
    let mut copy = gateway.client().await;
    play(&gateway, FIX_42, "").await;
    play(&gateway, FIXT, "F").await;
    read_all(&mut copy).await;
    copy.log_out().await;
    gateway.stop().await;
    assert_eq!(missing(&harness, "FIX.4.2:DVP->ACME42").await, []);
    let left_out = missing(&harness, "FIXT.1.1:DVP->ACME50").await;
    assert_eq!(left_out, [(Step::Cancel, "no OrderCancelRequest(F) was sent".to_owned())]);
    // The session for copies has a script of its own, of which it did two steps and its copy.
    let copies = archived(&harness, SESSION).await;
    let done = Step::script(true, false).into_iter().filter(|step| step.find(&copies, None).is_ok());
    assert_eq!(done.collect::<Vec<_>>(), [Step::Logon, Step::DropCopy, Step::Logout]);
}
