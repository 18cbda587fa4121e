//! The bodies of webhook management.

use dvp_core::engine::webhooks::Command;
use dvp_domain::envelope::TEST_PING;
use dvp_domain::event::EventType;
use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::fields::{Object, fault};
use crate::wire::{WEBHOOK_REGISTER, WEBHOOK_REPLAY, WEBHOOK_TEST, WEBHOOK_UPDATE};

pub(super) fn register(body: &Value) -> Result<Command, ApiError> {
    let root = Object::root(body, WEBHOOK_REGISTER)?;
    let url = url(body)?.ok_or_else(|| fault("url", "is required"))?;
    let types = types(body, "subscribedTypes")?;
    let subscribed_types = types.ok_or_else(|| root.fault("subscribedTypes", "is required"))?;
    Ok(Command::Register { url, subscribed_types })
}

pub(super) fn update(body: &Value) -> Result<Command, ApiError> {
    Object::root(body, WEBHOOK_UPDATE)?;
    let is_active = match body.get("isActive").filter(|value| !value.is_null()) {
        None => None,
        Some(Value::Bool(active)) => Some(*active),
        Some(_) => return Err(fault("isActive", "must be true or false")),
    };
    Ok(Command::Update { url: url(body)?, subscribed_types: types(body, "subscribedTypes")?, is_active })
}

/// Its rules are checked later; here it is a text.
fn url(body: &Value) -> Result<Option<String>, ApiError> {
    match body.get("url").filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(Value::String(url)) => Ok(Some(url.clone())),
        Some(_) => Err(fault("url", "must be a string")),
    }
}

/// Known types, each once, in the order given.
fn types(body: &Value, name: &'static str) -> Result<Option<Vec<String>>, ApiError> {
    let Some(value) = body.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let list = value.as_array().ok_or_else(|| fault(name, "must be an array of event types"))?;
    if list.is_empty() {
        return Err(fault(name, "must name at least one event type"));
    }
    let mut types: Vec<String> = Vec::new();
    for item in list {
        let text = item.as_str().ok_or_else(|| fault(name, "must be an array of event types"))?;
        if EventType::parse(text).is_none() && text != TEST_PING {
            return Err(ApiError::InvalidType(name));
        }
        if !types.iter().any(|known| known == text) {
            types.push(text.to_owned());
        }
    }
    Ok(Some(types))
}

/// Without a body a ping; with a type a made-up event of it, which is never mixed with live events.
pub(super) fn test(body: Option<&Value>, livemode: bool) -> Result<Option<EventType>, ApiError> {
    let Some(body) = body else { return Ok(None) };
    let root = Object::root(body, WEBHOOK_TEST)?;
    match root.opt_text("type")? {
        None | Some(TEST_PING) => Ok(None),
        Some(_) if livemode => Err(fault("type", "made-up events are for test keys")),
        Some(text) => EventType::parse(text).map(Some).ok_or(ApiError::InvalidType("type")),
    }
}

pub(super) fn replay(body: &Value) -> Result<Command, ApiError> {
    let root = Object::root(body, WEBHOOK_REPLAY)?;
    let (from, to) = (root.time("from")?, root.time("to")?);
    if to <= from {
        return Err(root.fault("to", "must be after from"));
    }
    Ok(Command::Replay { from, to, types: types(body, "types")? })
}
