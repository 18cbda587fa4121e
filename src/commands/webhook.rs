//! `dvp webhook …`: a partner's tools, and an operator's view.

mod listen;

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use dvp_api::delivery::signature::verify as check;
use dvp_core::context::now;
use dvp_domain::time::Timestamp;
use dvp_store::webhooks::deliveries::{self, LogFilter};
use dvp_store::{moves, webhooks};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::{
    GivenSecret, PlaceArgs, WebhookCommand, WebhookDeliveries, WebhookDisable, WebhookMove, WebhookTrigger,
    WebhookVerify,
};
use crate::output::print;
use crate::sandbox_dir::read_ready;
use crate::sandbox_dir::text;

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
        WebhookCommand::Move(args) => give(args).await?,
        WebhookCommand::Disable(args) => disable(args).await?,
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
    let mut all = Vec::new();
    loop {
        let after = all.last().map_or("", |endpoint: &webhooks::Endpoint| endpoint.id.as_str()).to_owned();
        let page = webhooks::list(&mut access.conn, None, &after, PAGE).await?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
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
    let value = json!({"endpoints": all.iter().map(view).collect::<Vec<_>>()});
    print(place.json, &value, || all.iter().map(line).collect())
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
            "deliveryId": format!("dlv_{}", one.id), "eventId": one.event_id, "type": one.kind,
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
    let value = json!({"notices": found.iter().map(view).collect::<Vec<_>>()});
    print(place.json, &value, || found.iter().map(line).collect())
}

async fn give(args: WebhookMove) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    if !webhooks::move_to_key(&mut access.conn, &args.from, &args.to).await? {
        bail!(
            "{} has no endpoint, or {} is not a key of the same partner and environment",
            args.from,
            args.to
        );
    }
    let value = json!({"from": args.from, "to": args.to});
    print(args.place.json, &value, || vec![format!("the endpoint belongs to {}", args.to)])
}

async fn disable(args: WebhookDisable) -> anyhow::Result<()> {
    let (id, operator, reason) = (&args.endpoint_id, args.operator.trim(), args.reason.trim());
    ensure!(!operator.is_empty() && !reason.is_empty(), "give --operator and --reason");
    let mut access = Access::open(&args.place).await?;
    let disabled = dvp_core::webhooks::disable(&mut access.conn, id, (operator, reason)).await?;
    let disabled = disabled.with_context(|| format!("there is no endpoint {id}"))?;
    let webhooks::Stopped { partner_id, was_active: changed } = disabled;
    let others = moves::list_other_cells(&mut access.conn, &partner_id).await?;
    let value = json!({"endpointId": id, "isActive": false, "changed": changed, "alsoInCells": others});
    print(args.place.json, &value, || {
        let done = format!("{id} is inactive{}", if changed { "" } else { " already" });
        let also = |cell| format!("Cell {cell} may have it, too: disable it there.");
        std::iter::once(done).chain(others.iter().map(also)).collect()
    })
}
