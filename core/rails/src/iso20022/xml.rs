//! The subset of XML that ISO 20022 uses: elements with text or children, no custom entities, no document type. Pure.
//!
//! Invariant: input is limited in size, depth and number of elements before it is interpreted.

use quick_xml::NsReader;
use quick_xml::XmlVersion;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;

/// A larger file is not an answer to an order.
pub const BYTES_MAX: usize = 16 * 1024 * 1024;
const DEPTH_MAX: usize = 40;
const ELEMENTS_MAX: usize = 500_000;

/// An element: its local name, attributes, and either text or children. White space in a text that was read is one space,
/// which is the value of every type but a plain text: and there a bank breaks lines at will.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    pub text: String,
    pub children: Vec<Node>,
}

/// A document: the namespace of its root, and the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub namespace: String,
    pub root: Node,
}

/// Why the text is not XML of this subset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not readable as XML: {0}")]
pub struct Unreadable(pub String);

impl Node {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// An element with text at a path, as `A/B/C`.
    pub fn leaf(path: &str, text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }.at_end_of(path)
    }

    /// An element with children at a path.
    pub fn of(path: &str, children: impl IntoIterator<Item = Self>) -> Self {
        Self { children: children.into_iter().collect(), ..Self::default() }.at_end_of(path)
    }

    fn at_end_of(mut self, path: &str) -> Self {
        let mut names = path.rsplit('/');
        names.next().unwrap_or_default().clone_into(&mut self.name);
        names.fold(self, |child, name| Self { children: vec![child], ..Self::new(name) })
    }

    #[must_use]
    pub fn with_attribute(mut self, name: &str, value: &str) -> Self {
        self.attributes.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first child of a name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// All children of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The element at a path of first children, as `A/B/C`.
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('/').try_fold(self, |node, name| node.child(name))
    }

    /// Its text.
    pub fn text_at(&self, path: &str) -> Option<&str> {
        self.at(path).map(|node| node.text.as_str())
    }

    fn write(&self, out: &mut String, indent: usize) {
        let pad = "  ".repeat(indent);
        out.push_str(&format!("{pad}<{}", self.name));
        for (name, value) in &self.attributes {
            out.push_str(&format!(" {name}=\"{}\"", escape(value.as_str())));
        }
        if self.children.is_empty() {
            out.push_str(&format!(">{}</{}>\n", escape(self.text.as_str()), self.name));
            return;
        }
        out.push_str(">\n");
        for child in &self.children {
            child.write(out, indent + 1);
        }
        out.push_str(&format!("{pad}</{}>\n", self.name));
    }
}

impl Document {
    /// The document as UTF-8 text.
    pub fn render(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        self.root.clone().with_attribute("xmlns", &self.namespace).write(&mut out, 0);
        out
    }

    /// Parses a document. Prefixes are dropped from names, and what is of another namespace than the root is passed
    /// over: the standard leaves room for it.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let refuse = |why: &str| Err(Unreadable(why.to_owned()));
        if bytes.len() > BYTES_MAX {
            return refuse("too large");
        }
        let Ok(text) = std::str::from_utf8(bytes) else { return refuse("not UTF-8") };
        let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
        let wrong = |error: quick_xml::Error| Unreadable(error.to_string());
        let mut namespace: Option<String> = None;
        let mut open: Vec<Node> = Vec::new();
        let mut root = None;
        let mut elements = 0;
        loop {
            let (resolved, event) = reader.read_resolved_event().map_err(wrong)?;
            match event {
                Event::Start(start) | Event::Empty(start) if root.is_some() => {
                    return refuse(&format!("{} after the document's end", start.local_name().into_inner()));
                }
                Event::Start(ref start) | Event::Empty(ref start) => {
                    elements += 1;
                    if open.len() >= DEPTH_MAX || elements > ELEMENTS_MAX {
                        return refuse("too deep or too many elements");
                    }
                    let bound = match resolved {
                        ResolveResult::Bound(bound) => Some(bound.into_inner()),
                        ResolveResult::Unbound => None,
                        ResolveResult::Unknown(_) => return refuse("a prefix without a namespace"),
                    };
                    let is_empty = matches!(event, Event::Empty(_));
                    match (bound, &namespace) {
                        (bound, Some(known)) if bound != Some(known) => {
                            if !is_empty {
                                reader.read_to_end(start.name()).map_err(wrong)?;
                            }
                            continue;
                        }
                        (Some(bound), None) => namespace = Some(bound.to_owned()),
                        (None, None) => return refuse("an element of no namespace"),
                        (_, Some(_)) => {}
                    }
                    let node = element(start)?;
                    if is_empty {
                        close(&mut open, &mut root, node);
                    } else {
                        open.push(node);
                    }
                }
                Event::End(_) => {
                    if let Some(node) = open.pop() {
                        close(&mut open, &mut root, node);
                    }
                }
                Event::Text(text) => add_text(&mut open, &text.xml10_content())?,
                Event::CData(text) => add_text(&mut open, &text.xml10_content())?,
                Event::GeneralRef(name) => {
                    let resolved =
                        match name.resolve_char_ref().map_err(|error| Unreadable(error.to_string()))? {
                            Some(letter) => Some(letter.to_string()),
                            None => resolve_predefined_entity(&name.xml10_content()).map(str::to_owned),
                        };
                    let Some(resolved) = resolved else { return refuse("an entity of its own") };
                    add_text(&mut open, &resolved)?;
                }
                Event::DocType(_) => return refuse("a document type"),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
                Event::Eof => break,
            }
        }
        match (root, namespace, open.is_empty()) {
            (Some(root), Some(namespace), true) => Ok(Self { namespace, root }),
            _ => refuse("the document has no end"),
        }
    }
}

fn element(start: &BytesStart<'_>) -> Result<Node, Unreadable> {
    let mut node = Node::new(start.local_name().into_inner());
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| Unreadable(error.to_string()))?;
        let name = attribute.key.into_inner();
        if name.starts_with("xmlns") || name.contains(':') {
            continue;
        }
        let value = attribute.normalized_value(XmlVersion::Explicit1_0);
        let value = value.map_err(|error| Unreadable(error.to_string()))?;
        node.attributes.push((name.to_owned(), value.into_owned()));
    }
    Ok(node)
}

fn close(open: &mut [Node], root: &mut Option<Node>, mut node: Node) {
    let words = node.text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty());
    node.text = words.collect::<Vec<_>>().join(" ");
    match open.last_mut() {
        Some(parent) => parent.children.push(node),
        None => *root = Some(node),
    }
}

fn add_text(open: &mut [Node], text: &str) -> Result<(), Unreadable> {
    match open.last_mut() {
        Some(node) => node.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return Err(Unreadable("text outside the document".to_owned())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_document_is_read_back_with_every_character() {
        let text = "a < b & \"c\" 'd' > é\u{1f600}";
        let root = Node::of("Document", [Node::leaf("Nm", text).with_attribute("Ccy", "a\"&<")]);
        let document = Document { namespace: "urn:x".into(), root };
        let again = Document::read(document.render().as_bytes()).unwrap();
        assert_eq!(again.root.text_at("Nm"), Some(text));
        assert_eq!(again.root.child("Nm").unwrap().attribute("Ccy"), Some("a\"&<"));
        assert_eq!(again.namespace, "urn:x");
    }

    #[test]
    fn prefixes_only_name_the_namespace() {
        let text = b"<n:Document xmlns:n='urn:x'><n:A><n:B/></n:A></n:Document>";
        let document = Document::read(text).unwrap();
        assert!(document.namespace == "urn:x" && document.root.at("A/B").is_some());
    }

    #[test]
    fn other_xml_is_refused() {
        let deep = format!("<D xmlns='urn:x'>{}", "<a>".repeat(50));
        for bad in [
            "",
            "garbage",
            "<D xmlns='urn:x'><A></D>",
            "<D xmlns='urn:x'><A>",
            "<D><A/></D>",
            "<!DOCTYPE D [<!ENTITY e 'x'>]><D xmlns='urn:x'>&e;</D>",
            "<D xmlns='urn:x'>&e;</D>",
            "<D xmlns='urn:x'><p:A/></D>",
            "<D xmlns='urn:x'/><D xmlns='urn:x'/>",
            "x<D xmlns='urn:x'/>",
            deep.as_str(),
        ] {
            assert!(Document::read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Document::read(&[0xff, 0xfe, 0x3c]).is_err());
    }
}
