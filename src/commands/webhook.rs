//! `dvp webhook listen|trigger|verify|endpoints|deliveries|notices`: a partner's tools, and an operator's view.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use dvp_api::delivery::signature::verify as check;
use dvp_core::context::now;
use dvp_core::secrets::DELIVERY;
use dvp_domain::time::Timestamp;
use dvp_store::webhooks;
use dvp_store::webhooks::deliveries::{self, LogFilter};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::{GivenSecret, PlaceArgs};
use crate::output::{all_pages, print, print_list};
use crate::sandbox_dir::{read_ready, text};

#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// Receive deliveries: print them, verify their signatures, pass them on.
    ///
    /// With --dir it registers itself at the sandbox, which must run with --webhook-allow-private, as the seeded
    /// partner's endpoint. Without, give the endpoint's secret, and let something that ends TLS lead to it.
    #[command(
        after_help = "Example:\n  dvp webhook listen --dir .dvp --forward-to http://127.0.0.1:3000/hook"
    )]
    Listen(WebhookListen),
    /// Have an event sent to the endpoint: `test.ping`, or a made-up one of any type.
    #[command(after_help = "Example:\n  dvp webhook trigger payout.failed --dir .dvp")]
    Trigger(WebhookTrigger),
    /// Check the signature of a delivery. Exit code 1 when it is not genuine.
    #[command(
        after_help = "Example:\n  dvp webhook verify --secret env:WEBHOOK_SECRET --signature t=1767225600,v1=… --file body.json"
    )]
    Verify(WebhookVerify),
    /// List endpoints and how they are.
    #[command(after_help = "Example:\n  dvp webhook endpoints --dir .dvp --json")]
    Endpoints(PlaceArgs),
    /// List an endpoint's deliveries, latest first, with every attempt.
    #[command(after_help = "Example:\n  dvp webhook deliveries --endpoint-id ep_… --state failed --dir .dvp")]
    Deliveries(WebhookDeliveries),
    /// List the notices to owners of endpoints, latest first.
    #[command(after_help = "Example:\n  dvp webhook notices --dir .dvp")]
    Notices(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct WebhookListen {
    /// The directory of a running sandbox.
    #[arg(long, value_name = "DIR", required_unless_present = "secret")]
    pub dir: Option<PathBuf>,
    /// The endpoint's signing secret: env:NAME, file:PATH, or - for a line of standard input. The secret itself is
    /// taken with a warning.
    #[arg(long, value_name = "WHSEC", conflicts_with = "dir")]
    pub secret: Option<GivenSecret>,
    /// Where to listen; port 0 takes any free port. TLS with --dir, plain HTTP without.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Where genuine deliveries are passed on to; its answer is given back. 200 without.
    #[arg(long, value_name = "URL")]
    pub forward_to: Option<String>,
    /// Subscribe to these types only.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub types: Vec<String>,
    /// Print one line of JSON for each delivery.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookTrigger {
    /// An event type of the contract.
    pub kind: String,
    /// The directory of a running sandbox, for its address and its partner's key.
    #[arg(long, value_name = "DIR", required_unless_present = "base_url")]
    pub dir: Option<PathBuf>,
    /// The service's address, such as `https://api.example.com`.
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// A test key: env:NAME, file:PATH, or - for a line of standard input; the environment's DVP_API_KEY when not
    /// given. The key itself is taken with a warning.
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<GivenSecret>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookVerify {
    /// The endpoint's signing secret, as issued: env:NAME, file:PATH, or - for a line of standard input. The secret
    /// itself is taken with a warning.
    #[arg(long, value_name = "WHSEC")]
    pub secret: GivenSecret,
    /// The value of the header Svc-Signature.
    #[arg(long)]
    pub signature: String,
    /// The raw body; - reads standard input.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// How far t may be from the clock, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = dvp_api::delivery::signature::TOLERANCE_SECS)]
    pub tolerance: u64,
    /// Another time than now, in Unix seconds.
    #[arg(long, value_name = "SECONDS")]
    pub at: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookDeliveries {
    #[arg(long)]
    pub endpoint_id: String,
    /// pending, delivered or failed.
    #[arg(long)]
    pub state: Option<String>,
    /// Only this event's.
    #[arg(long)]
    pub event_id: Option<String>,
    #[arg(long, default_value_t = 20)]
    pub limit: u16,
    #[command(flatten)]
    pub place: PlaceArgs,
}

mod listen;

const PAGE: i64 = 500;
/// A delivery has at most 64 KiB.
const BODY_BYTES_MAX: u64 = 1 << 20;

pub(crate) async fn run(command: WebhookCommand) -> anyhow::Result<ExitCode> {
    match command {
        WebhookCommand::Listen(args) => listen::run(args).await?,
        WebhookCommand::Trigger(args) => trigger(args).await?,
        WebhookCommand::Verify(args) => return verify(&args),
        WebhookCommand::Endpoints(place) => endpoints(place).await?,
        WebhookCommand::Deliveries(args) => log(args).await?,
        WebhookCommand::Notices(place) => notices(place).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn trigger(args: WebhookTrigger) -> anyhow::Result<()> {
    let mut base = args.base_url;
    let mut key = match args.api_key {
        Some(given) => Some(given.read("--api-key")?),
        None => std::env::var("DVP_API_KEY").ok(),
    };
    if let Some(dir) = &args.dir {
        let ready = read_ready(dir)?;
        base = Some(base.map_or_else(|| text(&ready, "/http").map(str::to_owned), Ok)?);
        key = Some(key.map_or_else(|| text(&ready, "/partner/apiKey").map(str::to_owned), Ok)?);
    }
    let (base, key) =
        (base.context("give --dir or --base-url")?, key.context("give --dir, --api-key or DVP_API_KEY")?);
    let url = format!("{}/v1/webhook_endpoints/test", base.trim_end_matches('/'));
    let body = json!({"type": args.kind});
    let answer = reqwest::Client::new().post(url).header("X-API-Key", key).json(&body).send().await?;
    let (status, body) = (answer.status(), answer.json::<Value>().await?);
    ensure!(status.is_success(), "{}", body["error"]["message"].as_str().unwrap_or("refused"));
    print(args.json, &body, || vec![format!("queued {}", body["eventId"].as_str().unwrap_or_default())])
}

fn verify(args: &WebhookVerify) -> anyhow::Result<ExitCode> {
    let is_body_on_stdin = args.file == Path::new("-");
    let is_secret_on_stdin = matches!(args.secret, GivenSecret::Stdin);
    ensure!(!(is_body_on_stdin && is_secret_on_stdin), "--secret and --file cannot both be standard input");
    let secret = args.secret.read("--secret")?;
    let mut body = Vec::new();
    if is_body_on_stdin {
        std::io::stdin().lock().take(BODY_BYTES_MAX).read_to_end(&mut body)?;
    } else {
        let file = std::fs::File::open(&args.file).with_context(|| args.file.display().to_string())?;
        file.take(BODY_BYTES_MAX).read_to_end(&mut body)?;
    }
    let at = args.at.unwrap_or_else(|| now().unix_secs());
    let verdict = check(&secret, &args.signature, &body, at, args.tolerance);
    let reason = verdict.err().map(|error| error.to_string());
    print(args.json, &json!({"verified": reason.is_none(), "reason": reason}), || match &reason {
        None => vec!["verified".to_owned()],
        Some(reason) => vec![format!("NOT verified: {reason}")],
    })?;
    Ok(if reason.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn endpoints(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let page = async |after: &str| webhooks::list(&mut access.conn, None, after, PAGE).await;
    let all = all_pages(|row: &webhooks::Endpoint| &row.id, page).await?;
    let view = |endpoint: &webhooks::Endpoint| {
        json!({
            "endpointId": endpoint.id, "keyId": endpoint.key_id, "partnerId": endpoint.tenant.partner_id,
            "livemode": endpoint.tenant.livemode, "url": endpoint.url, "isActive": endpoint.is_active,
            "subscribedTypes": endpoint.subscribed_types,
            "failingSince": endpoint.health.failing_since.map(Timestamp::iso8601),
        })
    };
    let line = |endpoint: &webhooks::Endpoint| {
        let state = match (endpoint.is_active, endpoint.health.failing_since) {
            (false, _) => "inactive".to_owned(),
            (true, Some(since)) => format!("failing since {}", since.iso8601()),
            (true, None) => "well".to_owned(),
        };
        format!("{}  {}  {}  {state}", endpoint.id, endpoint.tenant.partner_id, endpoint.url)
    };
    print_list(place.json, "endpoints", &all, view, line)
}

async fn log(args: WebhookDeliveries) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let filter =
        LogFilter { before: None, event_id: args.event_id, state: args.state, limit: i64::from(args.limit) };
    let found = deliveries::list_log(&mut access.conn, &args.endpoint_id, &filter).await?;
    let attempts = deliveries::list_attempts(&mut access.conn, &args.endpoint_id, &found).await?;
    let own = |id: i64| attempts.iter().filter(move |attempt| attempt.delivery_id == id);
    let attempt_view = |one: &deliveries::LoggedAttempt| {
        json!({
            "number": one.number, "at": Timestamp::from(one.at).iso8601(), "status": one.status,
            "latencyMs": one.latency_ms, "error": one.error, "body": one.body_prefix,
        })
    };
    let view = |one: &deliveries::Logged| {
        json!({
            "deliveryId": access.vault.opaque_id(DELIVERY, one.id), "eventId": one.event_id, "type": one.kind,
            "origin": one.origin, "state": one.state, "createdAt": Timestamp::from(one.created_at).iso8601(),
            "attempts": own(one.id).map(attempt_view).collect::<Vec<_>>(),
        })
    };
    let value = json!({"deliveries": found.iter().map(view).collect::<Vec<_>>()});
    print(args.place.json, &value, || {
        let mut lines = Vec::new();
        for one in &found {
            lines.push(format!("{}  {}  {}  {}", one.event_id, one.kind, one.origin, one.state));
            for attempt in own(one.id) {
                let status =
                    attempt.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
                let error = attempt.error.as_deref().unwrap_or("well");
                lines.push(format!("  {}. {status}, {error}, {} ms", attempt.number, attempt.latency_ms));
            }
        }
        lines
    })
}

async fn notices(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let found = webhooks::list_notices(&mut access.conn, i64::MAX, PAGE).await?;
    let view = |notice: &webhooks::Notice| {
        json!({
            "endpointId": notice.endpoint_id, "partner": notice.partner, "kind": notice.kind,
            "at": Timestamp::from(notice.at).iso8601(),
        })
    };
    let line = |notice: &webhooks::Notice| {
        let at = Timestamp::from(notice.at).iso8601();
        format!("{at}  {}  {}  {}", notice.partner, notice.endpoint_id, notice.kind)
    };
    print_list(place.json, "notices", &found, view, line)
}
