//! Keys and FIX sessions of a live deployment, which take two operators over the command line, too: each by its own token.

use std::process::Output;

use serde_json::{Value, json};

use crate::serve;
use crate::served::{Ground, ServedProcess};

const WHY: [&str; 4] = ["--reason", "contract 12", "--evidence", "ticket 9"];

/// A live deployment with a partner, its console, and the tokens of two operators, each as `dvp login` leaves it.
struct Live {
    ground: Ground,
    console: String,
    _process: ServedProcess,
}

async fn live() -> Live {
    let ground = Ground::prepare().await;
    let console = "[console]\nlisten = \"127.0.0.1:0\"\nurl = \"https://console.example\"\n";
    ground.write("dvp.toml", &(serve::live(&ground) + console));
    ground.said(&["migrate"]);
    let first = ground.said(&["operator", "bootstrap", "--first", "jo", "--second", "kim"]);
    assert!(first["operators"][1]["link"].as_str().unwrap().contains("/login?token="), "{first}");
    let again = ground.refused(&["operator", "bootstrap", "--first", "pat", "--second", "sam"]);
    assert!(again.contains("there are operators"), "{again}");
    let tokens = "with made as (insert into operator_token (token_hash, operator_id, kind, machine, expires_at) \
                  select sha256(convert_to('token-of-' || name, 'UTF8')), id, 'login', 'test', \
                         now() + interval '1 hour' from operator returning 1) select count(*) from made";
    assert_eq!(ground.one::<i64>(tokens).await, 2);
    let mut console = ground.serve("console");
    console.ready().await;
    let address = console.address("console=Some(").unwrap();
    let live = Live { ground, console: format!("http://{address}"), _process: console };
    live.said("jo", &["partner", "create", "--name", "acme", "--tier", "standard"]);
    live
}

impl Live {
    fn ran(&self, operator: &str, words: &[&str]) -> Output {
        let mut command = self.ground.dvp("dvp.toml", words);
        command.env("DVP_TOKEN", format!("token-of-{operator}")).env("DVP_CONSOLE", &self.console);
        command.arg("--json").output().unwrap()
    }

    fn said(&self, operator: &str, words: &[&str]) -> Value {
        let output = self.ran(operator, words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, operator: &str, words: &[&str]) -> String {
        let output = self.ran(operator, words);
        assert!(!output.status.success(), "{words:?} went well");
        String::from_utf8(output.stderr).unwrap()
    }

    fn approve(&self, id: &Value) {
        let words = ["approval", "approve", "--id", id.as_str().unwrap()];
        assert!(self.refused("jo", &words).contains("another operator"));
        assert!(
            self.refused("jo", &[&words[..], &["--as", "kim"]].concat()).contains("--as is for sandboxes")
        );
        assert!(self.refused("nobody", &words).contains("dvp login"));
        assert_eq!(self.said("kim", &words)["state"], "approved");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_key_works_when_a_second_operator_approved_it() {
    let live = live().await;
    let ground = &live.ground;
    let state = |key: &Value| {
        let listed = ground.said(&["key", "list"]);
        let keys = listed["keys"].as_array().unwrap().clone();
        keys.into_iter().find(|one| one["keyId"] == *key).unwrap()["status"].clone()
    };
    let issue = ["key", "issue", "--partner", "acme", "--env", "live"];
    assert!(live.refused("jo", &issue).contains("takes two operators"));
    assert!(live.refused("jo", &[&issue[..], &["--evidence", "x"]].concat()).contains("--reason"));
    let issued = live.said("jo", &[&issue[..], &WHY].concat());
    assert!(issued["apiKey"].as_str().unwrap().starts_with("svc_live_"), "{issued}");
    let key = &issued["keyId"];
    assert_eq!(state(key), "disabled");
    live.approve(&issued["approval"]);
    assert_eq!(state(key), "enabled");

    let id = key.as_str().unwrap();
    for command in ["rotate", "enable"] {
        assert!(live.refused("jo", &["key", command, "--key-id", id]).contains("takes two operators"));
    }
    let next = live.said("jo", &[&["key", "rotate", "--key-id", id][..], &WHY].concat());
    assert_eq!((&next["replaces"], state(&next["keyId"])), (key, json!("disabled")));
    // One operator stops a key, whose name and reason are kept.
    let stop = ["key", "disable", "--key-id", id];
    assert!(live.refused("jo", &stop).contains("--reason"));
    live.said("jo", &[&stop[..], &["--reason", "seen in a log"]].concat());
    assert_eq!(state(key), "disabled");
    let kept = ground.said(&["audit", "list"]).to_string();
    assert!(kept.contains(&format!("key-id={id} reason=seen in a log")), "{kept}");
    let enabling = live.said("jo", &[&["key", "enable", "--key-id", id][..], &WHY].concat());
    assert_eq!((&enabling["state"], state(key)), (&json!("pending"), json!("disabled")));
    live.approve(&enabling["id"]);
    assert_eq!(state(key), "enabled");
    let shown = ground.printed(&["approval", "list"]);
    assert!(!shown.contains(issued["signingSecret"].as_str().unwrap()), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_session_is_as_a_second_operator_approved_it() {
    let live = live().await;
    let ground = &live.ground;
    let listed = || ground.said(&["fix-session", "list"])["sessions"].as_array().unwrap().clone();
    let add = ["fix-session", "add", "--begin-string", "FIX.4.4", "--sender-comp-id", "ACME"];
    ground.write("password", "secret-1\n");
    let password = format!("file:{}", ground.path("password").display());
    let add = [&add[..], &["--partner", "acme", "--password", &password]].concat();
    let terms = ["--allowed-sources", "10.1.2.3/8", "--cancel-on-disconnect", "10"];
    assert!(live.refused("jo", &add).contains("takes two operators"));
    let wrong = [&add[..], &["--schedule", "always"], &WHY].concat();
    assert!(live.refused("jo", &wrong).contains("schedule: "));
    let requested = live.said("jo", &[&add[..], &terms, &WHY].concat());
    assert_eq!(requested["details"]["settings"]["allowedSources"], json!(["10.0.0.0/8"]), "{requested}");
    assert!(!requested.to_string().contains("secret-1"));
    assert!(listed().is_empty(), "nobody has approved it");
    live.approve(&requested["id"]);
    let session = listed()[0].clone();
    let known = (&session["sessionId"], &session["env"], &session["cancelOnDisconnectSecs"]);
    assert_eq!(known, (&json!("FIX.4.4:DVP->ACME"), &json!("live"), &json!(10)));

    // A new password and other settings, each by a request of its own.
    let set = ["fix-session", "set", "--session-id", "FIX.4.4:DVP->ACME", "--cancel-on-disconnect", "off"];
    assert!(live.refused("jo", &set).contains("takes two operators"));
    let both = [&add[..], &["--cancel-on-disconnect", "20"], &WHY].concat();
    assert!(live.refused("jo", &both).contains("dvp fix-session set"));
    let replaced = live.said("jo", &[&add[..], &WHY].concat());
    assert_eq!(replaced["action"], "set_password", "{replaced}");
    live.approve(&replaced["id"]);
    let requested = live.said("jo", &[&set[..], &WHY].concat());
    assert_eq!(listed()[0]["cancelOnDisconnectSecs"], 10);
    live.approve(&requested["id"]);
    assert_eq!(listed()[0]["cancelOnDisconnectSecs"], Value::Null);

    // One operator disables it at once; to enable it takes two.
    let enable = ["fix-session", "enable", "--session-id", "FIX.4.4:DVP->ACME"];
    assert!(live.refused("jo", &[&enable[..], &WHY].concat()).contains("is not disabled"));
    live.said("jo", &["fix-session", "disable", "--session-id", "FIX.4.4:DVP->ACME", "--reason", "paused"]);
    assert_eq!(listed()[0]["enabled"], false);
    assert!(live.refused("jo", &enable).contains("takes two operators"));
    let requested = live.said("jo", &[&enable[..], &WHY].concat());
    assert_eq!((&requested["action"], &listed()[0]["enabled"]), (&json!("enable_session"), &json!(false)));
    live.approve(&requested["id"]);
    assert_eq!(listed()[0]["enabled"], true);
    let history = ground.said(&["fix-session", "history", "--session-id", "FIX.4.4:DVP->ACME"]);
    let newest = &history["commands"][0];
    assert_eq!((&newest["action"], &newest["operator"]), (&json!("enable"), &json!("jo")), "{history}");
    ground.said(&["audit", "verify"]);
}
