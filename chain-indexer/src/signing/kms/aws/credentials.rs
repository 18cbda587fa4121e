//! Who asks: keys of the configuration, or the role of the container or machine, which gives keys that expire.

use super::super::super::http::{read, unreached};
use super::super::{SignError, SignerSetup, answered, parsed};
use chrono::{DateTime, TimeDelta, Utc};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use tokio::sync::Mutex;

/// Keys are replaced so long before they expire.
const EARLY: TimeDelta = TimeDelta::minutes(5);
const TOKEN_SECONDS: &str = "21600";

#[derive(Clone)]
pub enum AwsCredentials {
    Keys {
        access_key_id: String,
        secret_access_key: String,
    },
    /// The role of a container (ECS, EKS Pod Identity).
    Container {
        url: String,
        token_file: Option<PathBuf>,
    },
    /// The role of a machine, by its metadata service (IMDSv2) at this address.
    Machine {
        url: String,
    },
}

impl AwsCredentials {
    /// The role of the container, if the environment names one, or else of the machine.
    #[must_use]
    pub fn of_role() -> Self {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let relative = set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = relative.map(|path| format!("http://169.254.170.2{path}"));
        match full.or_else(|| set("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
            Some(url) => Self::Container {
                url,
                token_file: set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from),
            },
            None => Self::Machine { url: "http://169.254.169.254".to_owned() },
        }
    }
}

impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys { .. } => "<secret>",
            Self::Container { .. } => "the container's role",
            Self::Machine { .. } => "the machine's role",
        })
    }
}

#[derive(Clone)]
pub(super) struct Keys {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
    pub(super) session_token: Option<String>,
}

/// What both kinds of role answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Issued {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    /// RFC 3339.
    expiration: String,
}

pub(super) struct Source {
    from: AwsCredentials,
    http: Client,
    issued: Mutex<Option<(Keys, DateTime<Utc>)>>,
}

impl Source {
    pub(super) fn new(from: AwsCredentials, http: Client) -> Result<Self, SignerSetup> {
        let url = match &from {
            AwsCredentials::Keys { .. } => None,
            AwsCredentials::Container { url, .. } | AwsCredentials::Machine { url } => Some(url),
        };
        if let Some(Err(error)) = url.map(|url| url.parse::<Url>()) {
            return Err(SignerSetup {
                field: "access_key_id",
                reason: format!("the role's address: {error}"),
            });
        }
        Ok(Self { from, http, issued: Mutex::default() })
    }

    /// Keys that are valid for some minutes.
    pub(super) async fn current(&self) -> Result<Keys, SignError> {
        if let AwsCredentials::Keys { access_key_id, secret_access_key } = &self.from {
            let (access_key_id, secret_access_key) = (access_key_id.clone(), secret_access_key.clone());
            return Ok(Keys { access_key_id, secret_access_key, session_token: None });
        }
        let mut issued = self.issued.lock().await;
        if let Some((keys, until)) = &*issued
            && Utc::now() + EARLY < *until
        {
            return Ok(keys.clone());
        }
        let Issued { access_key_id, secret_access_key, token, expiration } = self.issue().await?;
        let expiration = expiration
            .parse()
            .map_err(|_| SignError::Malformed("the role's keys have no time of expiry".to_owned()))?;
        let keys = Keys { access_key_id, secret_access_key, session_token: Some(token) };
        *issued = Some((keys.clone(), expiration));
        Ok(keys)
    }

    /// The next call asks for new keys.
    pub(super) async fn forget(&self) {
        *self.issued.lock().await = None;
    }

    async fn issue(&self) -> Result<Issued, SignError> {
        match &self.from {
            AwsCredentials::Keys { .. } => Err(SignError::Unusable("its keys are not issued".to_owned())),
            AwsCredentials::Container { url, token_file } => {
                let mut request = self.http.get(url);
                if let Some(path) = token_file {
                    let token = tokio::fs::read_to_string(path).await.map_err(|error| {
                        SignError::Unavailable(format!("the container's token cannot be read: {error}"))
                    })?;
                    request = request.header("authorization", token.trim());
                }
                answered(request, refused).await
            }
            AwsCredentials::Machine { url } => self.of_machine(url.trim_end_matches('/')).await,
        }
    }

    async fn of_machine(&self, url: &str) -> Result<Issued, SignError> {
        let lifetime = ("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS);
        let request = self.http.put(format!("{url}/latest/api/token")).header(lifetime.0, lifetime.1);
        let token = text(request).await?;
        let of = |path: &str| {
            let place = format!("{url}/latest/meta-data/iam/security-credentials/{path}");
            self.http.get(place).header("x-aws-ec2-metadata-token", &token)
        };
        let role = text(of("")).await?;
        let role = role.lines().next().unwrap_or_default();
        parsed(text(of(role)).await?.as_bytes())
    }
}

fn refused(status: StatusCode, _: &[u8]) -> SignError {
    SignError::Unavailable(format!("the role's keys are refused with the status {status}"))
}

async fn text(request: reqwest::RequestBuilder) -> Result<String, SignError> {
    let (status, body) = read(request.send().await.map_err(unreached)?).await?;
    if status != StatusCode::OK {
        return Err(refused(status, &body));
    }
    String::from_utf8(body).map_err(|_| SignError::Malformed("the role's keys are no text".to_owned()))
}
