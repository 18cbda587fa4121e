//! An order's happenings as a picture: a lane each for the partner, the chain, the bank, the ledger and the service, a dot
//! for each happening in their order, and between two steps how long it took.

use crate::timeline::Happening;
use crate::view;

/// The lanes, each with the kinds of happenings in it.
const LANES: [(&str, &[&str]); 5] = [
    ("Partner", &["event", "fix"]),
    ("Chain", &["chain"]),
    ("Bank", &["rail", "bank"]),
    ("Ledger", &["ledger"]),
    ("Operators", &["operator", "screening"]),
];
/// The newest happenings that are drawn.
const DRAWN: usize = 48;
const LEFT: usize = 84;
const STEP: usize = 26;
const TOP: usize = 16;
const LANE: usize = 26;
/// Shorter waits are not written.
const WRITTEN_SECONDS: i64 = 2;

/// The picture, in its units from the top left corner.
pub(crate) struct Lanes {
    pub width: usize,
    pub height: usize,
    /// Each lane's name and height.
    pub lanes: Vec<(&'static str, usize)>,
    /// The way of the order through the lanes.
    pub way: String,
    pub dots: Vec<Dot>,
    /// Where a wait is written, and how long it was.
    pub waits: Vec<(usize, String)>,
    /// The picture in words.
    pub words: String,
}

pub(crate) struct Dot {
    pub x: usize,
    pub y: usize,
    pub tone: &'static str,
    pub title: String,
}

fn lane(kind: &str) -> usize {
    LANES.iter().position(|(_, kinds)| kinds.contains(&kind)).unwrap_or(LANES.len() - 1)
}

/// `None`: nothing has happened.
pub(crate) fn of(happenings: &[Happening]) -> Option<Lanes> {
    let drawn = happenings.get(happenings.len().saturating_sub(DRAWN)..).unwrap_or_default();
    let (first, last) = (happenings.first()?, happenings.last()?);
    let y = |lane: usize| TOP + lane * LANE;
    let dots: Vec<Dot> = drawn
        .iter()
        .enumerate()
        .map(|(index, one)| Dot {
            x: LEFT + index * STEP,
            y: y(lane(one.kind)),
            tone: one.tone,
            title: format!("{} {}: {}", one.at.text, one.kind, one.title),
        })
        .collect();
    let waits = drawn.windows(2).enumerate().filter_map(|(index, pair)| {
        let [before, after] = pair else { return None };
        let seconds = after.time.signed_duration_since(before.time).num_seconds();
        (seconds >= WRITTEN_SECONDS).then(|| (LEFT + index * STEP + STEP / 2, view::span(seconds)))
    });
    let points: Vec<String> = dots.iter().map(|dot| format!("{},{}", dot.x, dot.y)).collect();
    let took = view::span(last.time.signed_duration_since(first.time).num_seconds());
    let of_each = LANES.iter().map(|(name, kinds)| {
        format!(
            "{} {}",
            happenings.iter().filter(|one| kinds.contains(&one.kind)).count(),
            name.to_lowercase()
        )
    });
    let words = format!(
        "{} happenings in {took}: {}; the last one: {}",
        happenings.len(),
        of_each.collect::<Vec<_>>().join(", "),
        last.title
    );
    Some(Lanes {
        width: LEFT + drawn.len() * STEP,
        height: y(LANES.len()) + 8,
        lanes: LANES.iter().enumerate().map(|(index, (name, _))| (*name, y(index))).collect(),
        way: points.join(" "),
        dots,
        waits: waits.collect(),
        words,
    })
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn each_happening_is_in_its_lane_and_long_waits_are_written() {
        let happening = |seconds, kind, title: &str| {
            let time = DateTime::from_timestamp(seconds, 0).unwrap();
            Happening { at: time.into(), time, kind, title: title.into(), tone: "busy", details: Vec::new() }
        };
        let all =
            [happening(0, "event", "accepted"), happening(1, "chain", "lock"), happening(62, "bank", "paid")];
        let drawn = of(&all).unwrap();
        assert_eq!(drawn.way, "84,16 110,42 136,68");
        assert_eq!(drawn.waits, [(123, "1 min 1 s".to_owned())]);
        assert!(
            drawn.words.starts_with("3 happenings in 1 min 2 s: 1 partner, 1 chain, 1 bank"),
            "{}",
            drawn.words
        );
        assert!(of(&[]).is_none());
        let many: Vec<_> = (0..100).map(|second| happening(second, "ledger", "posted")).collect();
        assert_eq!(of(&many).unwrap().dots.len(), DRAWN);
    }
}
