//! The subset of XML that ISO 20022 uses: elements with text or children, no custom entities, no document type. Pure.
//!
//! Invariant: input is limited in size, depth and number of elements before it is interpreted.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use quick_xml::NsReader;
use quick_xml::XmlVersion;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::ResolveResult;

/// A larger file is not an answer to an order.
pub const BYTES_MAX: usize = 16 * 1024 * 1024;
const DEPTH_MAX: usize = 40;
const ELEMENTS_MAX: usize = 500_000;
/// The root of every message.
const DOCUMENT: &str = "Document";
/// The beginning of a file of Alliance Access, and its length.
const PDU_MARK: u8 = 0x1f;
const PDU_HEAD: usize = 31;

/// An element: its local name, attributes, and either text or children. White space in a text that was read is one space,
/// which is the value of every type but a plain text: and there a bank breaks lines at will.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    pub text: String,
    pub children: Vec<Node>,
    pub span: Span,
}

/// Where an element stands in the text of its file, in bytes. It is no part of what the element says.
#[derive(Debug, Clone, Copy, Default, Eq)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A document: the namespace of its root, and the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub namespace: String,
    pub root: Node,
}

/// Why the text is not XML of this subset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not readable: {0}")]
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

    /// The element at a path, if each of its steps is given once at most.
    pub(super) fn sole<'a>(&'a self, path: &'a str) -> Result<Option<&'a Self>, String> {
        let mut node = self;
        for name in path.split('/') {
            let mut found = node.all(name);
            match (found.next(), found.next()) {
                (Some(one), None) => node = one,
                (Some(_), Some(_)) => return Err(format!("{name} is given more than once")),
                (None, _) => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// Its text, if it has one.
    pub(super) fn sole_text<'a>(&'a self, path: &'a str) -> Result<Option<&'a str>, String> {
        Ok(self.sole(path)?.map(|node| node.text.as_str()).filter(|text| !text.is_empty()))
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

    /// Parses the document of a file, alone or in an envelope. Prefixes are dropped from names, and what is of another
    /// namespace than the document is passed over: the standard leaves room for it.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let refuse = |why: &str| Err(Unreadable(why.to_owned()));
        if bytes.len() > BYTES_MAX {
            return refuse("too large");
        }
        let text = decode(bytes)?;
        let mut reader = NsReader::from_str(&text);
        let wrong = |error: quick_xml::Error| Unreadable(error.to_string());
        let mut namespace: Option<String> = None;
        let mut open: Vec<Node> = Vec::new();
        let mut root = None;
        // Elements of the envelope that are open, and whether the outermost one has ended.
        let (mut around, mut has_ended) = (0_usize, false);
        let mut elements = 0;
        loop {
            let start_at = position(&reader);
            let (resolved, event) = reader.read_resolved_event().map_err(wrong)?;
            match event {
                Event::Start(start) | Event::Empty(start) if has_ended => {
                    return refuse(&format!("{} after the document's end", start.local_name().into_inner()));
                }
                Event::Start(ref start) | Event::Empty(ref start) => {
                    elements += 1;
                    if open.len() + around >= DEPTH_MAX || elements > ELEMENTS_MAX {
                        return refuse("too deep or too many elements");
                    }
                    let bound = match resolved {
                        ResolveResult::Bound(bound) => Some(bound.into_inner()),
                        ResolveResult::Unbound => None,
                        ResolveResult::Unknown(_) => return refuse("a prefix without a namespace"),
                    };
                    let is_empty = matches!(event, Event::Empty(_));
                    if open.is_empty() {
                        match bound.filter(|_| start.local_name().into_inner() == DOCUMENT) {
                            Some(_) if root.is_some() => return refuse("several messages in one file"),
                            Some(bound) => namespace = Some(bound.to_owned()),
                            None => {
                                around += usize::from(!is_empty);
                                has_ended = is_empty && around == 0;
                                continue;
                            }
                        }
                    } else if bound != namespace.as_deref() {
                        if !is_empty {
                            reader.read_to_end(start.name()).map_err(wrong)?;
                        }
                        continue;
                    }
                    open.push(element(start, start_at)?);
                    if is_empty {
                        close(&mut open, &mut root, position(&reader));
                        has_ended = open.is_empty() && around == 0;
                    }
                }
                Event::End(_) => {
                    if open.is_empty() {
                        around = around.saturating_sub(1);
                    }
                    close(&mut open, &mut root, position(&reader));
                    has_ended = open.is_empty() && around == 0;
                }
                Event::Text(text) => add_text(&mut open, around, &text.xml10_content())?,
                Event::CData(text) => add_text(&mut open, around, &text.xml10_content())?,
                Event::GeneralRef(name) => {
                    let resolved =
                        match name.resolve_char_ref().map_err(|error| Unreadable(error.to_string()))? {
                            Some(letter) => Some(letter.to_string()),
                            None => resolve_predefined_entity(&name.xml10_content()).map(str::to_owned),
                        };
                    let Some(resolved) = resolved else { return refuse("an entity of its own") };
                    add_text(&mut open, around, &resolved)?;
                }
                Event::DocType(_) => return refuse("a document type"),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
                Event::Eof => break,
            }
        }
        match (root, namespace) {
            (Some(root), Some(namespace)) if has_ended => Ok(Self { namespace, root }),
            (None, None) if has_ended => refuse("no ISO 20022 message"),
            _ => refuse("the document has no end"),
        }
    }
}

/// The text of a file, in the encoding of its byte order mark, or else the one that its prolog declares, or else UTF-8.
pub(super) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, Unreadable> {
    let bytes = match bytes {
        // A file of SWIFT's Alliance Access: a mark, a length of six digits, and a signature of 24 characters.
        [PDU_MARK, ..] => bytes.get(PDU_HEAD..).unwrap_or_default(),
        _ => bytes,
    };
    let encoding = match (Encoding::for_bom(bytes), bytes) {
        (Some((encoding, _)), _) => encoding,
        (None, [b'<', 0, ..]) => UTF_16LE,
        (None, [0, b'<', ..]) => UTF_16BE,
        (None, _) => declared(bytes)?,
    };
    let (_, start) = Encoding::for_bom(bytes).unwrap_or((encoding, 0));
    let text =
        encoding.decode_without_bom_handling_and_without_replacement(bytes.get(start..).unwrap_or_default());
    text.ok_or_else(|| Unreadable(format!("not {}", encoding.name())))
}

/// The encoding that a prolog declares, whose letters are those of ASCII.
fn declared(bytes: &[u8]) -> Result<&'static Encoding, Unreadable> {
    let head = bytes.trim_ascii_start();
    let prolog = head.strip_prefix(b"<?xml").and_then(|rest| rest.split(|byte| *byte == b'>').next());
    let prolog = String::from_utf8_lossy(prolog.unwrap_or_default());
    let Some((_, value)) = prolog.split_once("encoding") else { return Ok(UTF_8) };
    let label = value.trim_start_matches(|c: char| c == '=' || c.is_whitespace());
    let label = label.split(['"', '\'']).nth(1).unwrap_or_default();
    let known = Encoding::for_label(label.as_bytes());
    let known = known.ok_or_else(|| Unreadable(format!("the encoding {label} is not known")))?;
    // The prolog itself is in none of UTF-16: programs that write to a text in memory declare it.
    Ok(if known == UTF_16LE || known == UTF_16BE { UTF_8 } else { known })
}

/// The bytes that were read.
fn position(reader: &NsReader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

fn element(start: &BytesStart<'_>, at: usize) -> Result<Node, Unreadable> {
    let mut node = Node::new(start.local_name().into_inner());
    node.span.start = at;
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

/// Ends the innermost open element, whose last byte is before `at`.
fn close(open: &mut Vec<Node>, root: &mut Option<Node>, at: usize) {
    let Some(mut node) = open.pop() else { return };
    node.span.end = at;
    let words = node.text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty());
    node.text = words.collect::<Vec<_>>().join(" ");
    match open.last_mut() {
        Some(parent) => parent.children.push(node),
        None => *root = Some(node),
    }
}

/// `around`: the number of an envelope's elements that are open. Their text is no part of the document.
fn add_text(open: &mut [Node], around: usize, text: &str) -> Result<(), Unreadable> {
    match open.last_mut() {
        Some(node) => node.text.push_str(text),
        None if around > 0 || text.trim().is_empty() => {}
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

    const PLAIN: &str = "<Document xmlns='urn:x'><Nm>\u{e9}</Nm></Document>";

    #[test]
    fn a_document_is_read_in_the_encoding_that_it_declares() {
        let declared = |encoding: &str| format!("<?xml version='1.0' encoding='{encoding}'?>{PLAIN}");
        let of_bytes =
            |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<u8>>();
        let utf16 =
            |text: &str, bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        for (name, content) in [
            ("nothing is declared", PLAIN.as_bytes().to_vec()),
            ("UTF-8", declared("utf-8").into_bytes()),
            ("UTF-8 with a mark", format!("\u{feff}{}", declared("UTF-8")).into_bytes()),
            ("ISO-8859-1", of_bytes(&declared("ISO-8859-1"))),
            ("windows-1252", of_bytes(&declared("windows-1252").replace('"', "'"))),
            ("UTF-16, little end first", utf16(&format!("\u{feff}{}", declared("UTF-16")), u16::to_le_bytes)),
            ("UTF-16, big end first", utf16(&format!("\u{feff}{}", declared("UTF-16")), u16::to_be_bytes)),
            ("UTF-16 without a mark", utf16(&declared("UTF-16LE"), u16::to_le_bytes)),
            ("UTF-16 without a mark, big end first", utf16(&declared("UTF-16BE"), u16::to_be_bytes)),
            ("declared as UTF-16, and is not", declared("UTF-16").into_bytes()),
        ] {
            let read =
                Document::read(&content).map(|document| document.root.text_at("Nm").map(str::to_owned));
            assert_eq!(read, Ok(Some("\u{e9}".to_owned())), "{name}");
        }
        let euro = [
            b"<?xml version='1.0' encoding='windows-1252'?><Document xmlns='urn:x'><Nm>",
            &b"\x80"[..],
            b"</Nm></Document>",
        ];
        assert_eq!(Document::read(&euro.concat()).unwrap().root.text_at("Nm"), Some("\u{20ac}"));
        let wrong = |content: &[u8]| Document::read(content).unwrap_err().to_string();
        assert_eq!(wrong(&of_bytes(PLAIN)), "not readable: not UTF-8");
        assert_eq!(wrong(declared("UTF-7").as_bytes()), "not readable: the encoding UTF-7 is not known");
    }

    #[test]
    fn a_document_is_taken_out_of_its_envelope() {
        let header = "<AppHdr xmlns='urn:iso:std:iso:20022:tech:xsd:head.001.001.02'><BizMsgIdr>1</BizMsgIdr></AppHdr>";
        let pdu = format!(
            "<Saa:DataPDU xmlns:Saa='urn:swift:saa:xsd:saa.2.0'><Saa:Revision>2.0.13</Saa:Revision><Saa:Body>{header}{PLAIN}\
             </Saa:Body></Saa:DataPDU>"
        );
        for content in [
            format!("<BusMsgEnvlp xmlns='urn:e'>{header}{PLAIN}</BusMsgEnvlp>"),
            format!("<n:BizMsgEnvlp xmlns:n='urn:e'>\n{header}{PLAIN}\n</n:BizMsgEnvlp>"),
            format!("<Envelope>{header}{PLAIN}<Signature/></Envelope>"),
            format!("\u{1f}000123{}{pdu}", "0".repeat(24)),
            pdu,
        ] {
            let document = Document::read(content.as_bytes()).unwrap();
            assert_eq!(document, Document::read(PLAIN.as_bytes()).unwrap(), "{content}");
        }
        for (content, why) in [
            (format!("<E>{header}</E>"), "not readable: no ISO 20022 message"),
            (format!("<E>{PLAIN}{PLAIN}</E>"), "not readable: several messages in one file"),
            (format!("<E>{PLAIN}"), "not readable: the document has no end"),
        ] {
            assert_eq!(Document::read(content.as_bytes()).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn other_xml_is_refused() {
        let deep = format!("<Document xmlns='urn:x'>{}", "<a>".repeat(50));
        for bad in [
            "",
            "garbage",
            "<Document xmlns='urn:x'><A></Document>",
            "<Document xmlns='urn:x'><A>",
            "<Document><A/></Document>",
            "<!DOCTYPE D [<!ENTITY e 'x'>]><Document xmlns='urn:x'>&e;</Document>",
            "<Document xmlns='urn:x'>&e;</Document>",
            "<Document xmlns='urn:x'><p:A/></Document>",
            "<Document xmlns='urn:x'/><Document xmlns='urn:x'/>",
            "x<Document xmlns='urn:x'/>",
            deep.as_str(),
        ] {
            assert!(Document::read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Document::read(&[0xff, 0xfe, 0x3c]).is_err());
    }
}
