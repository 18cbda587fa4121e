//! The home page: throughput, money in flight, what waits for operators, and the state of each part.

use askama::Template;
use axum::response::{Html, IntoResponse as _};
use chrono::{DateTime, Utc};
use dvp_domain::settlement::State;
use dvp_store::chain::{ChainFees, StatusRow};
use dvp_store::database::changes::Subject;
use dvp_store::ledger::balances::BalanceRow;
use dvp_store::operators::overview::{FeedCounts, InFlight, Lately, seconds};
use dvp_store::workers::processes::Process;

use crate::lines::{ApprovalLine, BreakLine, OrderLine};
use crate::request::{Reply, Visit};
use crate::view::{self, Page};

/// What the page shows.
const SHOWN: [Subject; 7] = [
    Subject::Feed,
    Subject::Approvals,
    Subject::Breaks,
    Subject::Chains,
    Subject::Controls,
    Subject::Fix,
    Subject::Webhooks,
];
/// The seconds over which the rates are averaged.
const RATE_SECONDS: usize = 60;
/// The chart: the last ten minutes, a bar for each five seconds.
const BARS: usize = 120;
const BAR_SECONDS: usize = 5;
const BAR_WIDTH: usize = 5;
const CHART_HEIGHT: i64 = 64;
/// Of the chart of the last day: an hour's width, and the height of the most failures.
const HOUR_WIDTH: i32 = 25;
const FAILED_HEIGHT: i64 = 16;

#[derive(Template)]
#[template(path = "home.html")]
struct HomePage {
    page: Page,
    rate: String,
    minute: Minute,
    bars: Vec<Bar>,
    highest: String,
    tiles: Vec<Tile>,
    in_flight: Vec<FlightLine>,
    stuck: Vec<OrderLine>,
    breaks: Vec<BreakLine>,
    approvals: Vec<ApprovalLine>,
    chains: Vec<ChainLine>,
    inventory: Vec<Held>,
    today: Vec<(&'static str, String)>,
    hours: Vec<Hour>,
    longest: String,
    bank: Vec<(&'static str, String)>,
    processes: Vec<ProcessLine>,
    sessions: Vec<(&'static str, String)>,
    webhooks: Vec<(&'static str, String)>,
}

/// The last minute's events.
struct Minute {
    accepted: String,
    completed: String,
    failed: String,
    events: String,
}

/// A bar of the chart, in its units from the top left corner.
struct Bar {
    x: usize,
    y: i64,
    height: i64,
}

/// An hour of the chart of the last day, in its units from the left and from the top.
struct Hour {
    x: i32,
    /// Where the bars of the median and of the 95th percentile begin, and how high the mark of failures is.
    median: i64,
    most: i64,
    failed: i64,
    words: String,
}

/// A number that should be zero, or that waits for somebody.
struct Tile {
    name: &'static str,
    count: String,
    tone: &'static str,
    link: &'static str,
}

struct FlightLine {
    state: String,
    code: String,
    tone: &'static str,
    asset: String,
    orders: String,
    amount: String,
    oldest: String,
    /// Its part of all open orders, in hundredths.
    part: i64,
}

/// What a provider holds of an asset.
struct Held {
    provider: String,
    asset: String,
    available: String,
    reserved: String,
    /// The part that open orders hold, in hundredths.
    part: i64,
}

impl Held {
    fn of(row: &BalanceRow, decimals: u8) -> Self {
        let number = |text: &str| text.parse::<u128>().unwrap_or_default();
        let (available, reserved) = (number(&row.available), number(&row.reserved));
        let all = available.saturating_add(reserved).max(1);
        let part = reserved.saturating_mul(100).checked_div(all).and_then(|part| i64::try_from(part).ok());
        Self {
            provider: row.owner.clone(),
            asset: row.asset.clone(),
            available: view::amount(&row.available, decimals),
            reserved: view::amount(&row.reserved, decimals),
            part: part.unwrap_or_default(),
        }
    }
}

impl From<&InFlight> for FlightLine {
    fn from(row: &InFlight) -> Self {
        Self {
            state: view::words(&row.state),
            code: row.state.clone(),
            tone: view::tone(&row.state),
            asset: row.asset.clone(),
            orders: view::count(row.orders),
            amount: view::amount(&row.amount, u8::try_from(row.exponent).unwrap_or(0)),
            oldest: view::age(row.oldest_at),
            part: 0,
        }
    }
}

/// A process, with the beginning of its configuration's digest.
struct ProcessLine {
    host: String,
    roles: String,
    version: String,
    configuration: String,
    tone: &'static str,
    state: &'static str,
    since: String,
}

/// The processes; one whose configuration is not that of most is shown as wrong.
fn processes(rows: &[Process]) -> Vec<ProcessLine> {
    let count = |wanted: &str| rows.iter().filter(|row| row.configuration == wanted).count();
    let most = rows.iter().map(|row| count(&row.configuration)).max().unwrap_or_default();
    let line = |row: &Process| {
        let (state, tone) = match row.is_silent {
            true => ("silent", "warn"),
            false if count(&row.configuration) < most => ("configured otherwise", "bad"),
            false => ("running", "good"),
        };
        ProcessLine {
            host: row.host.clone(),
            roles: row.roles.join(", "),
            version: row.version.clone(),
            configuration: row.configuration.chars().take(8).collect(),
            tone,
            state,
            since: view::age(row.started_at),
        }
    };
    rows.iter().map(line).collect()
}

struct ChainLine {
    name: String,
    chain_id: u64,
    state: &'static str,
    tone: &'static str,
    reason: String,
    head: String,
    lag: String,
    silent: String,
    fills: String,
    base_fee: String,
}

impl From<&StatusRow> for ChainLine {
    fn from(row: &StatusRow) -> Self {
        let number = |number: u64| view::count(i64::try_from(number).unwrap_or(i64::MAX));
        Self {
            name: row.name.clone(),
            chain_id: row.chain_id,
            state: row.state.as_str(),
            tone: view::tone(row.state.as_str()),
            reason: row.reason.clone().unwrap_or_default(),
            head: number(row.node_head.0),
            lag: number(row.node_head.blocks_above(row.indexed_head)),
            silent: view::span(i64::try_from(row.silent_seconds).unwrap_or(i64::MAX)),
            fills: number(row.fills_waiting),
            base_fee: "–".to_owned(),
        }
    }
}

pub(crate) async fn show(Visit { console, operator }: Visit) -> Reply {
    let overview = console.overview().await?;
    let pulse = console.pulse.seconds();
    let minute = sum(pulse.iter().rev().take(RATE_SECONDS));
    let (bars, highest) = chart(&pulse);
    let waiting = &overview.waiting;
    let (sessions, webhooks) = (&overview.sessions, &overview.webhooks);
    let tile = |name, count: i64, tone, link| Tile {
        name,
        count: view::count(count),
        tone: if count == 0 { "calm" } else { tone },
        link,
    };
    let ago = |at: Option<DateTime<Utc>>| {
        at.map_or_else(|| "never".to_owned(), |at| format!("{} ago", view::age(at)))
    };
    let (day, of_hours) =
        overview.lately.split_first().map_or((Lately::default(), &[][..]), |(day, hours)| (*day, hours));
    let (hours, longest) = settled(of_hours);
    let bank = &overview.bank;
    let page = HomePage {
        inventory: overview.inventory.iter().map(|row| Held::of(row, console.decimals(&row.asset))).collect(),
        today: vec![
            ("From acceptance to payout", day.words().unwrap_or_else(|| "no order today".to_owned())),
            ("Paid out", view::count(day.paid)),
            ("Failed, expired or cancelled", view::count(day.failed)),
        ],
        hours,
        longest,
        bank: vec![
            ("Payments without a final answer", view::count(bank.unanswered)),
            ("Oldest of them", bank.oldest_at.map_or_else(|| "–".to_owned(), view::age)),
            ("Last message to the bank", ago(bank.sent_at)),
            ("Last message of the bank", ago(bank.received_at)),
        ],
        page: operator.page("Home", "Home").live(&SHOWN),
        rate: per_second(minute.accepted),
        minute: Minute {
            accepted: view::count(minute.accepted),
            completed: view::count(minute.completed),
            failed: view::count(minute.failed),
            events: view::count(minute.events),
        },
        bars,
        highest: per_second_of_bar(highest),
        tiles: vec![
            tile("Pending approvals", waiting.pending_approvals, "warn", "/approvals?state=pending"),
            tile("Stuck orders", waiting.stuck_orders, "bad", "/orders?view=stuck"),
            tile("Payment alarms", waiting.alarmed_payments, "bad", "/orders?view=alarmed"),
            tile("Bank files", bank.files, "bad", "/reconciliation"),
            tile("Held by screening", waiting.held_orders, "warn", "/orders?view=open&state=accepted"),
            tile("Breaks", waiting.breaks, "bad", "#breaks"),
            tile("Set aside", waiting.set_aside, "bad", "/work"),
            tile("Pauses", waiting.pauses, "warn", ""),
        ],
        in_flight: flight(&overview.in_flight),
        stuck: overview.stuck.iter().map(OrderLine::from).collect(),
        breaks: overview.breaks.iter().map(|row| BreakLine::of(row, &console)).collect(),
        approvals: overview.approvals.iter().map(ApprovalLine::from).collect(),
        chains: overview.chains.iter().map(|row| chain(row, &overview.fees)).collect(),
        processes: processes(&overview.processes),
        sessions: vec![
            ("Enabled", view::count(sessions.enabled)),
            ("Run by a process", view::count(sessions.owned)),
            ("Disabled", view::count(sessions.disabled)),
            ("Parked orders", view::count(sessions.parked_orders)),
        ],
        webhooks: vec![
            ("Active endpoints", view::count(webhooks.active)),
            ("Failing", view::count(webhooks.failing)),
            ("Inactive", view::count(webhooks.inactive)),
            ("Queued deliveries", view::count(webhooks.queued)),
            ("Oldest queued", webhooks.oldest_at.map_or_else(|| "–".to_owned(), view::age)),
            ("Events to read", view::count(webhooks.behind)),
        ],
    };
    Ok(Html(page.render()?).into_response())
}

/// The hours of a day as bars, the newest on the right, and what the highest of them is.
fn settled(rows: &[Lately]) -> (Vec<Hour>, String) {
    let longest = rows.iter().filter_map(|row| row.most_ms).max().unwrap_or(0);
    let failures = rows.iter().map(|row| row.failed).max().unwrap_or(0).max(1);
    let top = |millis: Option<i64>| {
        let height = millis.map_or(0, |millis| (millis.saturating_mul(CHART_HEIGHT) / longest.max(1)).max(1));
        CHART_HEIGHT - height
    };
    let hour = |row: &Lately| {
        let ago = row.hours_ago?;
        let took = row.words().map(|words| format!(", {words}")).unwrap_or_default();
        Some(Hour {
            x: (23 - ago) * HOUR_WIDTH,
            median: top(row.median_ms),
            most: top(row.most_ms),
            failed: (row.failed.saturating_mul(FAILED_HEIGHT) / failures).max(i64::from(row.failed > 0)),
            words: format!("{ago} to {} h ago: {} paid out{took}; {} failed", ago + 1, row.paid, row.failed),
        })
    };
    (rows.iter().filter_map(hour).collect(), seconds(longest))
}

/// The stages in the order in which orders pass them, each with its part of all open orders.
fn flight(rows: &[InFlight]) -> Vec<FlightLine> {
    let all = rows.iter().map(|row| row.orders).max().unwrap_or(0).max(1);
    let place = |row: &InFlight| State::OPEN_STAGES.iter().position(|stage| *stage == row.state);
    let mut rows: Vec<&InFlight> = rows.iter().collect();
    rows.sort_by_key(|row| place(row));
    let part = |row: &InFlight| (row.orders.saturating_mul(100) / all).max(1);
    rows.into_iter().map(|row| FlightLine { part: part(row), ..FlightLine::from(row) }).collect()
}

fn chain(row: &StatusRow, fees: &[(u64, ChainFees)]) -> ChainLine {
    let found = fees.iter().find(|(chain, _)| *chain == row.chain_id);
    let fee = found.map(|(_, fees)| fees.base_fee);
    let shown = fee.map(|wei| view::amount(&wei.to_string(), view::GWEI));
    let line = ChainLine::from(row);
    ChainLine { base_fee: shown.unwrap_or_else(|| line.base_fee.clone()), ..line }
}

fn sum<'a>(seconds: impl Iterator<Item = &'a FeedCounts>) -> FeedCounts {
    seconds.fold(FeedCounts::default(), |sum, one| sum.plus(one))
}

/// A count of the last minute as a rate with one decimal.
fn per_second(count: i64) -> String {
    tenths(count.saturating_mul(10) / i64::try_from(RATE_SECONDS).unwrap_or(1))
}

fn per_second_of_bar(count: i64) -> String {
    tenths(count.saturating_mul(10) / i64::try_from(BAR_SECONDS).unwrap_or(1))
}

fn tenths(tenths: i64) -> String {
    format!("{}.{}", view::count(tenths / 10), tenths % 10)
}

/// Bars of accepted orders, the newest on the right, and the highest count.
fn chart(seconds: &[FeedCounts]) -> (Vec<Bar>, i64) {
    let counts: Vec<i64> = seconds
        .rchunks(BAR_SECONDS)
        .take(BARS)
        .map(|bar| bar.iter().map(|second| second.accepted).sum())
        .collect();
    let highest = counts.iter().copied().max().unwrap_or(0);
    let bar = |(index, count): (usize, i64)| {
        let height =
            if count == 0 { 0 } else { (count.saturating_mul(CHART_HEIGHT) / highest.max(1)).max(1) };
        Bar { x: (BARS - 1 - index) * BAR_WIDTH, y: CHART_HEIGHT - height, height }
    };
    let bars = counts.into_iter().enumerate().map(bar).filter(|bar| bar.height > 0).collect();
    (bars, highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(count: i64) -> FeedCounts {
        FeedCounts { accepted: count, ..FeedCounts::default() }
    }

    #[test]
    fn the_newest_bar_is_on_the_right_and_the_highest_fills_the_chart() {
        let mut seconds = vec![accepted(0); 10];
        seconds.extend([accepted(10), accepted(10), accepted(0), accepted(0), accepted(0)]);
        seconds.extend([accepted(0), accepted(0), accepted(0), accepted(0), accepted(5)]);
        let (bars, highest) = chart(&seconds);
        let drawn: Vec<_> = bars.iter().map(|bar| (bar.x, bar.y, bar.height)).collect();
        assert_eq!(highest, 20);
        assert_eq!(drawn, [(595, 48, 16), (590, 0, 64)]);
    }

    #[test]
    fn rates_have_one_decimal() {
        assert_eq!([0, 5, 90, 60_000].map(per_second), ["0.0", "0.0", "1.5", "1,000.0"]);
    }
}
