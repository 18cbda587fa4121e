//! A file of the bank: its text with the parts that do not count marked, and the decisions about each.

use axum::extract::Path;
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::orders::bank_parts::{self, FilePart, StoredFile};

use crate::blocks::{self, Block, Cell};
use crate::error::PageError;
use crate::offers::Offer;
use crate::operator::Operator;
use crate::request::{Reply, Visit};
use crate::view;

/// A longer file is shown around its marked parts only, with so many bytes before and after each.
const WHOLE_MAX: usize = 40_000;
const AROUND: usize = 1_500;

const PARTS: [&str; 4] = ["#Part", "Why it does not count", "Decision", "Decide"];

fn row(part: &FilePart, digest: &str, operator: &Operator) -> Vec<Cell> {
    let decision = match (&part.execution, &part.decision) {
        (Some(execution), _) => {
            Cell { class: "id".to_owned(), ..Cell::link(execution, view::order(execution)) }
        }
        (None, Some(decision)) => Cell::state(decision),
        (None, None) => Cell::toned("open", "bad"),
    };
    let about = |offer: Offer| offer.about("file", digest).about("part", part.number.to_string());
    let offers = [("bank apply-part", "Apply"), ("bank dismiss-part", "Dismiss")];
    let offers = offers.into_iter().filter(|_| part.decision.is_none());
    let offers = offers.map(|(action, label)| about(Offer::new(action, label)));
    vec![
        Cell::number(part.number.to_string()),
        Cell::text(&part.why),
        decision,
        Cell::offers(operator.offers(offers)),
    ]
}

/// The look is an entry of the audit log, which is written first: the file may name orders.
pub(crate) async fn show(Visit { console, operator }: Visit, Path(digest): Path<String>) -> Reply {
    let mut conn = console.acting().await?;
    let missing = || PageError::NotFound(format!("file {digest}"));
    let bytes = hex::decode(&digest).map_err(|_| missing())?;
    let file = bank_parts::find_file(&mut conn, &bytes).await?.ok_or_else(missing)?;
    operator.record(&mut conn, ConsoleAction::Read, "GET /bank-files/{digest}", &digest).await?;
    let parts = bank_parts::list(&mut conn, &bytes).await?;
    drop(conn);
    let StoredFile { name, message, refusal, unknown, taken_at, cleared_at, content } = file;
    let mut facts =
        vec![("Name", Cell::text(&name)), ("Came", Cell::time(taken_at)), ("SHA-256", Cell::id(&digest))];
    facts.extend(message.map(|message| ("Message", Cell::text(message))));
    facts.extend(refusal.map(|refusal| ("Alarm", Cell::text(refusal))));
    if unknown > 0 {
        facts.push(("Payments or accounts that nobody knows", Cell::count(unknown)));
    }
    facts.extend(cleared_at.map(|at| ("Dealt with", Cell::time(at))));
    let open = parts.iter().filter(|part| part.decision.is_none()).count();
    let dismiss =
        (open > 1).then(|| Offer::new("bank dismiss-part", "Dismiss every open part").about("file", &digest));
    let clear = (open == 0 && unknown > 0 && cleared_at.is_none())
        .then(|| Offer::new("bank clear-alarm", "Clear the alarm").about("subject", &digest));
    let rows = parts.iter().map(|part| row(part, &digest, &operator));
    let table = Block::table("Parts that do not count", &PARTS, "Every part of it counts.", rows)
        .with_offers(operator.offers(dismiss.into_iter().chain(clear)));
    let text = match content {
        Some(content) => Block::document("Its text", marked(&content, &parts)),
        None => Block::facts("Its text", vec![("Kept", Cell::text("no longer, or too large"))]),
    };
    let (tone, state) = if cleared_at.is_some() { ("good", "dealt with") } else { ("bad", "open") };
    let state = (!parts.is_empty() || unknown > 0).then(|| Cell::toned(state, tone));
    let page = operator.page("Reconciliation", "File of the bank");
    blocks::render(page, state, vec![Block::facts("File", facts), table, text])
}

/// A piece of a text, and whether it is marked.
type Piece = (String, bool);

fn marked(content: &str, parts: &[FilePart]) -> Vec<Piece> {
    let spans = parts.iter().filter_map(FilePart::span).map(|span| (span.start, span.end));
    let mut spans: Vec<(usize, usize)> =
        spans.filter(|(start, end)| content.get(*start..*end).is_some()).collect();
    spans.sort_unstable();
    spans.dedup();
    let mut pieces = Vec::new();
    let mut from = 0;
    for (n, (start, end)) in spans.iter().enumerate() {
        // Of one within another only the inner one is marked.
        if spans.get(n + 1).is_some_and(|next| next.0 < *end) {
            continue;
        }
        pieces.push((between(content, from, *start), false));
        pieces.push((shortened(content, content.get(*start..*end).unwrap_or_default(), [true, true]), true));
        from = *end;
    }
    pieces.push((between(content, from, content.len()), false));
    pieces.retain(|(text, _)| !text.is_empty());
    pieces
}

/// The text that no part has: of a long file what stands beside parts.
fn between(content: &str, from: usize, to: usize) -> String {
    shortened(content, content.get(from..to).unwrap_or_default(), [from > 0, to < content.len()])
}

/// A piece of a long file without its middle, with its beginning and its end where these are wanted.
fn shortened(content: &str, text: &str, [head, tail]: [bool; 2]) -> String {
    if content.len() <= WHOLE_MAX || text.len() <= 2 * AROUND {
        return text.to_owned();
    }
    let floor = |mut at: usize| {
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let head = text.get(..floor(AROUND)).filter(|_| head).unwrap_or_default();
    let tail = text.get(floor(text.len() - AROUND)..).filter(|_| tail).unwrap_or_default();
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n… {} bytes …\n{tail}", view::count(i64::try_from(left_out).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(starts_at: i32, ends_at: i32) -> FilePart {
        let (why, decision, execution, decided_at) = (String::new(), None, None, None);
        FilePart {
            number: 1,
            why,
            starts_at: Some(starts_at),
            ends_at: Some(ends_at),
            decision,
            execution,
            decided_at,
        }
    }

    #[test]
    fn parts_are_marked_once_and_a_long_file_is_shown_around_them() {
        let shown = |content: &str, parts: &[FilePart]| marked(content, parts);
        let piece = |text: &str, is_marked| (text.to_owned(), is_marked);
        let text = "<a><b>é</b><c/></a>";
        let all = vec![piece("<a>", false), piece("<b>é</b>", true), piece("<c/></a>", false)];
        assert_eq!(shown(text, &[part(0, 20), part(3, 12), part(3, 12)]), all);
        assert_eq!(shown(text, &[]), [piece(text, false)]);
        // Of places that are none in it nothing is marked.
        assert_eq!(shown(text, &[part(7, 900), part(7, 12)]), [piece(text, false)]);
        let long = format!("{}<x/>{}", "é".repeat(WHOLE_MAX), "y".repeat(WHOLE_MAX));
        let start = i32::try_from(2 * WHOLE_MAX).unwrap();
        let pieces = shown(&long, &[part(start, start + 4)]);
        let length: usize = pieces.iter().map(|(text, _)| text.len()).sum();
        assert!(pieces.contains(&piece("<x/>", true)) && length < 4 * AROUND, "{length}");
        assert!(
            pieces[0].0.contains("78,500 bytes") && pieces[0].0.ends_with("éé"),
            "{}",
            &pieces[0].0[..60]
        );
    }
}
