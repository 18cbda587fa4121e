//! An authenticator in software, with the browser's part of WebAuthn.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{DerSignature, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::scene::{ORIGIN, Scene};

const USER_PRESENT: u8 = 0x01;
const USER_VERIFIED: u8 = 0x04;
const ATTESTED: u8 = 0x40;

/// One passkey, and how the browser around it behaves.
pub(crate) struct Authenticator {
    key: SigningKey,
    pub credential: [u8; 16],
    user_handle: String,
    pub counter: u32,
    pub origin: String,
    pub cross_origin: bool,
    pub rp_id: String,
    pub verifies_user: bool,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Authenticator {
    /// An authenticator whose key and credential are made of a number.
    pub(crate) fn new(seed: u8) -> Self {
        Self {
            key: SigningKey::from_slice(&[seed; 32]).unwrap(),
            credential: [seed; 16],
            user_handle: String::new(),
            counter: 1,
            origin: ORIGIN.to_owned(),
            cross_origin: false,
            rp_id: "console.test".to_owned(),
            verifies_user: true,
        }
    }

    fn client_data(&self, kind: &str, challenge: &Value) -> String {
        json!({
            "type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": self.cross_origin,
        })
        .to_string()
    }

    fn authenticator_data(&self, flags: u8) -> Vec<u8> {
        let verified = if self.verifies_user { USER_VERIFIED } else { 0 };
        let mut data = Sha256::digest(&self.rp_id).to_vec();
        data.push(USER_PRESENT | verified | flags);
        data.extend(self.counter.to_be_bytes());
        data
    }

    /// The browser's answer to a challenge for a new passkey.
    pub(crate) fn create(&mut self, options: &Value) -> String {
        self.user_handle = options["user"]["id"].as_str().unwrap().to_owned();
        let client = self.client_data("webauthn.create", &options["challenge"]);
        let mut data = self.authenticator_data(ATTESTED);
        data.extend([0; 16]);
        data.extend([0, 16]);
        data.extend(self.credential);
        let point = self.key.verifying_key().to_encoded_point(false);
        data.extend([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20]);
        data.extend(point.x().unwrap());
        data.extend([0x22, 0x58, 0x20]);
        data.extend(point.y().unwrap());
        let mut attestation = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58".to_vec();
        attestation.push(u8::try_from(data.len()).unwrap());
        attestation.extend(&data);
        json!({
            "id": encode(self.credential), "rawId": encode(self.credential), "type": "public-key",
            "authenticatorAttachment": "platform", "clientExtensionResults": {},
            "response": {
                "clientDataJSON": encode(client), "attestationObject": encode(attestation),
                "authenticatorData": encode(data), "transports": ["internal"],
            },
        })
        .to_string()
    }

    /// The browser's answer to a challenge for a passkey.
    pub(crate) fn get(&mut self, options: &Value) -> String {
        self.counter += 1;
        let client = self.client_data("webauthn.get", &options["challenge"]);
        let data = self.authenticator_data(0);
        let signed = [data.as_slice(), &Sha256::digest(&client)].concat();
        let signature: DerSignature = self.key.sign(&signed);
        json!({
            "id": encode(self.credential), "rawId": encode(self.credential), "type": "public-key",
            "authenticatorAttachment": "platform", "clientExtensionResults": {},
            "response": {
                "clientDataJSON": encode(client), "authenticatorData": encode(data),
                "signature": encode(signature.as_bytes()), "userHandle": self.user_handle,
            },
        })
        .to_string()
    }
}

impl Scene {
    /// A challenge that the console gives.
    pub(crate) async fn challenge(&self, path: &str, cookie: &str) -> Value {
        let answer = self.post(path, &[], cookie).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Adds a passkey in a session. Returns the session's new cookie.
    pub(crate) async fn add_passkey(&self, authenticator: &mut Authenticator, cookie: &str) -> String {
        let options = self.challenge("/account/passkeys/challenge", cookie).await;
        let name = format!("key {}", authenticator.credential[0]);
        let fields = [("name", name.as_str()), ("answer", &authenticator.create(&options))];
        let answer = self.post("/account/passkeys", &fields, cookie).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        answer.cookie()
    }

    /// An answer to a new challenge for a sign-in.
    pub(crate) async fn sign(&self, authenticator: &mut Authenticator) -> String {
        authenticator.get(&self.challenge("/login/passkey/challenge", "").await)
    }

    /// Signs in with a passkey, or is refused: then the cookie is empty.
    pub(crate) async fn sign_in_with(&self, answer: &str) -> String {
        let fields = [("answer", answer), ("next", "/orders")];
        let answer = self.post("/login/passkey", &fields, "").await;
        let is_in = answer.status == StatusCode::SEE_OTHER && answer.header("location") == "/orders";
        assert_eq!(is_in, !answer.cookie().is_empty(), "{} {}", answer.status, answer.body);
        answer.cookie()
    }
}
