//! Commands on webhook endpoints: register, change, rotate, test, resend, replay.
//!
//! One command is one transaction, and so is the answer stored under its Idempotency-Key: the same key does the work
//! once, whichever process gets the repetition. A rejected command writes nothing, and no answer either.
//!
//! Invariants: a secret is returned only in the answer that shows it, and is encrypted everywhere else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use dvp_domain::envelope::{Envelope, EnvelopeFields};
use dvp_domain::event::{API_VERSION, EventType};
use dvp_domain::ids::{EndpointId, EventId};
use dvp_domain::sample;
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::database::ids;
use dvp_store::operators::accounts::{self, ConsoleAction, ConsoleRecord};
use dvp_store::orders::events::{self, StoredEvent};
use dvp_store::orders::feed;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::intents::Tenant;
use dvp_store::webhooks::deliveries::{self, NewDelivery, Origin};
use dvp_store::webhooks::replays::{self, Replay};
use dvp_store::webhooks::{
    self as endpoints, Endpoint, NewEndpoint, SealedSecrets, WebhookRecord, WebhookRecordId,
};
use serde_json::json;
use sqlx::{Acquire, PgConnection};

use crate::context::now;
use crate::secrets::{SealBroken, Vault};

/// How long the old and the new secret both sign after a rotation.
pub const GRACE_MILLIS: i64 = 24 * 3_600_000;
/// Random bytes of a secret: 40 characters of base64 without padding.
const SECRET_BYTES: usize = 30;
/// The tolerated clock difference of two processes.
const CLOCKS_APART: chrono::TimeDelta = chrono::TimeDelta::seconds(60);

/// The owner of an endpoint.
#[derive(Debug, Clone)]
pub struct Owner {
    pub key_id: String,
    pub tenant: Tenant,
}

/// Deactivates an endpoint for an operator, who is an entry of the audit log. It stays so in a move of its partner, until
/// the partner activates it. `None`: there is no such endpoint.
pub async fn disable(
    conn: &mut PgConnection,
    endpoint_id: &str,
    (operator, reason): (&str, &str),
) -> Result<Option<bool>, StoreError> {
    let mut tx = conn.begin().await?;
    let Some(was_active) = endpoints::stop(&mut tx, endpoint_id).await? else { return Ok(None) };
    let record = ConsoleRecord {
        operator,
        action: ConsoleAction::Acted,
        route: "dvp webhook",
        subject: &format!("{endpoint_id} disabled: {reason}"),
        source: "command line",
    };
    accounts::record(&mut tx, &record).await?;
    tx.commit().await?;
    Ok(Some(was_active))
}

/// A command. URLs and types have been validated.
#[derive(Debug, Clone)]
pub enum Command {
    Register {
        url: String,
        subscribed_types: Vec<String>,
    },
    Update {
        url: Option<String>,
        subscribed_types: Option<Vec<String>>,
        is_active: Option<bool>,
    },
    /// Deactivates the endpoint with this id. The row is kept, and [`Update`](Self::Update) activates it again.
    Remove {
        endpoint_id: String,
    },
    Rotate,
    /// A `test.ping`, or a sample event of a type.
    Test {
        kind: Option<EventType>,
    },
    Resend {
        event_id: String,
    },
    /// Delivers again every event recorded from one time on and before another.
    Replay {
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        types: Option<Vec<String>>,
    },
}

#[derive(Debug, Clone)]
pub enum CommandOutcome {
    Registered { endpoint_id: String, secret: String },
    Updated(Box<Endpoint>),
    Rotated { next_secret: String, grace_expires_at: Timestamp },
    Queued { event_id: String },
    Replaying { replay_id: i64 },
}

/// Why a command was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookRejection {
    /// The key has an endpoint.
    AlreadyExists,
    /// The key has none.
    NoEndpoint,
    Inactive,
    /// The event does not exist, or has left the feed.
    NoEvent,
    /// The endpoint has a replay of another range.
    ReplayInProgress,
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("refused: {0:?}")]
    Refused(WebhookRejection),
    /// The Idempotency-Key was used for another request.
    #[error("the key was used for a different request")]
    KeyConflict,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sealed(#[from] SealBroken),
    #[error("the operating system gives no random bytes: {0}")]
    Randomness(#[from] getrandom::Error),
}

impl From<sqlx::Error> for WebhookError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<WebhookRejection> for WebhookError {
    fn from(refusal: WebhookRejection) -> Self {
        Self::Refused(refusal)
    }
}

/// The key under which an answer is stored, and the request's fingerprint.
pub type WebhookIdempotency = (WebhookRecordId, [u8; 32]);

/// An answer, and whether it is a replay.
#[derive(Debug, Clone)]
pub struct Answer {
    pub response: StoredResponse,
    pub replayed: bool,
}

/// Executes a command and renders its answer, or returns the answer stored under the same key.
pub async fn carry_out(
    conn: &mut PgConnection,
    vault: &Vault,
    owner: &Owner,
    command: Command,
    idempotency: Option<&WebhookIdempotency>,
    render: fn(&Vault, &CommandOutcome) -> StoredResponse,
) -> Result<Answer, WebhookError> {
    let mut tx = conn.begin().await?;
    if let Some((id, fingerprint)) = idempotency
        && let Some(kept) = endpoints::claim_key(&mut tx, id, fingerprint).await?
    {
        return kept_answer(vault, id, &kept, fingerprint);
    }
    let outcome = work(&mut tx, vault, owner, command).await?;
    let response = render(vault, &outcome);
    if let Some((id, _)) = idempotency {
        let sealed = vault.seal(&seal_owner(id), response.body.as_bytes())?;
        endpoints::store_answer(&mut tx, id, response.status, &sealed).await?;
    }
    tx.commit().await?;
    Ok(Answer { response, replayed: false })
}

/// A stored answer can be decrypted for its own key only.
fn seal_owner(id: &WebhookRecordId) -> String {
    format!("{}\u{1}{}\u{1}{}", id.key_id, id.operation, id.idempotency_key)
}

fn kept_answer(
    vault: &Vault,
    id: &WebhookRecordId,
    kept: &WebhookRecord,
    fingerprint: &[u8; 32],
) -> Result<Answer, WebhookError> {
    if kept.fingerprint != *fingerprint {
        return Err(WebhookError::KeyConflict);
    }
    let body = vault.open(&seal_owner(id), &kept.sealed_body)?;
    let body = String::from_utf8(body).map_err(|error| StoreError::corrupt("webhook_idempotency", error))?;
    Ok(Answer { response: StoredResponse { status: kept.status, body }, replayed: true })
}

async fn work(
    conn: &mut PgConnection,
    vault: &Vault,
    owner: &Owner,
    command: Command,
) -> Result<CommandOutcome, WebhookError> {
    match command {
        Command::Register { url, subscribed_types } => {
            register(conn, vault, owner, url, subscribed_types).await
        }
        Command::Update { url, subscribed_types, is_active } => {
            let mut endpoint = lock(conn, owner).await?;
            endpoint.url = url.unwrap_or(endpoint.url);
            endpoint.subscribed_types = subscribed_types.unwrap_or(endpoint.subscribed_types);
            endpoint.is_active = is_active.unwrap_or(endpoint.is_active);
            endpoints::update(conn, &endpoint).await?;
            Ok(CommandOutcome::Updated(Box::new(endpoint)))
        }
        Command::Remove { endpoint_id } => {
            let mut endpoint = lock(conn, owner).await?;
            if endpoint.id != endpoint_id {
                return Err(WebhookRejection::NoEndpoint.into());
            }
            endpoint.is_active = false;
            endpoints::update(conn, &endpoint).await?;
            Ok(CommandOutcome::Updated(Box::new(endpoint)))
        }
        Command::Rotate => rotate(conn, vault, owner).await,
        Command::Test { kind } => test(conn, owner, kind).await,
        Command::Resend { event_id } => {
            let endpoint = active(conn, owner).await?;
            let found = events::find_for_tenant(conn, &owner.tenant, &event_id).await?;
            let stored = found.ok_or(WebhookRejection::NoEvent)?;
            let body = body(&stored, &endpoint.api_version);
            let kind = stored.event.kind.as_str();
            queue(conn, &endpoint, &event_id, kind, Origin::Resend, body).await?;
            Ok(CommandOutcome::Queued { event_id })
        }
        Command::Replay { from, to, types } => replay(conn, owner, (from, to), types).await,
    }
}

async fn lock(conn: &mut PgConnection, owner: &Owner) -> Result<Endpoint, WebhookError> {
    let found = endpoints::lock_by_key(conn, &owner.key_id).await?;
    Ok(found.ok_or(WebhookRejection::NoEndpoint)?)
}

async fn active(conn: &mut PgConnection, owner: &Owner) -> Result<Endpoint, WebhookError> {
    let endpoint = lock(conn, owner).await?;
    if endpoint.is_active { Ok(endpoint) } else { Err(WebhookRejection::Inactive.into()) }
}

/// `whsec_` and base64: the whole text is the key of `Svc-Signature`, its decoded part that of Standard Webhooks.
fn new_secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(format!("whsec_{}", STANDARD.encode(bytes)))
}

async fn register(
    conn: &mut PgConnection,
    vault: &Vault,
    owner: &Owner,
    url: String,
    subscribed_types: Vec<String>,
) -> Result<CommandOutcome, WebhookError> {
    let endpoint_id = String::from(EndpointId::from_unique(ids::draw_here(conn).await?.simple()));
    let secret = new_secret()?;
    let new = NewEndpoint {
        sealed_secret: vault.seal(&endpoint_id, secret.as_bytes())?,
        id: endpoint_id.clone(),
        key_id: owner.key_id.clone(),
        tenant: owner.tenant.clone(),
        url,
        subscribed_types,
        api_version: API_VERSION,
    };
    match endpoints::insert(conn, &new).await {
        Ok(()) => Ok(CommandOutcome::Registered { endpoint_id, secret }),
        Err(taken) if taken.constraint() == Some("webhook_endpoint_key_key") => {
            Err(WebhookRejection::AlreadyExists.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The old secret and the new one sign until the grace period ends. After a rotation within the grace period the old
/// secret stays, and the new one of the first rotation is discarded.
async fn rotate(
    conn: &mut PgConnection,
    vault: &Vault,
    owner: &Owner,
) -> Result<CommandOutcome, WebhookError> {
    let mut endpoint = lock(conn, owner).await?;
    let at = now();
    let next_secret = new_secret()?;
    let grace_expires_at = at.plus_millis(GRACE_MILLIS);
    let SealedSecrets { current, next } = endpoint.secrets;
    let current = match next {
        Some((next, expires)) if Timestamp::from(expires) <= at => next,
        Some(_) | None => current,
    };
    let sealed = vault.seal(&endpoint.id, next_secret.as_bytes())?;
    endpoint.secrets = SealedSecrets { current, next: Some((sealed, grace_expires_at.to_utc())) };
    endpoint.rotated_at = Some(at.to_utc());
    endpoints::update_secrets(conn, &endpoint).await?;
    Ok(CommandOutcome::Rotated { next_secret, grace_expires_at })
}

/// The decrypted secrets of an endpoint, prepared for signing.
pub struct SigningKeys<K> {
    current: K,
    /// The next secret, and when it takes effect.
    next: Option<(K, Timestamp)>,
}

impl<K> SigningKeys<K> {
    /// `ready` is called with each secret.
    pub fn open(
        vault: &Vault,
        endpoint_id: &str,
        sealed: &SealedSecrets,
        ready: impl Fn(&[u8]) -> K,
    ) -> Result<Self, SealBroken> {
        let open = |secret: &[u8]| vault.open(endpoint_id, secret).map(|secret| ready(&secret));
        let next =
            sealed.next.as_ref().map(|(next, at)| Ok((open(next)?, Timestamp::from(*at)))).transpose()?;
        Ok(Self { current: open(&sealed.current)?, next })
    }

    /// Those that sign at `at`: one, or two during a rotation.
    pub fn in_force(&self, at: Timestamp) -> impl Iterator<Item = &K> {
        let (current, next) = match &self.next {
            Some((next, expires)) if *expires <= at => (None, Some(next)),
            Some((next, _)) => (Some(&self.current), Some(next)),
            None => (Some(&self.current), None),
        };
        current.into_iter().chain(next)
    }
}

async fn test(
    conn: &mut PgConnection,
    owner: &Owner,
    kind: Option<EventType>,
) -> Result<CommandOutcome, WebhookError> {
    let endpoint = active(conn, owner).await?;
    let event_id = String::from(EventId::from_unique(ids::draw_here(conn).await?));
    let (at, livemode, version) = (now(), owner.tenant.livemode, endpoint.api_version.as_str());
    let (kind, body) = match kind {
        None => {
            let ping = json!({"ping": true});
            let envelope = Envelope::ping(&event_id, at, livemode, version, &ping);
            (dvp_domain::envelope::TEST_PING, to_text(&envelope))
        }
        Some(kind) => {
            let intent_id = format!("sample_{}", ids::draw_here(conn).await?.simple());
            let object = serde_json::to_value(sample::snapshot(&intent_id, kind, at))
                .map_err(|error| StoreError::corrupt("webhook_delivery_log", error))?;
            let reported = EnvelopeFields {
                id: &event_id,
                kind,
                occurred_at: at,
                observed_at: at,
                livemode,
                api_version: version,
                intent_id: &intent_id,
                client_reference: Some(&intent_id),
                sequence: sample::sequence(kind),
                object: &object,
            };
            (kind.as_str(), to_text(&Envelope::of(reported)))
        }
    };
    queue(conn, &endpoint, &event_id, kind, Origin::Test, body).await?;
    Ok(CommandOutcome::Queued { event_id })
}

async fn queue(
    conn: &mut PgConnection,
    endpoint: &Endpoint,
    event_id: &str,
    kind: &str,
    origin: Origin,
    body: String,
) -> Result<(), StoreError> {
    let new = NewDelivery {
        endpoint_id: endpoint.id.clone(),
        partner_id: endpoint.tenant.partner_id.clone(),
        event_id: event_id.to_owned(),
        kind: kind.to_owned(),
        origin,
        body,
        trace: None,
    };
    deliveries::insert(conn, &[new]).await
}

/// An endpoint has one replay at a time: each stores every event of its range once more. The lock of the endpoint keeps
/// another request out.
async fn replay(
    conn: &mut PgConnection,
    owner: &Owner,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
    types: Option<Vec<String>>,
) -> Result<CommandOutcome, WebhookError> {
    let endpoint = active(conn, owner).await?;
    if let Some(open) = replays::find_open(conn, &endpoint.id).await? {
        // The database keeps microseconds.
        let micros =
            |from: DateTime<Utc>, to: DateTime<Utc>| (from.timestamp_micros(), to.timestamp_micros());
        let is_same = micros(open.from_time, open.to_time) == micros(from, to) && open.types == types;
        let same = is_same.then_some(CommandOutcome::Replaying { replay_id: open.id });
        return Ok(same.ok_or(WebhookRejection::ReplayInProgress)?);
    }
    let replay = Replay {
        id: 0,
        endpoint_id: endpoint.id,
        position: feed::find_position_before(conn, from - CLOCKS_APART).await?,
        until: feed::find_position_before(conn, to + CLOCKS_APART).await?,
        from_time: from,
        to_time: to,
        types,
    };
    let replay_id = replays::insert(conn, &replay).await?;
    Ok(CommandOutcome::Replaying { replay_id })
}

/// A stored event in the endpoint's version: the same bytes each time.
pub fn body(stored: &StoredEvent, api_version: &str) -> String {
    to_text(&envelope(stored, api_version))
}

pub fn envelope<'a>(stored: &'a StoredEvent, api_version: &'a str) -> Envelope<'a> {
    let event = &stored.event;
    Envelope::of(EnvelopeFields {
        id: &event.event_id,
        kind: event.kind,
        occurred_at: event.occurred_at.into(),
        observed_at: event.observed_at.into(),
        livemode: event.tenant.livemode,
        api_version,
        intent_id: &event.intent_id,
        client_reference: event.client_reference.as_deref(),
        sequence: event.sequence,
        object: &event.object,
    })
}

fn to_text(envelope: &Envelope<'_>) -> String {
    serde_json::to_string(envelope).expect("texts, numbers and a JSON value always have a JSON text")
}
