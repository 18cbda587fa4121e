//! The OpenAPI document as a page to read. Made here, so that there are no fonts and nothing from anybody else's server. A
//! sandbox's page has a script, this one's own, and a form for each operation that tries it.

use std::fmt::Write as _;

use serde_json::Value;

use super::resolve;
use crate::http::error::Code;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
    color:#1b1b1b;background:#fff}code,pre,td:first-child{font-family:ui-monospace,monospace;font-size:.9em}\
    h2{margin-top:3rem;border-bottom:1px solid #ccc}h3 b{display:inline-block;min-width:4.5rem;color:#0b5}\
    table{border-collapse:collapse;width:100%}td,th{border:1px solid #ddd;padding:.25rem .5rem;text-align:left;\
    vertical-align:top}pre{background:#f6f6f6;padding:.75rem;overflow:auto}summary{cursor:pointer}\
    @media(prefers-color-scheme:dark){body{color:#ddd;background:#111}pre{background:#1c1c1c}td,th{border-color:#333}}";

/// What a page's forms do.
pub(crate) const SCRIPT: &str = include_str!("try.js");

/// Writing to a `String` cannot fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => { let _ = write!($out, $($text)*); };
}

fn head(title: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{title}</title><style>{STYLE}</style>"
    )
}

/// `has_forms`: operations can be tried.
pub(crate) fn page(document: &Value, has_forms: bool) -> String {
    let title = escaped(text(&document["info"]["title"]));
    let mut out = head(&format!("{title} API"));
    put!(out, "<h1>{title} API</h1>");
    put!(out, "<p>{}</p>", prose(text(&document["info"]["description"])));
    put!(out, "<p>The same for programs: <a href='/v1/openapi.json'>/v1/openapi.json</a></p>");
    if has_forms {
        out.push_str(
            "<h2 id=try>Your key</h2><p>For the forms below; it stays in this page. A sandbox's is in its \
             <code>sandbox.json</code>.</p><p><label>X-API-Key <input id=try-key size=60></label></p>\
             <p><label>Signing secret <input id=try-secret size=60></label></p>",
        );
    }
    for tag in items(&document["tags"]) {
        let name = text(&tag["name"]);
        put!(out, "<h2 id='{0}'>{0}</h2><p>{1}</p>", escaped(name), prose(text(&tag["description"])));
        for (path, methods) in fields(&document["paths"]) {
            for (method, operation) in fields(methods) {
                if operation["tags"][0] == name {
                    operation_to(&mut out, document, path, method, operation);
                    // A stream has no end to wait for.
                    if has_forms && operation.pointer("/responses/200/content/text~1event-stream").is_none() {
                        form_to(&mut out, document, path, method, operation);
                    }
                }
            }
        }
    }
    put!(
        out,
        "<h2 id=sent>Events sent to you</h2><p>Each is a POST to the endpoint that subscribes to its type.</p>"
    );
    put!(out, "<table><tr><th>type<th>body");
    for (kind, sent) in fields(&document["webhooks"]) {
        let schema = sent.pointer("/post/requestBody/content/application~1json/schema");
        let schema = schema.map(|schema| schema.pointer("/allOf/0").unwrap_or(schema)).map(named);
        put!(out, "<tr><td>{}<td>{}", escaped(kind), schema.unwrap_or_default());
    }
    put!(out, "</table>");
    put!(out, "<h2 id=errors>Errors</h2>");
    for code in Code::ALL {
        error_to(&mut out, *code);
    }
    put!(out, "<h2 id=schemas>Schemas</h2>");
    for (name, schema) in fields(&document["components"]["schemas"]) {
        let body = serde_json::to_string_pretty(schema).unwrap_or_default();
        put!(out, "<h3 id='schema-{0}'>{0}</h3><pre>{1}</pre>", escaped(name), escaped(&body));
    }
    if has_forms {
        put!(out, "<script>{SCRIPT}</script>");
    }
    out
}

/// An operation's form: its parameters, and its body as the example has it.
fn form_to(out: &mut String, document: &Value, path: &str, method: &str, operation: &Value) {
    let parameters: Vec<&Value> =
        items(&operation["parameters"]).map(|parameter| resolve(document, parameter)).collect();
    let takes = |header: &str| parameters.iter().any(|parameter| parameter["name"] == header);
    let security = items(&operation["security"]).next();
    let is_signed = security.is_some_and(|schemes| schemes.get("signature").is_some());
    put!(
        out,
        "<details><summary>Try it</summary><form data-method={} data-path='{}'",
        method.to_uppercase(),
        escaped(path)
    );
    put!(out, "{}", if takes("X-Idempotency-Key") { " data-idempotency=yes" } else { "" });
    put!(out, "{}>", if is_signed { " data-signed=yes" } else { "" });
    for parameter in parameters {
        let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
        if matches!(place, "path" | "query") {
            let required = if parameter["required"] == true { " required" } else { "" };
            let name = escaped(name);
            put!(out, "<p><label>{name} <input name='{name}' data-in={place}{required}></label></p>");
        }
    }
    if let Some(example) = request_example(operation) {
        let body = serde_json::to_string_pretty(example).unwrap_or_default();
        put!(
            out,
            "<p><label>Body<br><textarea name=body rows=16 cols=90>{}</textarea></label></p>",
            escaped(&body)
        );
    }
    put!(out, "<p><button>Send</button></p><pre><output></output></pre></form></details>");
}

/// The first example of a body.
fn example(content: &Value) -> Option<&Value> {
    let first = || fields(&content["examples"]).next().map(|(_, one)| &one["value"]);
    content.get("example").or_else(first)
}

fn request_example(operation: &Value) -> Option<&Value> {
    operation.pointer("/requestBody/content/application~1json").and_then(example)
}

fn operation_to(out: &mut String, document: &Value, path: &str, method: &str, operation: &Value) {
    let id = escaped(text(&operation["operationId"]));
    put!(out, "<h3 id='{id}'><b>{}</b> <code>{}</code></h3>", method.to_uppercase(), escaped(path));
    put!(out, "<p>{}. {}</p>", prose(text(&operation["summary"])), prose(text(&operation["description"])));
    put!(out, "<details><summary>Parameters</summary><table><tr><th>name<th>in<th>required<th>");
    for parameter in items(&operation["parameters"]).map(|parameter| resolve(document, parameter)) {
        let required = if parameter["required"] == true { "yes" } else { "no" };
        let (name, place) = (escaped(text(&parameter["name"])), escaped(text(&parameter["in"])));
        let says = prose(text(&parameter["description"]));
        put!(out, "<tr><td>{name}<td>{place}<td>{required}<td>{says}");
    }
    put!(out, "</table></details>");
    if let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema") {
        put!(out, "<p>Body: {}</p>", named(schema));
    }
    example_to(out, "Example of a body", request_example(operation));
    let successful = fields(&operation["responses"]).find(|(status, _)| status.starts_with('2'));
    let answered = successful.and_then(|(_, response)| {
        resolve(document, response).pointer("/content/application~1json").and_then(example)
    });
    example_to(out, "Example of an answer", answered);
    put!(out, "<table><tr><th>status<th>answer<th>body");
    for (status, response) in fields(&operation["responses"]) {
        let response = resolve(document, response);
        let schema = response.pointer("/content/application~1json/schema").map(named).unwrap_or_default();
        put!(out, "<tr><td>{status}<td>{}<td>{schema}", answer(text(&response["description"])));
    }
    put!(out, "</table>");
}

fn example_to(out: &mut String, title: &str, example: Option<&Value>) {
    if let Some(example) = example {
        let text = serde_json::to_string_pretty(example).unwrap_or_default();
        put!(out, "<details><summary>{title}</summary><pre>{}</pre></details>", escaped(&text));
    }
}

/// One code's page.
pub(crate) fn error_page(code: Code) -> String {
    let mut out = head(code.as_str());
    error_to(&mut out, code);
    put!(out, "<p><a href='/docs'>All of the API</a></p>");
    out
}

/// What is said about an error code: paragraphs under headings, of which the first is the code.
fn error_to(out: &mut String, code: Code) {
    put!(out, "<h3 id='error-{0}'><code>{0}</code></h3>", code.as_str());
    for paragraph in code.page().split("\n\n").skip(1) {
        let (tag, text) = match paragraph.trim().strip_prefix("## ") {
            Some(heading) => ("h4", heading),
            None => ("p", paragraph.trim()),
        };
        put!(out, "<{tag}>{}</{tag}>", prose(text));
    }
}

/// The description of an answer; codes link to their pages.
fn answer(description: &str) -> String {
    let linked = |part: &str| match Code::ALL.iter().find(|code| code.as_str() == part) {
        Some(_) => format!("<a href='#error-{0}'>{0}</a>", escaped(part)),
        None => prose(part),
    };
    description.split(", ").map(linked).collect::<Vec<_>>().join(", ")
}

/// A link to a component, or the schema itself.
fn named(schema: &Value) -> String {
    let link = |name: &str| format!("<a href='#schema-{0}'>{0}</a>", escaped(name));
    match text(&schema["$ref"]).rsplit_once('/') {
        Some((_, name)) => link(name),
        None => match schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            Some(several) => several.iter().map(named).collect::<Vec<_>>().join(" or "),
            None => "error".to_owned(),
        },
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Text with code between backticks.
fn prose(text: &str) -> String {
    let mut out = String::new();
    for (n, part) in escaped(text).split('`').enumerate() {
        if n % 2 == 1 {
            put!(out, "<code>{part}</code>");
        } else {
            out.push_str(part);
        }
    }
    out
}
