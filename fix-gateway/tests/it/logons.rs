//! Hostile bytes in every field of a Logon.

use dvp_fix::codec::Body;
use dvp_fix_gateway::Lockout;

use super::{
    client::Client,
    fields::HOSTILE,
    harness::{FixHarness, LOGON},
};

/// The fields of a Logon in FIX 4.4, and some of the header that an application may set. RawData(96) is not among them:
/// any bytes are right in it, and it is neither stored nor logged.
const FIELDS: [u32; 16] = [50, 57, 98, 108, 95, 141, 789, 383, 384, 372, 385, 464, 553, 554, 925, 58];

fn logon(tag: u32, value: &[u8]) -> Body {
    let mut fields: Vec<(u32, Vec<u8>)> = [(98, "0"), (108, "30"), (553, "acme"), (554, "secret")]
        .map(|(tag, value)| (tag, value.into()))
        .into();
    match fields.iter_mut().find(|field| field.0 == tag) {
        Some(field) => field.1 = value.to_vec(),
        None => fields.insert(0, (tag, value.to_vec())),
    }
    fields.into_iter().fold(Body::new(), |body, (tag, value)| body.field(tag, value))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bytes_in_any_logon_field_are_refused_without_effect() {
    let harness = FixHarness::new().await;
    let gateway = harness
        .gateway_as(Vec::new(), |config| config.lockout = Lockout { attempts: 10_000, per_minute: 1 })
        .await;
    let mut let_in: Vec<(u32, &str)> = Vec::new();
    for tag in FIELDS {
        for (what, value) in HOSTILE.into_iter().chain([("6,000 bytes", &[b'1'; 6_000][..])]) {
            let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
            client.send_body("A", &logon(tag, value)).await;
            while let Some(answer) = client.next().await {
                if answer.text(35) == Some("A") {
                    let_in.push((tag, what));
                    break;
                }
            }
        }
    }
    assert_eq!(let_in, []);
    let unchanged = "select count(*) from fix_session where session_id = 'FIX.4.4:DVP->ACME' \
                     and next_in = 1 and next_out = 1";
    assert_eq!(harness.count(unchanged).await, 1);
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    assert_eq!(client.log_on(LOGON).await.seq().unwrap().0, 1);
    gateway.stop().await;
}
