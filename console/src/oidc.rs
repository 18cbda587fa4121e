//! Sign-in at an identity provider: the authorization code flow of OpenID Connect with PKCE.
//!
//! ```text
//! /login/provider --redirect, state--> provider --redirect, code and state--> /login/provider/callback
//!                                                     '-- code for an ID token, by TLS --> operator
//! ```
//!
//! Invariants: a sign-in is completed by the browser that began it, once, within ten minutes; the ID token is signed by
//! the provider, for this client and this sign-in's nonce; no operator is created by it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use dvp_store::StoreError;
use openidconnect::core::{
    CoreAuthenticationFlow, CoreClient, CoreJwsSigningAlgorithm, CoreProviderMetadata,
};
use openidconnect::{
    AccessTokenHash, AsyncHttpClient, AuthorizationCode, ClientId, ClientSecret, CsrfToken, HttpRequest,
    HttpResponse, IssuerUrl, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier,
    RedirectUrl, Scope, TokenResponse as _,
};
use serde::{Deserialize, Serialize};

use crate::state::{ConsoleSettings, ProviderSettings};

/// The time limit for an answer of the provider.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of an answer.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Why a sign-in at the provider failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcError {
    #[error("no identity provider is configured")]
    NotConfigured,
    #[error("the identity provider cannot be reached: {0}")]
    Unreachable(String),
    #[error("the sign-in was begun in another browser, was completed already, or has expired")]
    NotBegun,
    #[error("the identity provider refused: {0}")]
    Refused(String),
    #[error("the answer of the identity provider is not valid: {0}")]
    Invalid(String),
    #[error("no operator has this account")]
    Unknown,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is kept of a sign-in while the browser is at the provider.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pending {
    verifier: String,
    nonce: String,
    /// The hash of the browser's cookie.
    pub browser: [u8; 32],
    pub next: String,
}

/// A verified account at the provider.
#[derive(Debug)]
pub(crate) struct Account {
    pub issuer: String,
    pub subject: String,
    pub verified_email: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct HttpError(String);

/// Sends the library's requests.
struct Http(reqwest::Client);

impl Http {
    fn new() -> Result<Self, OidcError> {
        let builder = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
        builder.build().map(Self).map_err(|error| OidcError::Unreachable(error.to_string()))
    }
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        let failed = |error: reqwest::Error| HttpError(error.to_string());
        Box::pin(async move {
            let request = reqwest::Request::try_from(request).map_err(failed)?;
            let mut answer = self.0.execute(request).await.map_err(failed)?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut body = Vec::new();
            while let Some(part) = answer.chunk().await.map_err(failed)? {
                body.extend_from_slice(&part);
                if body.len() > ANSWER_BYTES_MAX {
                    return Err(HttpError("the answer is too long".to_owned()));
                }
            }
            let mut response = HttpResponse::new(body);
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            Ok(response)
        })
    }
}

/// The provider and how the console speaks to it.
pub(crate) struct Provider {
    settings: ProviderSettings,
    metadata: CoreProviderMetadata,
    redirect: RedirectUrl,
    http: Http,
}

fn invalid(error: impl std::fmt::Display) -> OidcError {
    OidcError::Invalid(error.to_string())
}

impl Provider {
    /// Reads the provider's own description and its keys.
    pub(crate) async fn discover(settings: &ConsoleSettings) -> Result<Self, OidcError> {
        let provider = settings.provider.clone().ok_or(OidcError::NotConfigured)?;
        let origin = settings.origins.first().ok_or(OidcError::NotConfigured)?;
        let redirect = origin.join("/login/provider/callback").map_err(invalid)?;
        // Issuers are compared as text, and most have no slash at their end.
        let issuer =
            IssuerUrl::new(provider.issuer.as_str().trim_end_matches('/').to_owned()).map_err(invalid)?;
        let http = Http::new()?;
        let metadata = CoreProviderMetadata::discover_async(issuer, &http).await;
        let metadata = metadata.map_err(|error| OidcError::Unreachable(chain(&error)))?;
        Ok(Self { settings: provider, metadata, redirect: RedirectUrl::from_url(redirect), http })
    }

    /// The address to which the browser is sent, and what is kept of the sign-in.
    pub(crate) fn begin(&self, state: String, browser: [u8; 32], next: String) -> (String, Pending) {
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let client = CoreClient::from_provider_metadata(
            self.metadata.clone(),
            ClientId::new(self.settings.client_id.clone()),
            Some(ClientSecret::new(self.settings.client_secret.clone())),
        )
        .set_redirect_uri(self.redirect.clone());
        let state = CsrfToken::new(state);
        let request = client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, || state, Nonce::new_random)
            .add_scope(Scope::new("email".to_owned()))
            .set_pkce_challenge(challenge);
        let (address, _, nonce) = request.url();
        let verifier = verifier.into_secret();
        (address.into(), Pending { verifier, nonce: nonce.secret().clone(), browser, next })
    }

    /// Exchanges a code for the account of whoever signed in.
    pub(crate) async fn complete(&self, pending: &Pending, code: String) -> Result<Account, OidcError> {
        let client = CoreClient::from_provider_metadata(
            self.metadata.clone(),
            ClientId::new(self.settings.client_id.clone()),
            Some(ClientSecret::new(self.settings.client_secret.clone())),
        )
        .set_redirect_uri(self.redirect.clone());
        let exchange = client.exchange_code(AuthorizationCode::new(code)).map_err(invalid)?;
        let exchange = exchange.set_pkce_verifier(PkceCodeVerifier::new(pending.verifier.clone()));
        let answer = exchange.request_async(&self.http).await;
        let answer = answer.map_err(|error| OidcError::Refused(chain(&error)))?;
        let token = answer.id_token().ok_or_else(|| invalid("there is no ID token"))?;
        // Signatures by the provider's own keys: never a secret that it shares with clients, and never none.
        let verifier = client.id_token_verifier().set_allowed_algs([
            CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
            CoreJwsSigningAlgorithm::RsaSsaPssSha256,
            CoreJwsSigningAlgorithm::EcdsaP256Sha256,
            CoreJwsSigningAlgorithm::EcdsaP384Sha384,
            CoreJwsSigningAlgorithm::EdDsa,
        ]);
        let claims = token
            .claims(&verifier, &Nonce::new(pending.nonce.clone()))
            .map_err(|error| invalid(chain(&error)))?;
        if let Some(expected) = claims.access_token_hash() {
            let (algorithm, key) = (token.signing_alg(), token.signing_key(&verifier));
            let (algorithm, key) = (algorithm.map_err(invalid)?, key.map_err(invalid)?);
            let actual =
                AccessTokenHash::from_token(answer.access_token(), algorithm, key).map_err(invalid)?;
            if actual != *expected {
                return Err(invalid("the access token is of another sign-in"));
            }
        }
        let is_verified = claims.email_verified() == Some(true);
        Ok(Account {
            issuer: claims.issuer().to_string(),
            subject: claims.subject().to_string(),
            verified_email: claims.email().filter(|_| is_verified).map(|email| email.to_string()),
        })
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
