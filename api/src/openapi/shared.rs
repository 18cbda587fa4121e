//! Parameters and responses that several operations share are components, and the operations refer to them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::http::error::Code;

/// Moves parameters and responses that occur more than once in `paths` and `webhooks` to `components`.
pub(super) fn share(document: &mut Value) {
    let mut parameters = Shared::new("parameters");
    let mut responses = Shared::new("responses");
    each_operation(document, &mut |_, operation| {
        items(operation).for_each(|parameter| parameters.count(parameter));
        fields(operation).for_each(|(_, response)| responses.count(response));
    });
    each_operation(document, &mut |section, operation| {
        for parameter in items(operation) {
            let name = text(&parameter["name"]).to_owned();
            parameters.replace(parameter, &name);
        }
        for (status, response) in fields(operation) {
            if let Some(name) = response_name(section, status, response) {
                responses.replace(response, &name);
            }
        }
    });
    for shared in [parameters, responses] {
        document["components"][shared.kind] = Value::Object(shared.components);
    }
}

/// The component that a reference leads to; a value without a reference is itself.
pub fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let target = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    target.and_then(|pointer| document.pointer(pointer)).unwrap_or(value)
}

/// The components of one kind.
struct Shared {
    kind: &'static str,
    /// How often each value occurs, by its text.
    uses: BTreeMap<String, usize>,
    components: Map<String, Value>,
}

impl Shared {
    fn new(kind: &'static str) -> Self {
        Self { kind, uses: BTreeMap::new(), components: Map::new() }
    }

    fn count(&mut self, value: &Value) {
        *self.uses.entry(value.to_string()).or_default() += 1;
    }

    /// Replaces a value that occurs more than once by a reference. Different values of one name are numbered.
    fn replace(&mut self, value: &mut Value, name: &str) {
        if self.uses.get(&value.to_string()).is_none_or(|uses| *uses < 2) {
            return;
        }
        let numbered = (2..).map(|n| format!("{name}-{n}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let free = |name: &String| self.components.get(name).is_none_or(|known| known == value);
        let Some(name) = names.find(free) else { return };
        let reference = json!({"$ref": format!("#/components/{}/{name}", self.kind)});
        self.components.insert(name, std::mem::replace(value, reference));
    }
}

/// Errors are named by their codes, webhook responses by their status; other responses are an
/// operation's own.
fn response_name(section: &str, status: &str, response: &Value) -> Option<String> {
    if section == "webhooks" {
        return Some(format!("Webhook.{status}"));
    }
    let codes: Vec<&str> = text(&response["description"]).split(", ").collect();
    let known = |name: &&str| Code::ALL.iter().any(|code| code.as_str() == *name);
    // Without a key no rate limit is reported.
    let open = if response["headers"]["RateLimit"].is_null() { "Open." } else { "" };
    codes.iter().all(known).then(|| format!("{open}{}", codes.join(".")))
}

fn each_operation(document: &mut Value, take: &mut dyn FnMut(&str, &mut Value)) {
    for section in ["paths", "webhooks"] {
        let entries = document[section].as_object_mut().into_iter().flat_map(Map::values_mut);
        for operation in entries.filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
            take(section, operation);
        }
    }
}

fn items(operation: &mut Value) -> impl Iterator<Item = &mut Value> {
    operation["parameters"].as_array_mut().into_iter().flatten()
}

fn fields(operation: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    operation["responses"].as_object_mut().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
