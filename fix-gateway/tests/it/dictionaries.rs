//! The published dictionaries are made here, from the facts of the versions and our own fields.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use dvp_fix_gateway::dictionaries::{OWN_FIELDS, OwnField, PUBLISHED, find};
use hotfix_dictionary::{Dictionary, Field, LayoutItem, LayoutItemKind};

const ADMIN: [&str; 7] = ["0", "1", "2", "3", "4", "5", "A"];
/// What is taken and what is answered; those that a version does not have are not in its file.
const APPLICATION: [&str; 11] = ["8", "9", "AF", "AG", "D", "F", "H", "R", "S", "b", "j"];
/// FIX 4.4 and later refuse a quote with AG.
const ONLY_42: &str = "b";

/// One file: what it is called, which version it says it is, and its messages.
struct File {
    name: &'static str,
    head: &'static str,
    dictionary: Dictionary,
    messages: Vec<&'static str>,
    /// FIX 5.0 leaves them to the transport.
    has_header: bool,
}

fn files() -> [File; 4] {
    let file =
        |name, head, dictionary, messages, has_header| File { name, head, dictionary, messages, has_header };
    let both = || [&ADMIN[..], &APPLICATION].concat();
    let head = |kind: &'static str| kind;
    [
        file(
            "FIX42.xml",
            head("type='FIX' major='4' minor='2' servicepack='0'"),
            Dictionary::fix42(),
            both(),
            true,
        ),
        file(
            "FIX44.xml",
            head("type='FIX' major='4' minor='4' servicepack='0'"),
            Dictionary::fix44(),
            both(),
            true,
        ),
        file(
            "FIXT11.xml",
            head("type='FIXT' major='1' minor='1' servicepack='0'"),
            Dictionary::fixt11(),
            ADMIN.to_vec(),
            true,
        ),
        file(
            "FIX50SP2.xml",
            head("type='FIX' major='5' minor='0' servicepack='2'"),
            Dictionary::fix50sp2(),
            APPLICATION.to_vec(),
            false,
        ),
    ]
}

/// A file in the making.
struct Writing<'a> {
    dictionary: &'a Dictionary,
    out: String,
    /// Tags of the standard that were named.
    used: BTreeSet<u32>,
    own: Vec<OwnField>,
}

impl Writing<'_> {
    fn line(&mut self, depth: usize, text: &str) {
        writeln!(self.out, "{:1$}{text}", "", depth * 2).unwrap();
    }

    /// A component's members stand where it stands; each is required only when the component is, too.
    fn items<'d>(
        &mut self,
        depth: usize,
        items: impl Iterator<Item = LayoutItem<'d>>,
        required: bool,
        seen: &mut BTreeSet<u32>,
    ) {
        for item in items {
            let required = required && item.required();
            let flag = if required { 'Y' } else { 'N' };
            match item.kind() {
                LayoutItemKind::Field(field) => {
                    if seen.insert(field.tag().get()) {
                        self.used.insert(field.tag().get());
                        self.line(depth, &format!("<field name='{}' required='{flag}'/>", field.name()));
                    }
                }
                LayoutItemKind::Component(component) => {
                    self.items(depth, component.items(), required, seen);
                }
                LayoutItemKind::Group(count, entry) => {
                    if seen.insert(count.tag().get()) {
                        self.used.insert(count.tag().get());
                        self.line(depth, &format!("<group name='{}' required='{flag}'>", count.name()));
                        self.items(depth + 1, entry.into_iter(), true, &mut BTreeSet::new());
                        self.line(depth, "</group>");
                    }
                }
            }
        }
    }

    fn section(&mut self, name: &str, component: &str, has: bool) {
        if !has {
            return self.line(1, &format!("<{name}/>"));
        }
        self.line(1, &format!("<{name}>"));
        let dictionary = self.dictionary;
        let component = dictionary.component_by_name(component).unwrap();
        self.items(2, component.items(), true, &mut BTreeSet::new());
        self.line(1, &format!("</{name}>"));
    }

    fn message(&mut self, msg_type: &str, file: &str) {
        let dictionary = self.dictionary;
        let Some(message) = dictionary.message_by_msgtype(msg_type) else { return };
        let category = if ADMIN.contains(&msg_type) { "admin" } else { "app" };
        let name = message.name();
        self.line(2, &format!("<message name='{name}' msgtype='{msg_type}' msgcat='{category}'>"));
        let mut seen = BTreeSet::new();
        self.items(3, message.layout(), true, &mut seen);
        for field in OWN_FIELDS.iter().filter(|field| field.message == msg_type) {
            self.line(3, &format!("<field name='{}' required='N'/>", field.name));
            self.own.push(*field);
        }
        for field in MISSING.iter().filter(|(of, field)| *of == file && field.message == msg_type) {
            self.line(3, &format!("<field name='{}' required='N'/>", field.1.name));
            if self.own.iter().all(|known| known.tag != field.1.tag) {
                self.own.push(field.1);
            }
        }
        self.line(2, "</message>");
    }

    fn fields(&mut self) {
        self.line(1, "<fields>");
        let dictionary = self.dictionary;
        let mut fields: Vec<Field<'_>> = dictionary.fields();
        fields.retain(|field| self.used.contains(&field.tag().get()));
        fields.sort_by_key(|field| field.tag());
        for field in fields {
            let values: Vec<(String, String)> = field
                .enums()
                .map(|values| {
                    values.map(|value| (value.value().to_owned(), value.description().to_owned())).collect()
                })
                .unwrap_or_default();
            let data_type = field.fix_datatype();
            self.field(field.tag().get(), field.name(), data_type.to_quickfix_name(), &values);
        }
        for field in self.own.clone() {
            let values: Vec<(String, String)> =
                field.values.iter().map(|value| ((*value).to_owned(), value.to_uppercase())).collect();
            self.field(field.tag, field.name, field.data_type, &values);
        }
        self.line(1, "</fields>");
    }

    fn field(&mut self, tag: u32, name: &str, data_type: &str, values: &[(String, String)]) {
        let head = format!("<field number='{tag}' name='{name}' type='{data_type}'");
        if values.is_empty() {
            return self.line(2, &format!("{head}/>"));
        }
        self.line(2, &format!("{head}>"));
        for (value, description) in values {
            let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            let description: String = description.chars().map(word).collect();
            let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;");
            self.line(3, &format!("<value enum='{value}' description='{description}'/>"));
        }
        self.line(2, "</field>");
    }
}

/// Fields of the standard that the facts of a version do not have: the names of a Logon of FIX 4.2, and the
/// SessionStatus of FIXT 1.1, which was added to it later.
const MISSING: [(&str, OwnField); 4] = [
    ("FIX42.xml", missing(553, "Username", "STRING", "A")),
    ("FIX42.xml", missing(554, "Password", "STRING", "A")),
    ("FIXT11.xml", missing(1409, "SessionStatus", "INT", "5")),
    ("FIXT11.xml", missing(1409, "SessionStatus", "INT", "A")),
];

const fn missing(tag: u32, name: &'static str, data_type: &'static str, message: &'static str) -> OwnField {
    OwnField { tag, name, data_type, message, values: &[] }
}

fn written(file: &File) -> String {
    let mut writing =
        Writing { dictionary: &file.dictionary, out: String::new(), used: BTreeSet::new(), own: Vec::new() };
    let is_42 = file.name == "FIX42.xml";
    writing.line(0, &format!("<fix {}>", file.head));
    writing.section("header", "StandardHeader", file.has_header);
    writing.line(1, "<messages>");
    for msg_type in file.messages.iter().filter(|msg_type| is_42 || **msg_type != ONLY_42) {
        writing.message(msg_type, file.name);
    }
    writing.line(1, "</messages>");
    writing.section("trailer", "StandardTrailer", file.has_header);
    writing.line(1, "<components/>");
    writing.fields();
    writing.line(0, "</fix>");
    writing.out
}

#[test]
fn the_published_dictionaries_are_what_the_facts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dictionaries");
    for (file, (name, published)) in files().iter().zip(PUBLISHED) {
        assert_eq!(file.name, name);
        let text = written(file);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(folder.join(name), &text).unwrap();
        } else {
            assert!(text == published, "UPDATE_EXPECT=1 rewrites {name}");
        }
    }
    assert!(find("FIX44").is_some() && find("FIX44.xml").is_some() && find("FIX43").is_none());
}
