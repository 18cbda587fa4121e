//! The published schemas' rules for the exchanged messages, and a check of a document against them. Pure.
//!
//! A message's rules are a committed text: one element a line, indented under its parent, in the schema's order, with
//! its cardinality (`1`, `?`, `*`, `+`, or `?n` for at most n) and its type. `choice` means exactly one of the
//! children. `skip` is content that the schema permits and that is not checked. An element without a line is unknown,
//! which the schema forbids.

use dvp_domain::currency::{self, is_bic};

use super::text::{boolean, date, date_time, decimal, iban};
use super::xml::{Document, Node};

const PAIN_001: &str = include_str!("pain.001.001.09.rules");
const PAIN_002: &str = include_str!("pain.002.001.10.rules");
const CAMT_029: &str = include_str!("camt.029.001.09.rules");
const CAMT_052: &str = include_str!("camt.052.001.08.rules");
const CAMT_053: &str = include_str!("camt.053.001.08.rules");
const CAMT_054: &str = include_str!("camt.054.001.08.rules");
const CAMT_056: &str = include_str!("camt.056.001.08.rules");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Customer credit transfer initiation.
    Pain001,
    /// Customer payment status report.
    Pain002,
    /// Resolution of investigation: the answer to a recall.
    Camt029,
    /// Account report: a statement of the day so far.
    Camt052,
    /// Bank to customer statement.
    Camt053,
    /// Debit and credit notification.
    Camt054,
    /// Payment cancellation request: a recall.
    Camt056,
}

impl Message {
    pub const ALL: [Self; 7] = [
        Self::Pain001,
        Self::Pain002,
        Self::Camt029,
        Self::Camt052,
        Self::Camt053,
        Self::Camt054,
        Self::Camt056,
    ];

    /// Its name, with the version in which it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pain001 => "pain.001.001.09",
            Self::Pain002 => "pain.002.001.10",
            Self::Camt029 => "camt.029.001.09",
            Self::Camt052 => "camt.052.001.08",
            Self::Camt053 => "camt.053.001.08",
            Self::Camt054 => "camt.054.001.08",
            Self::Camt056 => "camt.056.001.08",
        }
    }

    pub fn namespace(self) -> String {
        format!("urn:iso:std:iso:20022:tech:xsd:{}", self.name())
    }

    pub fn document(self, name: &str, children: impl IntoIterator<Item = Node>) -> Document {
        Document { namespace: self.namespace(), root: Node::of(&format!("Document/{name}"), children) }
    }

    const fn rules(self) -> &'static str {
        match self {
            Self::Pain001 => PAIN_001,
            Self::Pain002 => PAIN_002,
            Self::Camt029 => CAMT_029,
            Self::Camt052 => CAMT_052,
            Self::Camt053 => CAMT_053,
            Self::Camt054 => CAMT_054,
            Self::Camt056 => CAMT_056,
        }
    }

    /// The rule of the root, and with it all the others.
    fn rule(self) -> Option<Rule> {
        let mut lines = self.rules().lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        siblings(&mut lines.by_ref().peekable(), 0).into_iter().next()
    }

    /// The message that a document is, in whatever version, and the version.
    pub fn of(document: &Document) -> Option<(Self, u8)> {
        let (message, version) = document.namespace.rsplit(':').next()?.rsplit_once('.')?;
        let version = version.parse().ok().filter(|_| version.len() == 2)?;
        let of = |one: &Self| one.name().rsplit_once('.').is_some_and(|(name, _)| name == message);
        Some((Self::ALL.into_iter().find(of)?, version))
    }

    /// The version whose rules are known.
    pub fn version(self) -> u8 {
        self.name().rsplit_once('.').and_then(|(_, version)| version.parse().ok()).unwrap_or_default()
    }
}

/// A rule that a document breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `Document/CstmrCdtTrfInitn/…`
    pub path: String,
    pub what: String,
}

#[derive(Debug)]
struct Rule {
    name: &'static str,
    least: usize,
    most: usize,
    kind: &'static str,
    children: Vec<Rule>,
}

/// The rules broken by a document of a message, in the document's order.
pub fn check(message: Message, document: &Document) -> Vec<Violation> {
    let mut found = Vec::new();
    if document.namespace != message.namespace() {
        found.push(Violation { path: String::new(), what: format!("namespace {}", document.namespace) });
        return found;
    }
    match message.rule().filter(|rule| rule.name == document.root.name) {
        Some(rule) => check_node(&rule, &document.root, rule.name, &mut found),
        None => found.push(Violation { path: document.root.name.clone(), what: "unknown element".into() }),
    }
    found
}

/// The elements of a document that its message does not have, by the rules of the known version.
pub fn unknown_elements(message: Message, document: &Document) -> Vec<(String, &Node)> {
    fn walk<'a>(rule: &Rule, node: &'a Node, path: &str, found: &mut Vec<(String, &'a Node)>) {
        if rule.kind == "skip" || rule.children.is_empty() {
            return;
        }
        for child in &node.children {
            let path = format!("{path}/{}", child.name);
            match rule.children.iter().find(|rule| rule.name == child.name) {
                Some(rule) => walk(rule, child, &path, found),
                None => found.push((path, child)),
            }
        }
    }
    let mut found = Vec::new();
    if let Some(rule) = message.rule() {
        walk(&rule, &document.root, rule.name, &mut found);
    }
    found
}

type Lines<'a, I> = std::iter::Peekable<&'a mut I>;

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn siblings<I: Iterator<Item = &'static str>>(lines: &mut Lines<'_, I>, depth: usize) -> Vec<Rule> {
    let mut rules = Vec::new();
    while lines.peek().is_some_and(|line| indent(line) == depth) {
        let Some(line) = lines.next() else { break };
        let mut words = line.split_whitespace();
        let (name, occurs) = (words.next().unwrap_or_default(), words.next().unwrap_or("1"));
        let (least, most) = match occurs {
            "1" => (1, 1),
            "?" => (0, 1),
            "*" => (0, usize::MAX),
            "+" => (1, usize::MAX),
            other => (0, other.trim_start_matches('?').parse().unwrap_or(1)),
        };
        let kind = words.next().unwrap_or("");
        let deeper = lines.peek().map_or(0, |line| indent(line));
        let children = if deeper > depth { siblings(lines, deeper) } else { Vec::new() };
        rules.push(Rule { name, least, most, kind, children });
    }
    rules
}

fn check_node(rule: &Rule, node: &Node, path: &str, found: &mut Vec<Violation>) {
    let mut broken = |what: String| found.push(Violation { path: path.to_owned(), what });
    if rule.kind == "skip" {
        return;
    }
    if rule.children.is_empty() {
        if !node.children.is_empty() {
            broken("children where text belongs".into());
        } else if let Err(what) = check_text(rule.kind, node) {
            broken(what);
        }
        return;
    }
    if !node.text.trim().is_empty() {
        broken("text between elements".into());
    }
    let mut next = 0;
    for child in &node.children {
        let Some(n) = rule.children.iter().position(|rule| rule.name == child.name) else {
            broken(format!("unknown element {}", child.name));
            continue;
        };
        if n < next && rule.kind != "choice" {
            broken(format!("{} is out of order", child.name));
        }
        next = next.max(n);
    }
    if rule.kind == "choice" && node.children.len() != 1 {
        broken(format!("{} of exactly one choice", node.children.len()));
    }
    for known in &rule.children {
        let count = node.all(known.name).count();
        if count > known.most || (rule.kind != "choice" && count < known.least) {
            broken(format!("{} occurs {count} times", known.name));
        }
    }
    for child in &node.children {
        if let Some(known) = rule.children.iter().find(|rule| rule.name == child.name) {
            check_node(known, child, &format!("{path}/{}", child.name), found);
        }
    }
}

/// The text of an element without children.
fn check_text(kind: &str, node: &Node) -> Result<(), String> {
    let text = node.text.as_str();
    let length = text.chars().count();
    let fits = match kind {
        "date" => date(text).is_some(),
        "datetime" => date_time(text).is_some(),
        "bool" => boolean(text).is_some(),
        "count" => (1..=15).contains(&length) && text.chars().all(|c| c.is_ascii_digit()),
        "decimal" => is_decimal(text, 18, 17),
        "money" => return check_money(node),
        "iban" => iban(text).is_some_and(|compact| compact == text),
        "bic" => is_bic(text),
        "country" => length == 2 && text.chars().all(|c| c.is_ascii_uppercase()),
        "currency" => length == 3 && text.chars().all(|c| c.is_ascii_uppercase()),
        "uuid4" => is_uuid4(text),
        _ => {
            if let Some(most) = kind.strip_prefix("text").and_then(|most| most.parse().ok()) {
                (1..=most).contains(&length) && !text.chars().any(is_refused)
            } else {
                kind.split('|').any(|word| word == text)
            }
        }
    };
    if fits { Ok(()) } else { Err(format!("{text:?} is no {kind}")) }
}

/// An amount with its currency: at most eighteen digits, five of them after the point, and no more of them than the
/// currency has (ISO 4217).
fn check_money(node: &Node) -> Result<(), String> {
    let text = node.text.as_str();
    let Some(currency) = node.attribute("Ccy") else { return Err("an amount without its currency".into()) };
    if currency.len() != 3 || !currency.chars().all(|c| c.is_ascii_uppercase()) {
        return Err(format!("{currency:?} is no currency"));
    }
    if !is_decimal(text, 18, usize::from(exponent(currency).min(5))) {
        return Err(format!("{text:?} is no amount of {currency}"));
    }
    Ok(())
}

/// The number of decimals of a currency (ISO 4217); of one that is not in the list, two.
pub fn exponent(currency: &str) -> u8 {
    currency::exponent(currency).unwrap_or(2)
}

/// A number that is not negative, of so many digits and so many of them behind the point.
fn is_decimal(text: &str, digits_most: usize, places_most: usize) -> bool {
    decimal(text).is_some_and(|number| {
        let (whole, places) = number.split_once('.').unwrap_or((&number, ""));
        !number.starts_with('-')
            && places.len() <= places_most
            && whole.trim_start_matches('0').len() + places.len() <= digits_most
    })
}

/// What no text may hold: all control characters but those that break lines.
fn is_refused(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\t' | '\n' | '\r')
}

fn is_uuid4(text: &str) -> bool {
    text.len() == 36
        && text.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c))
        && text.parse::<uuid::Uuid>().is_ok_and(|uuid| uuid.get_version_num() == 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_every_message_are_parsed_completely() {
        for message in Message::ALL {
            let lines =
                message.rules().lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
            let total = lines.clone().count();
            let mut lines = lines;
            let mut lines = lines.by_ref().peekable();
            let rules = siblings(&mut lines, 0);
            fn count(rules: &[Rule]) -> usize {
                rules.iter().map(|rule| 1 + count(&rule.children)).sum()
            }
            assert_eq!(count(&rules), total, "{}", message.name());
            assert_eq!(rules.len(), 1);
        }
    }
}
