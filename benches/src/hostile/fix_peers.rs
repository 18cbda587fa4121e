//! Hostile FIX sessions of another partner: they are admitted, and then send invalid field values.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum as _;
use dvp_fix::codec::Message;

use super::target::Peer;
use super::values::{ValueFault, random_byte};
use crate::dice::Dice;
use crate::harness::ACCOUNT;
use crate::wire::{Fields, Line, fields, fields_of, readable, utc, visible};

/// Messages of a walk that wait for their answers at once.
const BATCH: usize = 10;
/// An answer that takes longer is missing.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// A session has one connection: a Logon is refused while the one before is still being closed, and is tried again so
/// many times.
const RECONNECTS: u32 = 4;
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// An address of their own: wrong Logons of unauthenticated peers may lock theirs out.
const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 20);
const MESSAGES: [&str; 5] = ["D", "F", "R", "H", "AF"];
/// Fields of each message whose text is stored or repeated: a value that is no text is refused by name.
const STORED: [(&str, &[u32]); 5] = [
    (
        "D",
        &[
            1, 11, 55, 117, 20001, 20002, 20003, 20010, 20011, 20012, 20013, 20014, 20015, 20016, 20017,
            20018, 20019, 20020, 20021,
        ],
    ),
    ("F", &[11, 41]),
    ("R", &[55, 131]),
    ("H", &[11, 55]),
    ("AF", &[55, 584]),
];

fn is_stored(kind: &str, tag: u32) -> bool {
    STORED.iter().any(|(message, tags)| *message == kind && tags.contains(&tag))
}

/// A message that was sent, and how its answer is known.
struct Sent {
    seq: u64,
    kind: &'static str,
    tag: u32,
    what: ValueFault,
    value: Vec<u8>,
    /// ClOrdID, QuoteReqID or MassStatusReqID.
    id: Vec<u8>,
}

impl Sent {
    fn is_answered_by(&self, message: &Message) -> bool {
        match message.msg_type() {
            b"3" | b"j" => message.text(45).and_then(|seq| seq.parse().ok()) == Some(self.seq),
            b"8" | b"9" | b"S" | b"AG" | b"b" => {
                [11, 131, 584].iter().any(|tag| message.get(*tag) == Some(&self.id[..]))
            }
            _ => false,
        }
    }

    fn is_named_by(&self, message: &Message) -> bool {
        let text = message.text(58).unwrap_or_default();
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let tag = self.tag.to_string();
        message.text(371) == Some(&tag) || words.any(|word| word == tag)
    }

    fn describe(&self) -> String {
        format!("35={} {}={} ({:?})", self.kind, self.tag, visible(&self.value), self.what)
    }
}

/// A message that is in order, and the tag of its id.
fn template(kind: &str, id: &str) -> (Fields, u32) {
    let sale = format!("54=2|55=USD/EUR|60={}", utc());
    let (body, tag) = match kind {
        "D" => (format!("1={ACCOUNT}|11={id}|21=1|38=10|40=2|44=0.5|59=0|{sale}"), 11),
        "F" => (format!("11={id}|38=10|41=unknown|{sale}"), 11),
        "H" => (format!("11={id}|54=2|55=USD/EUR"), 11),
        "R" => (format!("131={id}|146=1|55=USD/EUR|54=2|38=10"), 131),
        _ => (format!("584={id}|585=7"), 584),
    };
    (fields_of(&body), tag)
}

/// The template with a value in one field; a missing field is appended, in its groups.
fn with_value(mut body: Fields, place: &FieldLocation, value: &[u8]) -> Fields {
    if let Some((_, there)) = body.iter_mut().find(|(tag, _)| *tag == place.tag) {
        *there = value.to_vec();
        return body;
    }
    for (count, first) in &place.groups {
        if !body.iter().any(|(tag, _)| tag == count) {
            body.push((*count, b"1".to_vec()));
            if *first != place.tag {
                body.push((*first, b"1".to_vec()));
            }
        }
    }
    body.push((place.tag, value.to_vec()));
    body
}

/// Walks every field of every message of a dictionary, with each kind of value, in an order that the seed gives.
pub(super) async fn walk(peer: Peer, dictionary: &'static str) -> anyhow::Result<u64> {
    let mut dice = Dice::new(peer.seed);
    let mut all = Vec::new();
    for kind in MESSAGES {
        for place in places(dictionary, kind)?.unwrap_or_default() {
            all.extend(ValueFault::value_variants().iter().map(|what| (kind, place.clone(), *what)));
        }
    }
    dice.shuffle(&mut all);
    // Stored fields come first, in case time is short.
    all.sort_by_key(|(kind, place, _)| !is_stored(kind, place.tag));
    let (mut at, mut n) = (0, 0_u64);
    in_batches(&peer, After::Continue, |line| {
        let mut batch = Vec::new();
        for (kind, place, what) in all.iter().cycle().skip(at).take(BATCH) {
            n += 1;
            let id = format!("{}-{}-{n}", peer.seed, peer.login.comp_id);
            batch.push(prepare(line, kind, place, *what, &id, &mut dice));
        }
        at = (at + BATCH) % all.len().max(1);
        batch
    })
    .await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Continue,
    Disconnect,
}

/// Logs on whenever the connection has ended, and sends batches. Returns how many messages were answered.
async fn in_batches(
    peer: &Peer,
    after: After,
    mut batch: impl FnMut(&mut Line) -> Vec<(Sent, Vec<u8>)>,
) -> anyhow::Result<u64> {
    let mut answered = 0;
    let mut refused = 0;
    while !peer.stop.is_cancelled() {
        let mut line = match Line::log_on(peer.target.fix, FROM, &peer.login).await {
            Ok(line) => line,
            Err(error) => {
                refused += 1;
                let promise = "a hostile session with its right password is admitted";
                let may_be = after == After::Disconnect || refused <= RECONNECTS;
                peer.promises.check(may_be, promise, || format!("{error:#}"));
                tokio::time::sleep(RECONNECT_INTERVAL).await;
                continue;
            }
        };
        refused = 0;
        let mut is_up = true;
        while is_up && !peer.stop.is_cancelled() {
            let sent = batch(&mut line);
            let (count, is_still_up) = exchange(peer, &mut line, sent).await;
            answered += count;
            is_up = is_still_up && after == After::Continue;
            if is_up {
                tokio::time::sleep(peer.pause).await;
            }
        }
        if after == After::Disconnect {
            drop(line);
            tokio::time::sleep(peer.pause).await;
        }
    }
    Ok(answered)
}

fn prepare(
    line: &mut Line,
    kind: &'static str,
    place: &FieldLocation,
    what: ValueFault,
    id: &str,
    dice: &mut Dice,
) -> (Sent, Vec<u8>) {
    let (body, id_tag) = template(kind, id);
    let good = body.iter().find(|(tag, _)| *tag == place.tag).map_or(&b"1"[..], |(_, value)| value);
    let value = what.value(good, dice);
    let id = if id_tag == place.tag { value.clone() } else { id.as_bytes().to_vec() };
    let (seq, bytes) = line.message(kind, &with_value(body, place, &value));
    (Sent { seq, kind, tag: place.tag, what, value, id }, bytes)
}

/// Sends a batch and waits for its answers; how many came, and whether the connection is still up.
async fn exchange(peer: &Peer, line: &mut Line, batch: Vec<(Sent, Vec<u8>)>) -> (u64, bool) {
    let (mut waiting, bytes): (Vec<Sent>, Vec<Vec<u8>>) = batch.into_iter().unzip();
    let until = Instant::now() + ANSWER_WITHIN;
    let mut answered = 0;
    let mut is_up = line.write(&bytes.concat()).await.is_ok();
    let mut last = String::from("no Logout before");
    while is_up && !waiting.is_empty() {
        let Ok(message) = tokio::time::timeout_at(until.into(), line.next()).await else { break };
        let Some(message) = message else {
            is_up = false;
            break;
        };
        if let Some(n) = waiting.iter().position(|sent| sent.is_answered_by(&message)) {
            answered += 1;
            let sent = waiting.swap_remove(n);
            judge(peer, &sent, &message);
        } else if !carry_on(line, &message).await {
            last = readable(&message);
            is_up = false;
        }
    }
    for sent in &waiting {
        let promise = format!("every order of a hostile session is answered (35={})", sent.kind);
        let ended =
            if is_up { format!("within {ANSWER_WITHIN:?}") } else { format!("connection ended, {last}") };
        peer.promises
            .broken(&promise, || format!("{} on {}: {ended}", sent.describe(), peer.login.begin_string));
    }
    (answered, is_up && waiting.is_empty())
}

/// Session messages, and reports of earlier orders. `false`: the session has ended.
pub(super) async fn carry_on(line: &mut Line, message: &Message) -> bool {
    let text = |tag| message.text(tag).unwrap_or_default().to_owned();
    match message.msg_type() {
        b"1" => line.send("0", &fields(&[(112, &text(112))])).await.is_ok(),
        b"2" => line.fill_gap(text(7).parse().unwrap_or(1)).await.is_ok(),
        b"5" => false,
        _ => true,
    }
}

/// A value that is not text and would be stored is refused with the field's name.
fn judge(peer: &Peer, sent: &Sent, answer: &Message) {
    let is_refused = match answer.msg_type() {
        b"3" | b"j" | b"9" | b"AG" | b"b" => true,
        _ => answer.text(39) == Some("8"),
    };
    let case = || format!("{} on {} got {}", sent.describe(), peer.login.begin_string, readable(answer));
    if sent.what.is_never_text() && is_stored(sent.kind, sent.tag) {
        let promise = format!("text that no field may hold is refused (35={} {})", sent.kind, sent.tag);
        peer.promises.check(is_refused, &promise, case);
        let promise = format!("a refusal names the field at fault (35={} {})", sent.kind, sent.tag);
        peer.promises.check(!is_refused || sent.is_named_by(answer), &promise, case);
    }
    if answer.msg_type() == b"3" && !sent.value.is_empty() {
        let promise = format!("a Reject has RefTagID(371) (35={})", sent.kind);
        peer.promises.check(answer.text(371).is_some(), &promise, case);
    }
}

/// Many messages of one fault at once, then the connection is dropped and the same comes again.
pub(super) async fn volleys(peer: Peer, size: usize) -> anyhow::Result<u64> {
    let mut dice = Dice::new(peer.seed);
    let mut n = 0_u64;
    in_batches(&peer, After::Disconnect, |line| {
        let what = *dice.pick(&ValueFault::value_variants()[..6]);
        let place = FieldLocation { tag: *dice.pick(&[11, 1]), groups: Vec::new() };
        let one = |_| {
            n += 1;
            prepare(line, "D", &place, what, &format!("V-{}-{n}", peer.seed), &mut dice)
        };
        (0..size).map(one).collect()
    })
    .await
}

/// Valid orders in bursts: each gets any answer.
pub(super) async fn flood(peer: Peer, burst: usize) -> anyhow::Result<u64> {
    let mut n = 0_u64;
    in_batches(&peer, After::Continue, |line| {
        let one = |_| {
            n += 1;
            let id = format!("B-{}-{n}", peer.seed);
            let (body, _) = template("D", &id);
            let (seq, bytes) = line.message("D", &body);
            let (what, value) = (ValueFault::Odd, b"0.5".to_vec());
            (Sent { seq, kind: "D", tag: 44, what, value, id: id.into_bytes() }, bytes)
        };
        (0..burst).map(one).collect()
    })
    .await
}

/// After its Logon, bytes that are no messages. The only promise: no other peer is affected.
pub(super) async fn noise(peer: Peer) -> anyhow::Result<u64> {
    let mut dice = Dice::new(peer.seed);
    let mut sent = 0;
    while !peer.stop.is_cancelled() {
        let Ok(mut line) = Line::log_on(peer.target.fix, FROM, &peer.login).await else {
            tokio::time::sleep(RECONNECT_INTERVAL / 2).await;
            continue;
        };
        for _ in 0..20 {
            let mut bytes = garbage(&mut dice, &peer.login.begin_string);
            if dice.roll(3) == 0 {
                // A good message with one byte changed.
                let (body, _) = template("D", "noise");
                bytes = line.message("D", &body).1;
                let at = usize::try_from(dice.roll(u64::try_from(bytes.len())?))?;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random_byte(&mut dice);
                }
            }
            if line.write(&bytes).await.is_err() {
                break;
            }
            sent += 1;
            tokio::time::sleep(peer.pause).await;
        }
    }
    Ok(sent)
}

/// Bytes that a peer may send where a message belongs.
pub(super) fn garbage(dice: &mut Dice, begin_string: &str) -> Vec<u8> {
    let random = |dice: &mut Dice, length: u64| (0..dice.roll(length)).map(|_| random_byte(dice)).collect();
    match dice.roll(7) {
        0 => random(dice, 2_000),
        1 => format!("8={begin_string}\x019=999999999\x0135=A\x01").into_bytes(),
        2 => format!("8={begin_string}\x019=5\x0135=0\x0110=000\x01").into_bytes(),
        3 => b"GET / HTTP/1.1\r\nhost: dvp\r\n\r\n".to_vec(),
        4 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        5 => vec![0; 5_000],
        _ => [format!("8={begin_string}\x019=").into_bytes(), random(dice, 200)].concat(),
    }
}

/// A field of a message: its tag, and the groups it is in, each by its count field and its first field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldLocation {
    tag: u32,
    groups: Vec<(u32, u32)>,
}

/// The value of an attribute: the dictionaries quote with apostrophes.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}='"))?;
    rest.split_once('\'').map(|(value, _)| value)
}

/// Every field of a message, those of groups included. `Ok(None)`: the version has no such message.
fn places(dictionary: &str, msg_type: &str) -> anyhow::Result<Option<Vec<FieldLocation>>> {
    let tags: BTreeMap<&str, u32> = dictionary
        .lines()
        .filter_map(|line| Some((attribute(line, "name")?, attribute(line, "number")?.parse().ok()?)))
        .collect();
    let tag_of = |line: &str| {
        let name = attribute(line, "name").context("a name")?;
        tags.get(name).copied().with_context(|| format!("{name} has no number"))
    };
    let start = format!(" msgtype='{msg_type}'");
    let mut lines = dictionary.lines().skip_while(|line| !line.contains(&start));
    if lines.next().is_none() {
        return Ok(None);
    }
    let mut found = Vec::new();
    // The count field of each group around the line, and its first field once that was seen.
    let mut groups: Vec<(u32, Option<u32>)> = Vec::new();
    for line in lines.map(str::trim).take_while(|line| *line != "</message>") {
        if line == "</group>" {
            groups.pop();
            continue;
        }
        let is_group = line.starts_with("<group");
        if !is_group && !line.starts_with("<field") {
            continue;
        }
        let tag = tag_of(line)?;
        if let Some((_, first @ None)) = groups.last_mut() {
            *first = Some(tag);
        }
        let around = groups.iter().filter_map(|(count, first)| Some((*count, (*first)?))).collect();
        found.push(FieldLocation { tag, groups: around });
        if is_group {
            groups.push((tag, None));
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_nested_groups_are_found_with_their_path() {
        let text = "<message name='X' msgtype='D'>\n<field name='A'/>\n<group name='NoB'>\n<field name='C'/>\n\
                    <group name='NoE'>\n<field name='F'/>\n</group>\n<field name='G'/>\n</group>\n<field name='H'/>\n\
                    </message>\n<field number='1' name='A'/>\n<field number='2' name='NoB'/>\n\
                    <field number='3' name='C'/>\n<field number='5' name='NoE'/>\n<field number='6' name='F'/>\n\
                    <field number='7' name='G'/>\n<field number='8' name='H'/>";
        let found = places(text, "D").expect("a dictionary").expect("the message");
        let found: Vec<(u32, Vec<(u32, u32)>)> = found.into_iter().map(|at| (at.tag, at.groups)).collect();
        let in_b = vec![(2, 3)];
        let expected = vec![
            (1, vec![]),
            (2, vec![]),
            (3, in_b.clone()),
            (5, in_b.clone()),
            (6, vec![(2, 3), (5, 6)]),
            (7, in_b),
            (8, vec![]),
        ];
        assert_eq!(found, expected);
        assert_eq!(places(text, "AF").expect("a dictionary"), None);
    }
}
