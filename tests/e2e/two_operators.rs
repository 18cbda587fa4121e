//! Keys and FIX sessions of a live deployment, which take two operators over the command line, too.

use serde_json::{Value, json};

use crate::serve;
use crate::served::Ground;

const WHY: [&str; 6] = ["--operator", "jo", "--reason", "contract 12", "--evidence", "ticket 9"];

/// A live deployment: its schema and a partner.
async fn live() -> Ground {
    let ground = Ground::prepare().await;
    ground.write("dvp.toml", &serve::live(&ground));
    ground.said(&["migrate"]);
    ground.said(&["partner", "create", "--name", "acme", "--tier", "standard"]);
    ground
}

fn approve(ground: &Ground, id: &Value) {
    let words = ["approval", "approve", "--id", id.as_str().unwrap(), "--operator"];
    assert!(ground.refused(&[&words[..], &["Jo "]].concat()).contains("another operator"));
    assert_eq!(ground.said(&[&words[..], &["kim"]].concat())["state"], "approved");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_key_works_when_a_second_operator_approved_it() {
    let ground = live().await;
    let state = |key: &Value| {
        let listed = ground.said(&["key", "list"]);
        let keys = listed["keys"].as_array().unwrap().clone();
        keys.into_iter().find(|one| one["keyId"] == *key).unwrap()["status"].clone()
    };
    let issue = ["key", "issue", "--partner", "acme", "--env", "live"];
    assert!(ground.refused(&issue).contains("takes two operators"));
    assert!(ground.refused(&[&issue[..], &["--operator", "jo"]].concat()).contains("--reason"));
    let issued = ground.said(&[&issue[..], &WHY].concat());
    assert!(issued["apiKey"].as_str().unwrap().starts_with("svc_live_"), "{issued}");
    let key = &issued["keyId"];
    assert_eq!(state(key), "disabled");
    approve(&ground, &issued["approval"]);
    assert_eq!(state(key), "enabled");

    let id = key.as_str().unwrap();
    for command in ["rotate", "enable"] {
        assert!(ground.refused(&["key", command, "--key-id", id]).contains("takes two operators"));
    }
    let next = ground.said(&[&["key", "rotate", "--key-id", id][..], &WHY].concat());
    assert_eq!((&next["replaces"], state(&next["keyId"])), (key, json!("disabled")));
    // One operator stops a key, whose name and reason are kept.
    let stop = ["key", "disable", "--key-id", id];
    assert!(ground.refused(&stop).contains("--operator and --reason"));
    ground.said(&[&stop[..], &["--operator", "jo", "--reason", "seen in a log"]].concat());
    assert_eq!(state(key), "disabled");
    let kept = ground.said(&["audit", "list"]).to_string();
    assert!(kept.contains(&format!("{id} disabled: seen in a log")), "{kept}");
    let enabling = ground.said(&[&["key", "enable", "--key-id", id][..], &WHY].concat());
    assert_eq!((&enabling["state"], state(key)), (&json!("pending"), json!("disabled")));
    approve(&ground, &enabling["id"]);
    assert_eq!(state(key), "enabled");
    let shown = ground.printed(&["approval", "list"]);
    assert!(!shown.contains(issued["signingSecret"].as_str().unwrap()), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_session_is_as_a_second_operator_approved_it() {
    let ground = live().await;
    let listed = || ground.said(&["fix-session", "list"])["sessions"].as_array().unwrap().clone();
    let add = ["fix-session", "add", "--begin-string", "FIX.4.4", "--sender-comp-id", "ACME"];
    ground.write("password", "secret-1\n");
    let password = format!("file:{}", ground.path("password").display());
    let add = [&add[..], &["--partner", "acme", "--password", &password]].concat();
    let terms = ["--allowed-sources", "10.1.2.3/8", "--cancel-on-disconnect", "10"];
    assert!(ground.refused(&add).contains("takes two operators"));
    let wrong = [&add[..], &["--schedule", "always"], &WHY].concat();
    assert!(ground.refused(&wrong).contains("schedule: "));
    let requested = ground.said(&[&add[..], &terms, &WHY].concat());
    assert_eq!(requested["details"]["settings"]["allowedSources"], json!(["10.0.0.0/8"]), "{requested}");
    assert!(!requested.to_string().contains("secret-1"));
    assert!(listed().is_empty(), "nobody has approved it");
    approve(&ground, &requested["id"]);
    let session = listed()[0].clone();
    let known = (&session["sessionId"], &session["env"], &session["cancelOnDisconnectSecs"]);
    assert_eq!(known, (&json!("FIX.4.4:DVP->ACME"), &json!("live"), &json!(10)));

    // A new password and other settings, each by a request of its own.
    let set = ["fix-session", "set", "--session-id", "FIX.4.4:DVP->ACME", "--cancel-on-disconnect", "off"];
    assert!(ground.refused(&set).contains("takes two operators"));
    let both = [&add[..], &["--cancel-on-disconnect", "20"], &WHY].concat();
    assert!(ground.refused(&both).contains("dvp fix-session set"));
    let replaced = ground.said(&[&add[..], &WHY].concat());
    assert_eq!(replaced["action"], "set_password", "{replaced}");
    approve(&ground, &replaced["id"]);
    let requested = ground.said(&[&set[..], &WHY].concat());
    assert_eq!(listed()[0]["cancelOnDisconnectSecs"], 10);
    approve(&ground, &requested["id"]);
    assert_eq!(listed()[0]["cancelOnDisconnectSecs"], Value::Null);

    // One operator disables it at once; to enable it takes two.
    let enable = ["fix-session", "enable", "--session-id", "FIX.4.4:DVP->ACME"];
    assert!(ground.refused(&[&enable[..], &WHY].concat()).contains("is not disabled"));
    ground.said(&["fix-session", "disable", "--session-id", "FIX.4.4:DVP->ACME"]);
    assert_eq!(listed()[0]["enabled"], false);
    assert!(ground.refused(&enable).contains("takes two operators"));
    let requested = ground.said(&[&enable[..], &WHY].concat());
    assert_eq!((&requested["action"], &listed()[0]["enabled"]), (&json!("enable_session"), &json!(false)));
    approve(&ground, &requested["id"]);
    assert_eq!(listed()[0]["enabled"], true);
    let history = ground.said(&["fix-session", "history", "--session-id", "FIX.4.4:DVP->ACME"]);
    let newest = &history["commands"][0];
    assert_eq!((&newest["action"], &newest["operator"]), (&json!("enable"), &json!("jo")), "{history}");
    ground.said(&["audit", "verify"]);
}
