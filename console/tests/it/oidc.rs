//! Sign-in at an identity provider, against one of these tests over real sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{RawForm, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chrono::Utc;
use dvp_console::{ProviderSettings, SessionPolicy};
use dvp_core::operators::accounts::identify;
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts;
use dvp_testing::market::pair;
use dvp_testing::{Harness, Market};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use url::Url;

use crate::scene::{ORIGIN, Scene};

const CALLBACK: &str = "http://console.test:8081/login/provider/callback";

/// What the provider gives for a code.
#[derive(Clone)]
struct Grant {
    challenge: String,
    claims: Value,
    key: u8,
}

/// The provider: codes, each good for one exchange.
#[derive(Clone, Default)]
struct Provider {
    issuer: Arc<Mutex<String>>,
    grants: Arc<Mutex<BTreeMap<String, Grant>>>,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_slice(&[seed; 32]).unwrap()
}

fn token(claims: &Value, seed: u8) -> String {
    let head = encode(json!({"alg": "ES256", "typ": "JWT", "kid": "k"}).to_string());
    let signed = format!("{head}.{}", encode(claims.to_string()));
    let signature: Signature = key(seed).sign(signed.as_bytes());
    format!("{signed}.{}", encode(signature.to_bytes()))
}

fn answer(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn description(State(provider): State<Provider>) -> Response {
    let issuer = provider.issuer.lock().unwrap().clone();
    let described = json!({
        "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
        "response_types_supported": ["code"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    answer(StatusCode::OK, &described)
}

async fn keys() -> Response {
    let point = key(7).verifying_key().to_encoded_point(false);
    let (x, y) = (encode(point.x().unwrap()), encode(point.y().unwrap()));
    let known =
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "k", "x": x, "y": y});
    answer(StatusCode::OK, &json!({"keys": [known]}))
}

/// Exchanges a code for a token, as RFC 6749 and RFC 7636 demand.
async fn exchange(State(provider): State<Provider>, headers: HeaderMap, RawForm(form): RawForm) -> Response {
    let form: BTreeMap<String, String> = url::form_urlencoded::parse(&form).into_owned().collect();
    let basic = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let client = format!("Basic {}", STANDARD.encode("dvp:secret"));
    let grant = form.get("code").and_then(|code| provider.grants.lock().unwrap().remove(code));
    let verifier = form.get("code_verifier").map(|verifier| encode(Sha256::digest(verifier)));
    match grant {
        Some(grant)
            if basic == Some(client)
                && verifier.as_ref() == Some(&grant.challenge)
                && form.get("redirect_uri").is_some_and(|address| address == CALLBACK) =>
        {
            let token = token(&grant.claims, grant.key);
            answer(StatusCode::OK, &json!({"access_token": "a", "token_type": "Bearer", "id_token": token}))
        }
        _ => answer(StatusCode::BAD_REQUEST, &json!({"error": "invalid_grant"})),
    }
}

struct Stage {
    scene: Scene,
    provider: Provider,
}

/// A browser at the provider.
struct Visit {
    cookie: String,
    state: String,
    nonce: String,
    challenge: String,
}

impl Stage {
    async fn new() -> Self {
        let provider = Provider::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        provider.issuer.lock().unwrap().clone_from(&issuer);
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(description))
            .route("/keys", get(keys))
            .route("/token", post(exchange))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let market = Market::new(vec![pair("USDC", "USD", "1")]);
        let settings = ProviderSettings {
            issuer: issuer.parse().unwrap(),
            client_id: "dvp".to_owned(),
            client_secret: "secret".to_owned(),
        };
        let harness = Harness::new(market).await;
        let scene = Scene::with_provider(harness, ORIGIN, SessionPolicy::default(), Some(settings));
        scene.add("jo", &[OperatorRole::Approver]).await;
        let stage = Self { scene, provider };
        stage.identify("jo", Some("Jo@Example.com")).await;
        stage
    }

    async fn identify(&self, name: &str, email: Option<&str>) {
        identify(&mut self.scene.harness.pool().acquire().await.unwrap(), name, email).await.unwrap();
    }

    async fn visit(&self) -> Visit {
        let answer = self.scene.get("/login/provider?next=/orders", "").await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        assert!(answer.header("set-cookie").contains("SameSite=Lax"));
        let address = Url::parse(answer.header("location")).unwrap();
        let query: BTreeMap<String, String> = address.query_pairs().into_owned().collect();
        assert_eq!(address.path(), "/authorize");
        for (name, value) in [
            ("response_type", "code"),
            ("client_id", "dvp"),
            ("redirect_uri", CALLBACK),
            ("code_challenge_method", "S256"),
            ("scope", "openid email"),
        ] {
            assert_eq!(query[name], value);
        }
        Visit {
            cookie: answer.cookie(),
            state: query["state"].clone(),
            nonce: query["nonce"].clone(),
            challenge: query["code_challenge"].clone(),
        }
    }

    /// The claims of an account, for a visit.
    fn claims(&self, visit: &Visit, subject: &str, email: &str) -> Value {
        let now = Utc::now().timestamp();
        json!({
            "iss": *self.provider.issuer.lock().unwrap(), "aud": "dvp", "sub": subject, "nonce": visit.nonce,
            "iat": now, "exp": now + 300, "email": email, "email_verified": true,
        })
    }

    /// Signs in at the provider and comes back with a code. Returns the session's cookie, or the problem.
    async fn come_back(&self, visit: &Visit, claims: Value, key: u8) -> Result<String, String> {
        let grant = Grant { challenge: visit.challenge.clone(), claims, key };
        self.provider.grants.lock().unwrap().insert("c".to_owned(), grant);
        self.return_with("c", &visit.state, &visit.cookie).await
    }

    async fn return_with(&self, code: &str, state: &str, cookie: &str) -> Result<String, String> {
        let path = format!("/login/provider/callback?code={code}&state={state}");
        let answer = self.scene.get(&path, cookie).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        let cookies = answer.headers.get_all("set-cookie").iter();
        let session = cookies
            .map(|cookie| cookie.to_str().unwrap())
            .find(|cookie| cookie.starts_with("dvp_console="))
            .map(|cookie| cookie.split(';').next().unwrap().to_owned());
        if session.is_some() {
            assert!(answer.body.contains("content=\"0;url=/orders\""), "{}", answer.body);
        }
        session.ok_or(answer.body)
    }

    async fn sign_in(&self, subject: &str, email: &str) -> Result<String, String> {
        let visit = self.visit().await;
        let claims = self.claims(&visit, subject, email);
        self.come_back(&visit, claims, 7).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verified_address_is_bound_to_its_first_account() {
    let stage = Stage::new().await;
    assert!(stage.scene.get("/login?next=/a", "").await.body.contains("/login/provider?next=%2Fa"));
    let cookie = stage.sign_in("s1", "jo@example.COM").await.unwrap();
    assert_eq!(stage.scene.get("/orders", &cookie).await.status, StatusCode::OK);
    let record = stage.scene.records().await.pop().unwrap();
    assert_eq!((record.0.as_str(), record.1.as_str(), record.3.as_str()), ("jo", "signed_in", "account s1"));
    stage.sign_in("s1", "another@example.com").await.unwrap();
    let other = stage.sign_in("s2", "jo@example.com").await.unwrap_err();
    assert!(other.contains("No operator has this account."), "{other}");
    assert_eq!(stage.scene.records().await.pop().unwrap().1, "failed");
    stage.identify("jo", Some("jo@example.com")).await;
    stage.sign_in("s2", "jo@example.com").await.unwrap();
    stage.identify("jo", None).await;
    assert!(stage.sign_in("s2", "jo@example.com").await.is_err());
    let operators: i64 = sqlx::query_scalar("select count(*) from operator")
        .fetch_one(stage.scene.harness.pool())
        .await
        .unwrap();
    assert_eq!(operators, 1, "none is created");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_not_for_this_sign_in_are_refused() {
    let stage = Stage::new().await;
    let now = Utc::now().timestamp();
    for (claim, value) in [
        ("nonce", json!("another")),
        ("nonce", Value::Null),
        ("aud", json!("another")),
        ("iss", json!("https://evil.test")),
        ("exp", json!(now - 60)),
        ("email_verified", json!(false)),
        ("email_verified", Value::Null),
        ("email", json!("eve@example.com")),
        ("email", Value::Null),
    ] {
        let visit = stage.visit().await;
        let mut claims = stage.claims(&visit, "s1", "jo@example.com");
        claims[claim] = value.clone();
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert!(stage.come_back(&visit, claims, 7).await.is_err(), "{claim}: {value}");
        assert_eq!(stage.scene.records().await.pop().unwrap().1, "failed");
    }
    let visit = stage.visit().await;
    let claims = stage.claims(&visit, "s1", "jo@example.com");
    assert!(stage.come_back(&visit, claims, 8).await.is_err(), "another key");
    let visit = Visit { challenge: "another".to_owned(), ..stage.visit().await };
    let claims = stage.claims(&visit, "s1", "jo@example.com");
    assert!(stage.come_back(&visit, claims, 7).await.is_err(), "another verifier");
    stage.sign_in("s1", "jo@example.com").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_is_completed_once_by_the_browser_that_began_it() {
    let stage = Stage::new().await;
    let (mine, other) = (stage.visit().await, stage.visit().await);
    for (state, cookie) in [
        (&mine.state, String::new()),
        (&mine.state, mine.cookie.clone()),
        (&"0".repeat(64), mine.cookie.clone()),
        (&other.state, mine.cookie.clone()),
    ] {
        let refused = stage.return_with("c", state, &cookie).await.unwrap_err();
        assert!(refused.contains("begun in another browser, was completed already"), "{refused}");
    }
    let visit = stage.visit().await;
    let claims = stage.claims(&visit, "s1", "jo@example.com");
    stage.come_back(&visit, claims.clone(), 7).await.unwrap();
    assert!(stage.come_back(&visit, claims, 7).await.is_err(), "it was completed");
    let denied = format!("/login/provider/callback?error=access_denied&state={}", stage.visit().await.state);
    assert!(stage.scene.get(&denied, "").await.cookie().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_the_provider_reads_but_neither_steps_up_nor_adds_passkeys() {
    let stage = Stage::new().await;
    let cookie = stage.sign_in("s1", "jo@example.com").await.unwrap();
    let page = stage.scene.approve("apr_1", "1", &[], &cookie).await;
    assert!(page.body.contains("data-step-up"), "{}", page.body);
    let refused = stage.scene.post("/account/passkeys/challenge", &[], &cookie).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let mut conn = stage.scene.harness.pool().acquire().await.unwrap();
    accounts::set_disabled(&mut conn, "opr_jo", true).await.unwrap();
    assert_eq!(stage.scene.get("/orders", &cookie).await.status, StatusCode::SEE_OTHER);
    assert!(stage.sign_in("s1", "jo@example.com").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_be_reached_leaves_the_other_ways() {
    let market = Market::new(vec![pair("USDC", "USD", "1")]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = ProviderSettings {
        issuer: format!("http://{}", listener.local_addr().unwrap()).parse().unwrap(),
        client_id: "dvp".to_owned(),
        client_secret: "secret".to_owned(),
    };
    drop(listener);
    let harness = Harness::new(market).await;
    let scene = Scene::with_provider(harness, ORIGIN, SessionPolicy::default(), Some(settings));
    let page = scene.get("/login/provider", "").await;
    assert!(page.body.contains("cannot be reached") && page.body.contains("/login/passkey"), "{}", page.body);
}
