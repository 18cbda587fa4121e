//! The key management services of two clouds, with the services that give their callers credentials: as their
//! documentation describes them, with a real key. They may lie.

use std::sync::{Arc, Mutex};

use alloy::primitives::B256;
use alloy::signers::SignerSync as _;
use alloy::signers::k256::ecdsa::{Signature, SigningKey};
use alloy::signers::local::PrivateKeySigner;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use hyper::Request;
use serde_json::{Value, json};
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::listening::{Answer, Listening, answer};

/// The key of the service account, which the token endpoint knows.
pub const SERVICE_ACCOUNT_KEY: &str = include_str!("kms_rsa.pem");
pub const SERVICE_ACCOUNT: &str = "relayer@project.iam.gserviceaccount.com";
/// The name of the key with both services.
pub const AWS_KEY: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd";
pub const GCP_KEY: &str = "projects/p/locations/europe-west3/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1";
/// Keys of AWS that do not expire; those of a role are other ones.
pub const AWS_KEYS: (&str, &str) = ("AKIDTEST", "secret-of-the-test");

/// How the services answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KmsAnswer {
    Honest,
    /// With the right signature in its other form, as the services do half of the time.
    HighS,
    /// With the signature of another key.
    OtherKey,
    /// With the signature of another digest.
    OtherDigest,
    /// With r and s and another byte.
    Trailing,
    /// With 64 bytes: r and s without DER.
    NoDer,
    /// With bytes that are no signature.
    Garbage,
    /// With something that is no JSON.
    NoJson,
    /// Never.
    Hang,
    /// With the status 500.
    Broken,
    /// The caller may not use the key.
    Denied,
    /// Too many requests.
    Throttled,
    /// The public key is another one.
    OtherPublicKey,
    /// The public key is one of another curve.
    OtherCurve,
}

struct Shared {
    key: PrivateKeySigner,
    manner: Mutex<KmsAnswer>,
    signed: Mutex<usize>,
    /// The credentials that count, of a role: they are replaced when they are withdrawn.
    issued: Mutex<usize>,
}

/// Services that listen until this is dropped.
pub struct Kms {
    listening: Listening,
    shared: Arc<Shared>,
}

impl Kms {
    pub async fn start(key: PrivateKeySigner) -> Self {
        let shared = Shared {
            key,
            manner: Mutex::new(KmsAnswer::Honest),
            signed: Mutex::default(),
            issued: Mutex::default(),
        };
        let shared = Arc::new(shared);
        let of_all = Arc::clone(&shared);
        let listening =
            Listening::over_http(None, move |request| respond(request, Arc::clone(&of_all))).await;
        Self { listening, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.listening.address)
    }

    pub fn answer(&self, manner: KmsAnswer) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    /// The number of requested signatures.
    pub fn signed(&self) -> usize {
        *self.shared.signed.lock().unwrap()
    }

    /// How often credentials of a role were issued.
    pub fn issued(&self) -> usize {
        *self.shared.issued.lock().unwrap()
    }

    /// A service account's key, as the cloud issues it.
    pub fn service_account(&self) -> String {
        json!({
            "type": "service_account",
            "client_email": SERVICE_ACCOUNT,
            "private_key_id": "k1",
            "private_key": SERVICE_ACCOUNT_KEY,
            "token_uri": format!("{}/token", self.url()),
        })
        .to_string()
    }
}

async fn respond(request: Request<Bytes>, shared: Arc<Shared>) -> Answer {
    let (parts, body) = request.into_parts();
    let shared = &*shared;
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let role = "/latest/meta-data/iam/security-credentials/";
    match (parts.method.as_str(), parts.uri.path()) {
        ("POST", "/") => {
            if !aws_admits(header("authorization"), header("x-amz-security-token"), shared) {
                return refusal(true, 400, "UnrecognizedClientException");
            }
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            if request["KeyId"] != AWS_KEY {
                return refusal(true, 400, "NotFoundException");
            }
            match header("x-amz-target") {
                "TrentService.GetPublicKey" => public_key(true, shared).await,
                "TrentService.Sign" => {
                    assert_eq!(
                        (&request["MessageType"], &request["SigningAlgorithm"]),
                        (&json!("DIGEST"), &json!("ECDSA_SHA_256"))
                    );
                    signature(true, request["Message"].as_str().unwrap_or_default(), shared).await
                }
                _ => refusal(true, 400, "UnknownOperationException"),
            }
        }
        ("PUT", "/latest/api/token") => answer(200, "session"),
        ("GET", path) if path == role && header("x-aws-ec2-metadata-token") == "session" => {
            answer(200, "relayer")
        }
        ("GET", path) if path == format!("{role}relayer") => issue_keys(shared),
        ("GET", "/container") if header("authorization") == "pod" => issue_keys(shared),
        ("GET", "/computeMetadata/v1/instance/service-accounts/default/token")
            if header("metadata-flavor") == "Google" =>
        {
            issue_token(shared)
        }
        ("POST", "/token") if is_assertion(&body) => issue_token(shared),
        (method, path) if path.starts_with("/v1/") => {
            let issued = *shared.issued.lock().unwrap();
            if issued == 0 || header("authorization") != format!("Bearer token-{issued}") {
                return refusal(false, 401, "UNAUTHENTICATED");
            }
            match path.strip_prefix("/v1/").and_then(|path| path.strip_prefix(GCP_KEY)) {
                Some("/publicKey") if method == "GET" => public_key(false, shared).await,
                Some(":asymmetricSign") if method == "POST" => {
                    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let digest = request["digest"]["sha256"].as_str().unwrap_or_default();
                    signature(false, digest, shared).await
                }
                _ => refusal(false, 404, "NOT_FOUND"),
            }
        }
        _ => answer(404, ""),
    }
}

fn aws_admits(authorization: &str, session: &str, shared: &Shared) -> bool {
    let issued = *shared.issued.lock().unwrap();
    let known = if session.is_empty() {
        authorization.contains(&format!("Credential={}/", AWS_KEYS.0))
    } else {
        session == format!("session-{issued}") && authorization.contains(&format!("Credential=ROLE{issued}/"))
    };
    known
        && authorization.starts_with("AWS4-HMAC-SHA256 ")
        && authorization.contains("/eu-central-1/kms/aws4_request")
}

fn issue_keys(shared: &Shared) -> Answer {
    let n = next(shared);
    let keys = json!({
        "AccessKeyId": format!("ROLE{n}"), "SecretAccessKey": "secret", "Token": format!("session-{n}"),
        "Expiration": "2099-01-01T00:00:00Z",
    });
    answer(200, keys.to_string())
}

fn issue_token(shared: &Shared) -> Answer {
    let n = next(shared);
    answer(
        200,
        json!({"access_token": format!("token-{n}"), "expires_in": 3_600, "token_type": "Bearer"})
            .to_string(),
    )
}

fn next(shared: &Shared) -> usize {
    let mut issued = shared.issued.lock().unwrap();
    *issued += 1;
    *issued
}

/// Whether a service account's key has signed this request for a token.
fn is_assertion(form: &[u8]) -> bool {
    let form = String::from_utf8_lossy(form);
    let Some((_, assertion)) = form.split_once("assertion=") else { return false };
    let Some((text, signature)) = assertion.rsplit_once('.') else { return false };
    let claims: Value = text
        .split_once('.')
        .and_then(|(_, claims)| URL_SAFE_NO_PAD.decode(claims).ok())
        .and_then(|claims| serde_json::from_slice(&claims).ok())
        .unwrap_or_default();
    let key = PrivateKeyDer::from_pem_slice(SERVICE_ACCOUNT_KEY.as_bytes()).unwrap();
    let key = ring::sign::any_supported_type(&key).unwrap();
    // After the algorithm's identifier, 24 bytes for a key of this length, comes the key itself.
    let spki = key.public_key().unwrap();
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let algorithm = algorithms
        .mapping
        .iter()
        .find(|(scheme, _)| *scheme == SignatureScheme::RSA_PKCS1_SHA256)
        .and_then(|(_, algorithms)| algorithms.first())
        .unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
    claims["iss"] == SERVICE_ACCOUNT
        && claims["scope"] == "https://www.googleapis.com/auth/cloudkms"
        && algorithm.verify_signature(&spki[24..], text.as_bytes(), &signature).is_ok()
}

fn refusal(aws: bool, status: u16, code: &str) -> Answer {
    let body = if aws {
        json!({"__type": code, "message": "refused"})
    } else {
        json!({"error": {"code": status, "status": code, "message": "refused"}})
    };
    answer(status, body.to_string())
}

/// What both services do in a manner that concerns every request.
async fn misbehaved(aws: bool, manner: KmsAnswer) -> Option<Answer> {
    match manner {
        KmsAnswer::Hang => std::future::pending().await,
        KmsAnswer::Broken => Some(answer(500, "<html>")),
        KmsAnswer::NoJson => Some(answer(200, "signed, honestly")),
        KmsAnswer::Denied if aws => Some(refusal(true, 400, "AccessDeniedException")),
        KmsAnswer::Denied => Some(refusal(false, 403, "PERMISSION_DENIED")),
        KmsAnswer::Throttled if aws => Some(refusal(true, 400, "ThrottlingException")),
        KmsAnswer::Throttled => Some(refusal(false, 429, "RESOURCE_EXHAUSTED")),
        _ => None,
    }
}

async fn public_key(aws: bool, shared: &Shared) -> Answer {
    let manner = *shared.manner.lock().unwrap();
    if let Some(answer) = misbehaved(aws, manner).await {
        return answer;
    }
    let key = if manner == KmsAnswer::OtherPublicKey { other() } else { shared.key.clone() };
    let curve = if manner == KmsAnswer::OtherCurve { 0x22 } else { 0x0a };
    let header = [
        0x30, 0x56, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81,
        0x04, 0x00, curve, 0x03, 0x42, 0x00,
    ];
    let point = key.credential().verifying_key().to_encoded_point(false);
    let spki = STANDARD.encode([&header, point.as_bytes()].concat());
    let body = if aws {
        json!({"KeyId": AWS_KEY, "PublicKey": spki, "KeySpec": "ECC_SECG_P256K1", "KeyUsage": "SIGN_VERIFY"})
    } else {
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{spki}\n-----END PUBLIC KEY-----\n");
        json!({"pem": pem, "algorithm": "EC_SIGN_SECP256K1_SHA256", "name": GCP_KEY})
    };
    answer(200, body.to_string())
}

async fn signature(aws: bool, digest: &str, shared: &Shared) -> Answer {
    let manner = *shared.manner.lock().unwrap();
    *shared.signed.lock().unwrap() += 1;
    if let Some(answer) = misbehaved(aws, manner).await {
        return answer;
    }
    let Some(digest) = STANDARD.decode(digest).ok().and_then(|digest| B256::try_from(digest.as_slice()).ok())
    else {
        return refusal(aws, 400, "ValidationException");
    };
    let of = |key: &PrivateKeySigner, digest: B256| {
        let made = key.sign_hash_sync(&digest).unwrap();
        Signature::from_scalars(made.r().to_be_bytes::<32>(), made.s().to_be_bytes::<32>()).unwrap()
    };
    let honest = of(&shared.key, digest);
    let der = match manner {
        KmsAnswer::OtherKey => of(&other(), digest).to_der().as_bytes().to_vec(),
        KmsAnswer::OtherDigest => of(&shared.key, !digest).to_der().as_bytes().to_vec(),
        KmsAnswer::HighS => {
            let high = Signature::from_scalars(honest.r(), -*honest.s()).unwrap();
            assert!(high.normalize_s().is_some());
            high.to_der().as_bytes().to_vec()
        }
        KmsAnswer::Trailing => [honest.to_der().as_bytes(), &[0]].concat(),
        KmsAnswer::NoDer => honest.to_bytes().to_vec(),
        KmsAnswer::Garbage => vec![0x30, 0x02, 0x02, 0x00],
        _ => honest.to_der().as_bytes().to_vec(),
    };
    let der = STANDARD.encode(der);
    let body = if aws { json!({"KeyId": AWS_KEY, "Signature": der}) } else { json!({"signature": der}) };
    answer(200, body.to_string())
}

fn other() -> PrivateKeySigner {
    SigningKey::from_slice(&[0x11; 32]).unwrap().into()
}
