//! What handlers take from a request, and how they answer it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use axum::extract::{Form, FromRequest, FromRequestParts, Query, RawForm, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::{DateTime, NaiveDateTime, Utc};
use dvp_core::listeners::source::{Peer, client};
use serde::de::DeserializeOwned;

use crate::access;
use crate::error::PageError;
use crate::operator::Operator;
use crate::state::Console;
use crate::view::Page;

/// How a handler answers.
pub(crate) type Reply = Result<Response, PageError>;

/// A request of an operator that `access::require` has let through.
pub(crate) struct Visit {
    pub console: Console,
    pub operator: Operator,
}

impl FromRequestParts<Console> for Visit {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, PageError> {
        let operator = parts.extensions.get().cloned().ok_or(PageError::Unauthenticated)?;
        Ok(Self { console: console.clone(), operator })
    }
}

/// A request of a browser that is not signed in. Its form, if it has one, is of the console's own pages.
pub(crate) struct Stranger {
    pub console: Console,
    pub source: IpAddr,
    pub headers: HeaderMap,
}

impl FromRequestParts<Console> for Stranger {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, PageError> {
        access::check_origin(console, &parts.method, &parts.headers)?;
        let Peer(peer) = *parts.extensions.get().ok_or(PageError::Internal)?;
        let source = client(peer, &console.settings.proxies, &parts.headers);
        Ok(Self { console: console.clone(), source, headers: parts.headers.clone() })
    }
}

/// A request of a program, which no browser sends by itself.
pub(crate) struct Bearer {
    pub source: IpAddr,
    pub headers: HeaderMap,
}

impl FromRequestParts<Console> for Bearer {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, PageError> {
        let Peer(peer) = *parts.extensions.get().ok_or(PageError::Internal)?;
        let source = client(peer, &console.settings.proxies, &parts.headers);
        Ok(Self { source, headers: parts.headers.clone() })
    }
}

/// The fields of a form.
pub(crate) struct Sent<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Console> for Sent<T> {
    type Rejection = PageError;

    async fn from_request(request: Request, console: &Console) -> Result<Self, PageError> {
        let form = Form::from_request(request, console).await;
        form.map(|Form(form)| Self(form)).map_err(|error| PageError::Invalid(error.to_string()))
    }
}

/// The fields of an address's query.
pub(crate) struct Asked<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Console> for Asked<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, PageError> {
        let query = Query::from_request_parts(parts, console).await;
        query.map(|Query(query)| Self(query)).map_err(|error| PageError::Invalid(error.to_string()))
    }
}

/// Leads to another page.
pub(crate) fn lead_to(address: &str) -> Reply {
    Ok(Redirect::to(address).into_response())
}

/// A file to be saved under a name.
pub(crate) fn file(name: &str, kind: &str, content: Vec<u8>) -> Reply {
    let headers = [
        (header::CONTENT_TYPE, format!("{kind}; charset=utf-8")),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    Ok((headers, content).into_response())
}

/// The fields of a form or an address, of which some occur several times.
pub(crate) struct Fields(Vec<(String, String)>);

impl FromRequest<Console> for Fields {
    type Rejection = PageError;

    async fn from_request(request: Request, console: &Console) -> Result<Self, PageError> {
        let form = RawForm::from_request(request, console).await;
        let RawForm(form) = form.map_err(|error| PageError::Invalid(error.to_string()))?;
        Ok(Self::of(&form))
    }
}

impl Fields {
    /// Those of an address.
    pub(crate) fn asked(uri: &Uri) -> Self {
        Self::of(uri.query().unwrap_or_default().as_bytes())
    }

    /// Those of an encoded form.
    pub(crate) fn of(encoded: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// Those of other names.
    pub(crate) fn without(&self, names: &[String]) -> Self {
        Self(self.0.iter().filter(|(name, _)| !names.contains(name)).cloned().collect())
    }

    pub(crate) fn and(mut self, more: Vec<(String, String)>) -> Self {
        self.0.extend(more);
        self
    }

    pub(crate) fn push(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    /// The values of a field, as they were given.
    pub(crate) fn values(&self, name: &str) -> impl DoubleEndedIterator<Item = &str> {
        let found = self.0.iter().filter(move |(field, _)| field == name);
        found.map(|(_, value)| value.trim())
    }

    /// The last value of a field; empty: it has none.
    pub(crate) fn one(&self, name: &str) -> &str {
        self.values(name).next_back().unwrap_or_default()
    }

    /// All values of a field, without repetition.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let values: BTreeSet<&str> = self.values(name).collect();
        values.into_iter().map(ToOwned::to_owned).collect()
    }
}

impl Operator {
    /// A page for the operator.
    pub(crate) fn page(&self, section: &'static str, title: impl Into<String>) -> Page {
        Page::of(Some(self), section, title)
    }
}

/// Reads the place of a row in a list.
pub(crate) fn placed(text: &str) -> Result<(DateTime<Utc>, &str), PageError> {
    let read = text.split_once('.');
    let read =
        read.and_then(|(micros, id)| Some((DateTime::from_timestamp_micros(micros.parse().ok()?)?, id)));
    read.ok_or_else(|| {
        PageError::Invalid("This page of the list cannot be found: begin at the newest.".to_owned())
    })
}

/// Reads a time (UTC): `2026-01-31T09:30` with or without seconds. An empty text is none.
pub(crate) fn time(text: &str) -> Result<Option<DateTime<Utc>>, PageError> {
    let text = text.trim();
    let read = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    match read {
        None if !text.is_empty() => Err(PageError::Invalid(format!("{text} is no time: YYYY-MM-DDThh:mm."))),
        read => Ok(read.map(|time| time.and_utc())),
    }
}
