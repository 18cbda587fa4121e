//! Headless Chromium, driven by WebDriver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dvp_sandbox::embedded::npm::{self, Package};
use dvp_sandbox::embedded::tools::Finder;
use serde_json::{Value, json};

use crate::wait::PATIENCE;

const HOW: &str = "the browser tests need Chromium and its driver: apt-get install chromium chromium-driver";

/// The accessibility checker that runs in the pages.
fn axe_package() -> Package {
    Package {
        name: "axe-core".to_owned(),
        version: "4.14.1",
        integrity: Some(
            "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        ),
    }
}

pub(crate) struct Browser {
    driver: Child,
    http: reqwest::Client,
    session: String,
    axe: String,
    clicks: AtomicUsize,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends Chromium with the session; without it Chromium would go on alone.
        let _ = end_session(&self.session);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Ends a session, also while a test panics: without the runtime.
fn end_session(session: &str) -> std::io::Result<()> {
    let Some((host, path)) = session.strip_prefix("http://").and_then(|rest| rest.split_once('/')) else {
        return Ok(());
    };
    let mut driver = TcpStream::connect(host)?;
    driver.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        driver,
        "DELETE /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    driver.read_exact(&mut [0; 8])?;
    Ok(())
}

/// The driver and its port. It ends at once when its port of IPv4 is taken under IPv6, so it is started again.
fn start_driver() -> (Child, String) {
    for _ in 0..10 {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect(HOW);
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            Some(line.split_once("started successfully on port ")?.1.trim_end_matches('.').to_owned())
        });
        if let Some(port) = port {
            return (driver, port);
        }
        driver.wait().unwrap();
    }
    panic!("{HOW}");
}

impl Browser {
    pub(crate) async fn start() -> Self {
        let finder = Finder::machine();
        let npm = finder.npm.clone().expect("npm, which fetches axe-core");
        let axe = npm::fetch(&npm, &finder.cache, &axe_package()).unwrap().join("axe.min.js");
        let axe = std::fs::read_to_string(axe).unwrap();
        let (driver, port) = start_driver();
        let profile = tempfile::tempdir().unwrap();
        let data = format!("--user-data-dir={}", profile.path().display());
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1400,1000",
            &data,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args}, "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut browser = Self {
            driver,
            http,
            session: String::new(),
            axe,
            clicks: AtomicUsize::new(0),
            _profile: profile,
        };
        let base = format!("http://127.0.0.1:{port}/session");
        let answer = browser.send(&base, &wanted).await;
        browser.session = format!("{base}/{}", answer["sessionId"].as_str().unwrap());
        browser
    }

    async fn send(&self, url: &str, body: &Value) -> Value {
        let answer = self.http.post(url).body(body.to_string()).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{url} {body}: {text}");
        let mut value: Value = serde_json::from_str(&text).unwrap();
        value["value"].take()
    }

    async fn command(&self, name: &str, body: Value) -> Value {
        self.send(&format!("{}/{name}", self.session), &body).await
    }

    pub(crate) async fn open(&self, url: &str) {
        self.command("url", json!({"url": url})).await;
    }

    pub(crate) async fn resize(&self, width: u32, height: u32) {
        self.command("window/rect", json!({"width": width, "height": height})).await;
    }

    /// From now on pages are shown in this colour scheme: `light` or `dark`.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let command = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.command("goog/cdp/execute", command).await;
    }

    /// Fills in the fields of a form and presses its button.
    pub(crate) async fn fill(&self, form: &str, fields: &[(&str, &str)], button: &str) {
        for (name, value) in fields {
            let field = format!("document.querySelector({}).elements[{}]", json!(form), json!(name));
            self.value(&format!("({field}.value = {})", json!(value))).await;
        }
        self.press(button).await;
    }

    /// A task of an operator's day begins.
    pub(crate) fn begin_task(&self) {
        self.clicks.store(0, Ordering::Relaxed);
    }

    /// The clicks since then.
    pub(crate) fn clicks(&self) -> usize {
        self.clicks.load(Ordering::Relaxed)
    }

    /// Forgets those of an attempt.
    pub(crate) fn count_from(&self, clicks: usize) {
        self.clicks.store(clicks, Ordering::Relaxed);
    }

    /// It is done in the clicks that `docs/console.md` says.
    pub(crate) fn task_is_done(&self, task: &str) {
        let page = include_str!("../../docs/console.md");
        let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {task} | ")));
        let said = row.unwrap_or_else(|| panic!("docs/console.md has no {task}")).split(' ').next().unwrap();
        assert_eq!(self.clicks().to_string(), said, "clicks to {task}");
    }

    /// Follows the link with this text, and waits for its page.
    pub(crate) async fn follow(&self, text: &str) {
        self.clicks.fetch_add(1, Ordering::Relaxed);
        self.value("(window.isOld = true)").await;
        let script = format!(
            "[...document.querySelectorAll('main a')].find(link => link.textContent.trim() === {}).click()",
            json!(text)
        );
        self.value(&script).await;
        self.wait_for("!window.isOld && document.readyState === 'complete'").await;
    }

    /// Follows the first link that a selector finds.
    pub(crate) async fn follow_first(&self, selector: &str) {
        self.clicks.fetch_add(1, Ordering::Relaxed);
        self.value("(window.isOld = true)").await;
        self.value(&format!("document.querySelector({}).click()", json!(selector))).await;
        self.wait_for("!window.isOld && document.readyState === 'complete'").await;
    }

    /// Opens the form that the page offers, fills it in and sends it; amounts are sent once they were shown.
    pub(crate) async fn act(&self, offer: &str, fields: &[(&str, &str)]) {
        self.follow(offer).await;
        let button = self.value("document.querySelector('form.act > button').textContent.trim()").await;
        let button = button.as_str().unwrap();
        self.fill("form.act", fields, button).await;
        if self.value("document.body.textContent.includes('Is this right?')").await == json!(true) {
            self.press(button).await;
        }
    }

    /// The value that a promise of the page comes to.
    pub(crate) async fn promised(&self, promise: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; {promise}.then(done, error => done(String(error)));"
        );
        self.command("execute/async", json!({"script": script, "args": []})).await
    }

    /// The value of an expression in the page.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        self.command("execute/sync", json!({"script": format!("return {expression}"), "args": []})).await
    }

    /// Waits until an expression is true in the page.
    pub(crate) async fn wait_for(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.value(&format!("Boolean({expression})")).await != json!(true) {
            if Instant::now() >= deadline {
                let page = self.value("document.body.innerText").await;
                panic!("{expression} was not so:\n{}", page.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Types keys to the focused element.
    pub(crate) async fn type_keys(&self, keys: &str) {
        let presses: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})))
            .collect();
        self.command("actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": presses}]}))
            .await;
    }

    /// Presses the button with this text, by its form, and waits for the next page.
    pub(crate) async fn press(&self, text: &str) {
        self.clicks.fetch_add(1, Ordering::Relaxed);
        self.value("(window.isOld = true)").await;
        let script = format!(
            "[...document.querySelectorAll('button')].find(button => button.textContent.trim() === {}).click()",
            json!(text)
        );
        self.value(&script).await;
        self.wait_for("!window.isOld && document.readyState === 'complete'").await;
    }

    /// Writes a picture of the whole page to the directory `DVP_SCREENSHOTS`, when that is set.
    pub(crate) async fn picture(&self, what: &str) {
        let Some(dir) = std::env::var_os("DVP_SCREENSHOTS") else { return };
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let command = json!({"cmd": "Page.captureScreenshot", "params": params});
        let taken = self.command("goog/cdp/execute", command).await;
        let image = BASE64.decode(taken["data"].as_str().unwrap()).unwrap();
        let name: String =
            what.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        let name: String = name.trim_matches('-').chars().take(120).collect();
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(std::path::Path::new(&dir).join(format!("{name}.png")), image).unwrap();
    }

    /// What the accessibility checker finds in the page.
    pub(crate) async fn violations(&self) -> Value {
        let script = format!(
            "{}; const done = arguments[arguments.length - 1]; \
             axe.run(document).then(found => done(found.violations.map(one => \
                 one.id + ': ' + one.nodes.map(node => node.target.join(' ')).join(', '))), error => done([String(error)]));",
            self.axe
        );
        self.command("execute/async", json!({"script": script, "args": []})).await
    }

    /// The errors and warnings of the pages since the last call, violations of their policy included.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let entries = self.command("se/log", json!({"type": "browser"})).await;
        let entries = entries.as_array().unwrap().iter();
        entries
            .filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")))
            .map(Value::to_string)
            .collect()
    }
}

/// An authenticator within the browser, with its passkeys.
pub(crate) struct VirtualAuthenticator(String);

impl Browser {
    /// Adds an authenticator whose user is there and verified.
    pub(crate) async fn add_authenticator(&self) -> VirtualAuthenticator {
        let wanted = json!({
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": true, "hasUserVerification": true,
            "isUserVerified": true, "isUserConsenting": true,
        });
        let id = self.command("webauthn/authenticator", wanted).await;
        VirtualAuthenticator(id.as_str().unwrap().to_owned())
    }

    /// Whether the authenticator's user is recognised from now on.
    pub(crate) async fn verify_user(&self, authenticator: &VirtualAuthenticator, is_verified: bool) {
        let path = format!("webauthn/authenticator/{}/uv", authenticator.0);
        self.command(&path, json!({"isUserVerified": is_verified})).await;
    }
}
