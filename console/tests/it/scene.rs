//! A console over a harness, and a browser's part of the exchange.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use dvp_console::{Console, ConsoleSettings, ProviderSettings, SessionPolicy};
use dvp_core::operators::accounts::token_hash;
use dvp_domain::address::OwnContracts;
use dvp_domain::environment::Environment;
use dvp_domain::operator::OperatorRole;
use dvp_ops::FixRules;
use dvp_store::fix::{self, NewFixSession};
use dvp_store::operators::accounts;
use dvp_store::operators::accounts::sessions::{self, NewLink};
use dvp_testing::market::pair;
use dvp_testing::{Harness, Market};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) const ORIGIN: &str = "http://console.test:8081";

/// The connections that are served at once.
pub(crate) const CONNECTIONS: usize = 16;

/// Where requests come from.
const PEER: &str = "192.0.2.1:1000";

pub(crate) struct Scene {
    pub harness: Harness,
    console: Console,
    router: Router,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The cookie that it sets, as a browser sends it back.
    pub(crate) fn cookie(&self) -> String {
        self.header("set-cookie").split(';').next().unwrap().to_owned()
    }
}

/// The part of a page between two texts.
pub(crate) fn between<'a>(page: &'a str, before: &str, after: &str) -> &'a str {
    let rest = page.split_once(before).unwrap_or_else(|| panic!("no {before} in {page}")).1;
    rest.split_once(after).unwrap().0
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let market = Market::new(vec![pair("USDC", "USD", "1")]).with_funds("north", "USD", 1_000_000_000);
        Self::with(Harness::new(market).await, ORIGIN, SessionPolicy::default())
    }

    pub(crate) fn with(harness: Harness, origin: &str, sessions: SessionPolicy) -> Self {
        Self::with_provider(harness, origin, sessions, None)
    }

    pub(crate) fn with_provider(
        harness: Harness,
        origin: &str,
        sessions: SessionPolicy,
        provider: Option<ProviderSettings>,
    ) -> Self {
        Self::of_settings(harness, Environment::Test, (origin, sessions, provider))
    }

    /// A console that takes its deployment for this one.
    pub(crate) fn of_settings(
        harness: Harness,
        environment: Environment,
        (origin, sessions, provider): (&str, SessionPolicy, Option<ProviderSettings>),
    ) -> Self {
        let settings = ConsoleSettings {
            origins: vec![origin.parse().unwrap()],
            environment,
            decimals: [("USDC", 6), ("USD", 2), ("EUR", 2)]
                .map(|(asset, count)| (asset.to_owned(), count))
                .into(),
            targets: harness.market.targets(),
            proxies: Vec::new(),
            sessions,
            provider,
            connections: CONNECTIONS,
        };
        let console = Console::new(
            harness.pool().clone().into(),
            Arc::new(harness.engine.context().vault.clone()),
            settings,
            OwnContracts::default(),
            FixRules { stale_types: Vec::new(), check: |_, _| Ok(()) },
        );
        let router = dvp_console::router(console.clone());
        Self { harness, console, router }
    }

    pub(crate) async fn add(&self, name: &str, roles: &[OperatorRole]) {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        accounts::insert(&mut conn, &format!("opr_{name}"), name, roles, "test").await.unwrap();
    }

    /// A link of an operator, which is used once.
    pub(crate) async fn link(&self, name: &str, token: &str) {
        self.new_link(name, token, false).await;
    }

    async fn new_link(&self, name: &str, token: &str, reusable: bool) {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let id = format!("opr_{name}");
        let hash = token_hash(token);
        let good_for = Duration::from_secs(600);
        let link = NewLink {
            operator_id: &id,
            token_hash: &hash,
            reusable,
            good_for,
            code_hash: None,
            approval_id: None,
        };
        sessions::insert_link(&mut conn, &link).await.unwrap();
    }

    /// A new operator with these roles, signed in by a sandbox's link. Returns its cookie.
    pub(crate) async fn sign_in(&self, name: &str, roles: &[OperatorRole]) -> String {
        self.sign_in_by(name, roles, true).await
    }

    /// A new operator with these roles, signed in by a link. Returns its cookie.
    pub(crate) async fn sign_in_by(&self, name: &str, roles: &[OperatorRole], reusable: bool) -> String {
        self.add(name, roles).await;
        let token = format!("token-of-{name}");
        self.new_link(name, &token, reusable).await;
        let answer = self.post("/login", &[("token", &token)], "").await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        answer.cookie()
    }

    /// The console, to be served at an address.
    pub(crate) fn console(&self) -> Console {
        self.console.clone()
    }

    /// The status of an answer that may not end, as of a stream.
    pub(crate) async fn status_of(&self, path: &str, cookie: &str) -> StatusCode {
        let mut request = Request::get(path).header(header::COOKIE, cookie).body(Body::empty()).unwrap();
        request.extensions_mut().insert(dvp_console::access::Peer(PEER.parse().unwrap()));
        self.router.clone().oneshot(request).await.unwrap().status()
    }

    pub(crate) async fn get(&self, path: &str, cookie: &str) -> Answer {
        self.send(Request::get(path).header(header::COOKIE, cookie).body(Body::empty()).unwrap()).await
    }

    /// A page's own request of itself.
    pub(crate) async fn refresh(&self, path: &str, cookie: &str) -> Answer {
        let request = Request::get(path).header(header::COOKIE, cookie).header("x-refresh", "1");
        self.send(request.body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)], cookie: &str) -> Answer {
        self.post_from(path, fields, cookie, Some(ORIGIN)).await
    }

    /// The form of an action, after its amounts were checked.
    pub(crate) async fn form(&self, action: &str, fields: &[(&str, &str)], cookie: &str) -> Answer {
        let fields = [fields, &[("_checked", "yes")]].concat();
        self.post(&format!("/act/{}", action.replace(' ', "/")), &fields, cookie).await
    }

    /// An operator approves a request as it saw it.
    pub(crate) async fn approve(
        &self,
        id: &str,
        version: &str,
        more: &[(&str, &str)],
        cookie: &str,
    ) -> Answer {
        let back = format!("/approvals/{id}");
        let fields = [&[("id", id), ("seen-version", version), ("_back", &back)], more].concat();
        self.form("approval approve", &fields, cookie).await
    }

    /// The addresses of an action's forms that a page offers.
    pub(crate) fn offered(page: &Answer, action: &str) -> Vec<String> {
        let start = format!("href=\"/act/{}", action.replace(' ', "/"));
        let found = page.body.split(&start).skip(1).map(|rest| rest.split('"').next().unwrap());
        let found = found.filter(|rest| rest.is_empty() || rest.starts_with('?'));
        let path = start.trim_start_matches("href=\"");
        found.map(|rest| format!("{path}{rest}").replace("&#38;", "&").replace("&amp;", "&")).collect()
    }

    /// The hidden fields of a form as it was opened at an address.
    pub(crate) async fn opened(&self, address: &str, cookie: &str) -> Vec<(String, String)> {
        let page = self.get(address, cookie).await;
        assert_eq!(page.status, StatusCode::OK, "{address}: {}", page.body);
        let form = between(&page.body, "<form class=\"act\"", "</form>");
        let hidden = form.split("<input type=\"hidden\" name=\"").skip(1).map(|rest| {
            let (name, rest) = rest.split_once("\" value=\"").unwrap();
            (name.to_owned(), rest.split('"').next().unwrap().replace("&#62;", ">"))
        });
        hidden.collect()
    }

    /// A decision about an order by the form that its page offers.
    pub(crate) async fn decide(
        &self,
        reference: &str,
        decision: &str,
        fields: &[(&str, &str)],
        cookie: &str,
    ) -> Answer {
        let page = self.get(&format!("/orders/{reference}"), cookie).await;
        let offered = Self::offered(&page, "execution resolve");
        let form = offered.iter().find(|form| form.contains(&format!("?action={decision}&")));
        let opened =
            self.opened(form.unwrap_or_else(|| panic!("no {decision} in {offered:?}")), cookie).await;
        let opened = opened.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let fields: Vec<_> = opened.chain(fields.iter().copied()).collect();
        self.form("execution resolve", &fields, cookie).await
    }

    pub(crate) async fn post_from(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        cookie: &str,
        origin: Option<&str>,
    ) -> Answer {
        self.send(form_of(path, fields, cookie, origin)).await
    }

    /// A form of the console's own page from an address.
    pub(crate) async fn post_by(&self, peer: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send_by(&format!("{peer}:1000"), form_of(path, fields, "", Some(ORIGIN))).await
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        self.send_by(PEER, request).await
    }

    async fn send_by(&self, peer: &str, mut request: Request<Body>) -> Answer {
        let peer: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(dvp_console::access::Peer(peer));
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// An action of a program with a token, from an address.
    pub(crate) async fn act_from(&self, peer: &str, token: &str, action: &str, fields: Value) -> Answer {
        let body = json!({"action": action, "fields": fields}).to_string();
        let request = Request::post("/api/actions")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/json");
        self.send_by(peer, request.body(Body::from(body)).unwrap()).await
    }

    pub(crate) async fn act(&self, token: &str, action: &str, fields: Value) -> Answer {
        self.act_from(PEER, token, action, fields).await
    }

    /// A token of `dvp login`, of an operator that exists.
    pub(crate) async fn login_token(&self, name: &str) -> String {
        let token = format!("login-of-{name}");
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let hash = token_hash(&token);
        assert!(dvp_ops::grant_login(&mut conn, &format!("opr_{name}"), &hash, "a laptop").await.unwrap());
        token
    }

    /// Runs statements on the database.
    pub(crate) async fn run(&self, sql: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(self.harness.pool()).await.unwrap();
    }

    /// A FIX session of the partner, with the password `old`.
    pub(crate) async fn fix_session(&self) -> String {
        let vault = &self.harness.engine.context().vault;
        let new = NewFixSession {
            partner_id: self.harness.tenant.partner_id.clone(),
            livemode: false,
            begin_string: "FIX.4.4".into(),
            client_comp_id: "ACME".into(),
            service_comp_id: "DVP".into(),
            default_appl_ver_id: None,
            username: "acme".into(),
            password_hash: vault.fix_password_hash("FIX.4.4:DVP->ACME", "old"),
            password_key: vault.current_id().to_owned(),
        };
        let mut conn = self.harness.pool().acquire().await.unwrap();
        fix::upsert_session(&mut conn, &new).await.unwrap();
        new.session_id()
    }

    /// The entries of the audit log about the console: operator, action, route, subject.
    pub(crate) async fn records(&self) -> Vec<(String, String, String, String)> {
        sqlx::query_as("select operator, action, route, subject from console_record order by id")
            .fetch_all(self.harness.pool())
            .await
            .unwrap()
    }
}

fn form_of(path: &str, fields: &[(&str, &str)], cookie: &str, origin: Option<&str>) -> Request<Body> {
    let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = Request::post(path)
        .header(header::COOKIE, cookie)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let request = match origin {
        Some(origin) => request.header(header::ORIGIN, origin),
        None => request,
    };
    request.body(Body::from(form)).unwrap()
}
