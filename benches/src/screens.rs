//! The console's screens over a large history: every page with its filters, searches and exports, as an operator who has
//! signed in requests them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_console::{Console, ConsoleSettings, SessionPolicy};
use dvp_core::ledger::statements::account_name;
use dvp_core::operators::accounts::token_hash;
use dvp_domain::address::OwnContracts;
use dvp_domain::environment::Environment;
use dvp_domain::operator::OperatorRole;
use dvp_ops::FixRules;
use dvp_store::database::pool::pool_options;
use dvp_store::operators::accounts::{self, sessions};
use dvp_testing::{Database, Harness};
use reqwest::header::{COOKIE, LOCATION, ORIGIN, SET_COOKIE};
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::figure::within;
use crate::harness::DurableHarness;
use crate::history::{ENDPOINT, SESSION};
use crate::progress;

pub const TOKEN: &str = "link-of-the-measurement";
/// A page uses two at most. With more, a page would show how often its connection has run its statements: PostgreSQL
/// plans the first five executions on a connection for their values, and reads the tables' definitions at the first.
const CONNECTIONS: u32 = 2;

/// A page: its route in the console's table, and an address.
#[derive(Debug, Clone)]
pub struct Screen {
    pub route: &'static str,
    pub path: String,
}

/// The console of a harness on loopback, and an operator's session.
pub struct Browser {
    client: reqwest::Client,
    origin: String,
    cookie: String,
    pub stop: CancellationToken,
}

impl Browser {
    /// Serves the console and signs an operator in who may see everything.
    pub async fn open(harness: &DurableHarness) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let origin = serve(harness, stop.clone()).await?;
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        let form = client.post(format!("{origin}/login")).header(ORIGIN, &origin);
        let form = form.header("content-type", "application/x-www-form-urlencoded");
        let answer = form.body(format!("token={TOKEN}")).send().await?;
        let cookie = answer.headers().get(SET_COOKIE).context("the link was not taken")?.to_str()?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(Self { client, origin, cookie, stop })
    }

    /// Reads a page, or follows where it leads. Returns the time of it all.
    pub async fn get(&self, screen: &Screen) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let mut path = screen.path.clone();
        loop {
            let request = self.client.get(format!("{}{path}", self.origin)).header(COOKIE, &self.cookie);
            let answer = request.send().await?;
            let (status, next) = (answer.status(), answer.headers().get(LOCATION).cloned());
            let body = answer.text().await?;
            match next {
                Some(next) if status.is_redirection() => next.to_str()?.clone_into(&mut path),
                _ => {
                    // A file of one day of a large history is refused: it would have too many lines.
                    let is_too_long = status.as_u16() == 400 && body.contains("choose fewer days");
                    ensure!(status.is_success() || is_too_long, "{path}: {status} {body}");
                    return Ok(began.elapsed());
                }
            }
        }
    }
}

/// Serves the console until it is stopped, for an operator who may see everything and has a link. Returns its address.
pub async fn serve<D: Database>(harness: &Harness<D>, stop: CancellationToken) -> anyhow::Result<String> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let settings = ConsoleSettings {
        origins: vec![origin.parse()?],
        environment: Environment::Test,
        decimals: harness.market.registry.assets.iter().map(|a| (a.symbol.clone(), a.exponent)).collect(),
        targets: harness.market.targets(),
        proxies: Vec::new(),
        sessions: SessionPolicy::default(),
        provider: None,
        connections: ConsoleSettings::CONNECTIONS,
    };
    let vault = Arc::new(harness.engine.context().vault.clone());
    let options = PgConnectOptions::clone(&harness.pool().connect_options());
    let pool = pool_options().max_connections(CONNECTIONS).connect_with(options).await?;
    let fix = FixRules { stale_types: Vec::new(), check: |_, _| Ok(()) };
    let console = Console::new(pool.into(), vault, settings, OwnContracts::default(), fix);
    tokio::spawn(dvp_console::serve(listener, console, stop));
    sign_up(harness).await?;
    Ok(origin)
}

async fn sign_up<D: Database>(harness: &Harness<D>) -> anyhow::Result<()> {
    let mut conn = harness.pool().acquire().await?;
    sqlx::query("delete from operator_session where operator_id = 'opr_load'").execute(&mut *conn).await?;
    let there: bool = sqlx::query_scalar("select exists (select from operator where id = 'opr_load')")
        .fetch_one(&mut *conn)
        .await?;
    if !there {
        accounts::insert(&mut conn, "opr_load", "load", &OperatorRole::ALL, "load").await?;
    }
    let link = sessions::NewLink {
        operator_id: "opr_load",
        token_hash: &token_hash(TOKEN),
        reusable: true,
        good_for: Duration::from_secs(86_400),
        code_hash: None,
        approval_id: None,
    };
    Ok(sessions::insert_link(&mut conn, &link).await?)
}

/// Every page over a history, with identifiers of orders from its middle.
pub async fn list(harness: &DurableHarness) -> anyhow::Result<Vec<Screen>> {
    let sample = "select e.reference, e.intent_id, e.client_reference, '0x' || encode(e.entity, 'hex'), b.end_to_end_id, \
                         b.bank_reference, (extract(epoch from e.accepted_at) * 1000000)::int8, '0x' || encode(r.content_hash, 'hex') \
                  from execution e join bank_payment b on b.execution = e.reference join receipt r on r.reference = e.reference \
                  where e.state_name = 'completed' and e.partner_id = 'ptn_acme' \
                    and e.accepted_at < now() - interval '10 days' \
                  order by e.accepted_at desc limit 1";
    let sample: (String, String, String, String, String, String, i64, String) = harness.row(sample).await;
    let (reference, intent, client, entity, payment, bank_reference, micros, hash) = sample;
    let (approval, run, tx, clordid, document, file): (String, i64, String, String, String, String) = sqlx::query_as(
        "select (select id from approval order by requested_at limit 1), (select max(id) from reconciliation_run), \
                (select '0x' || encode(hash, 'hex') from tx_attempt limit 1), \
                (select cl_ord_id from fix_order where session_id = $1 limit 1), \
                (select encode(digest, 'hex') from bank_message where execution = $2 limit 1), \
                (select encode(file, 'hex') from bank_file_part limit 1)",
    )
    .bind(SESSION)
    .bind(&reference)
    .fetch_one(harness.pool())
    .await?;
    let session = SESSION.replace(':', "%3A").replace('>', "%3E");
    let day = |ago: i64| (chrono::Utc::now() - chrono::TimeDelta::days(ago)).format("%Y-%m-%d").to_string();
    let mut screens = Vec::new();
    let mut add = |route: &'static str, path: String| screens.push(Screen { route, path });
    // Their addresses are their routes.
    let pages = "/ /approvals /reconciliation /treasury /treasury/fees /treasury/fees.csv /treasury/exposure \
                 /treasury/exposure.csv /work /chains /fix /webhooks /partners /operators /audit /audit.jsonl /account";
    pages.split(' ').for_each(|page| add(page, page.into()));
    for query in [
        String::new(),
        "?view=open".into(),
        "?view=stuck".into(),
        "?view=unfilled".into(),
        "?view=alarmed".into(),
        "?state=completed".into(),
        "?state=paying".into(),
        "?state=reversed".into(),
        "?view=unfilled&state=reversed".into(),
        "?view=unfilled&partner=globex".into(),
        "?view=unfilled&partner=without-orders".into(),
        "?partner=globex".into(),
        "?partner=globex&state=payout_failed".into(),
        format!("?from={}&until={}", day(20), day(19)),
        format!("?until={}", day(25)),
        format!("?before={micros}.{reference}"),
    ] {
        add("/orders", format!("/orders{query}"));
        add("/orders.csv", format!("/orders.csv{query}"));
    }
    add("/orders/{reference}", format!("/orders/{reference}"));
    add("/orders/{reference}/documents", format!("/orders/{reference}/documents"));
    add("/orders/{reference}/documents/{digest}", format!("/orders/{reference}/documents/{document}"));
    add("/bank-files/{digest}", format!("/bank-files/{file}"));
    add("/approvals", "/approvals?state=approved".into());
    add("/approvals/{id}", format!("/approvals/{approval}"));
    add("/reconciliation/{run}", format!("/reconciliation/{run}"));
    add("/reconciliation/{run}/{ordinal}", format!("/reconciliation/{run}/1"));
    for account in [
        "provider:north:available".to_owned(),
        account_name("partner", &harness.partner().name(), "available"),
        "fees".to_owned(),
        format!("external:{reference}"),
    ] {
        let range = format!("from={}&until={}", day(12), day(11));
        add("/treasury/statement", format!("/treasury/statement?account={account}"));
        add("/treasury/statement", format!("/treasury/statement?account={account}&asset=USD&{range}"));
        add(
            "/treasury/statement.csv",
            format!("/treasury/statement.csv?account={account}&asset=USD&{range}"),
        );
    }
    add("/fix/{session}", format!("/fix/{session}"));
    for query in [
        String::new(),
        "?seq=3".into(),
        format!("?cl_ord_id={clordid}"),
        format!("?from={}T00:00&until={}T00:00", day(9), day(8)),
    ] {
        add("/fix/{session}/messages", format!("/fix/{session}/messages{query}"));
    }
    add("/webhooks/{endpoint}", format!("/webhooks/{ENDPOINT}"));
    add("/partners/{name}", "/partners/acme".into());
    add("/operators/{name}", "/operators/load".into());
    let forms = "/act/limit/set /act/fix-session/logout /act/webhook/resend /act/key/enable /act/operator/link \
                 /act/chain/resume";
    forms.split(' ').for_each(|form| add("/act", form.into()));
    let (wallet, words) = ("0x0000000000000000000000000000000000000009", "closed beneficiary");
    for text in [
        &reference,
        &intent,
        &client,
        &entity,
        &payment,
        &bank_reference,
        &hash,
        &tx,
        &clordid,
        wallet,
        words,
        "nothing",
    ] {
        add("/search", format!("/search?q={}", text.replace(' ', "+")));
    }
    Ok(screens)
}

/// The times of a page, in order.
#[derive(Debug)]
pub struct Rendered {
    pub screen: Screen,
    times: Vec<Duration>,
}

impl Rendered {
    /// The time within which this share of a hundred was rendered.
    pub fn within(&self, share: usize) -> Duration {
        within(&self.times, share)
    }

    /// It is a file of as many lines as its range has, and no screen.
    pub fn is_export(&self) -> bool {
        [".csv", ".jsonl"].iter().any(|kind| self.screen.route.ends_with(kind))
    }
}

/// Reads every page `rounds` times, one after the other.
pub async fn render(harness: &DurableHarness, rounds: usize) -> anyhow::Result<Vec<Rendered>> {
    let browser = Browser::open(harness).await?;
    let mut all = Vec::new();
    let screens = list(harness).await?;
    progress::expect(u64::try_from(screens.len())?);
    for screen in screens {
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            times.push(browser.get(&screen).await?);
        }
        times.sort_unstable();
        progress::done(screen.route);
        all.push(Rendered { screen, times });
    }
    browser.stop.cancel();
    Ok(all)
}
