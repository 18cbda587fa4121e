//! The published dictionaries are made here, from the facts of the versions and our own fields.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use dvp_fix_gateway::dictionaries::{IGNORED, Messages, OWN_FIELDS, OwnField, PUBLISHED, TAKEN, find};
use hotfix_dictionary::{Dictionary, Field, LayoutItem, LayoutItemKind};

const ADMIN: [&str; 7] = ["0", "1", "2", "3", "4", "5", "A"];
/// The inbound and outbound messages; messages that a version lacks are not in its file.
const APPLICATION: [&str; 19] =
    ["8", "9", "AF", "AG", "D", "F", "G", "H", "R", "S", "V", "W", "Y", "b", "j", "q", "r", "x", "y"];
/// Whose fields are taken one by one.
const TO_US: [&str; 9] = ["D", "F", "H", "AF", "R", "G", "q", "x", "V"];
/// FIX 4.4 and later refuse a quote with AG.
pub(crate) const ONLY_42: &str = "b";

/// One file: its name, its version, and its messages.
pub(crate) struct File {
    pub(crate) name: &'static str,
    head: String,
    pub(crate) dictionary: Dictionary,
    pub(crate) messages: Vec<&'static str>,
    /// FIX 5.0 leaves them to the transport.
    has_header: bool,
}

pub(crate) fn files() -> [File; 4] {
    let file = |name, version: (&str, u8, u8, u8), dictionary, messages, has_header| {
        let (kind, major, minor, pack) = version;
        let head = format!("type='{kind}' major='{major}' minor='{minor}' servicepack='{pack}'");
        File { name, head, dictionary, messages, has_header }
    };
    let both = || [&ADMIN[..], &APPLICATION].concat();
    [
        file("FIX42.xml", ("FIX", 4, 2, 0), Dictionary::fix42(), both(), true),
        file("FIX44.xml", ("FIX", 4, 4, 0), Dictionary::fix44(), both(), true),
        file("FIXT11.xml", ("FIXT", 1, 1, 0), Dictionary::fixt11(), ADMIN.to_vec(), true),
        file("FIX50SP2.xml", ("FIX", 5, 0, 2), Dictionary::fix50sp2(), APPLICATION.to_vec(), false),
    ]
}

/// A file in the making.
struct Writing<'a> {
    dictionary: &'a Dictionary,
    out: String,
    /// Tags of the standard that were named.
    used: BTreeSet<u32>,
    own: Vec<OwnField>,
    /// The message that is being written, when only some of its fields are taken.
    of: Messages,
}

/// Has the published dictionary this field in a message?
pub(crate) fn is_taken(messages: Messages, tag: u32) -> bool {
    messages == Messages::NONE
        || is_on_list(tag)
        || TAKEN.iter().any(|field| field.tag == tag && field.is_taken_in(messages))
}

/// Does a session ignore it unless its settings say otherwise?
pub(crate) fn is_on_list(tag: u32) -> bool {
    IGNORED.iter().any(|field| field.tag == tag)
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
            let is_taken = |tag: u32| is_taken(self.of, tag);
            match item.kind() {
                LayoutItemKind::Field(field) if !is_taken(field.tag().get()) => {}
                LayoutItemKind::Group(count, _) if !is_taken(count.tag().get()) => {}
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
                        let of = self.of;
                        if is_on_list(count.tag().get()) {
                            self.of = Messages::NONE;
                        }
                        self.items(depth + 1, entry.into_iter(), true, &mut BTreeSet::new());
                        self.of = of;
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
        self.of = Messages::of(msg_type.as_bytes());
        self.items(3, message.layout(), true, &mut seen);
        self.of = Messages::NONE;
        if msg_type == "G" {
            // A replacement may have every field of an order, and is refused with them.
            for field in TAKEN.iter().filter(|field| field.tag < 5000 && field.ignored.has(Messages::G)) {
                if seen.insert(field.tag) {
                    self.used.insert(field.tag);
                    self.line(3, &format!("<field name='{}' required='N'/>", field.name));
                }
            }
        }
        let of = if msg_type == "G" { "D" } else { msg_type };
        let own = OWN_FIELDS.iter().filter(|field| field.message == of);
        let missing = MISSING.iter().filter(|(of, field)| *of == file && field.message == msg_type);
        for field in own.chain(missing.map(|(_, field)| field)) {
            self.line(3, &format!("<field name='{}' required='N'/>", field.name));
            if self.own.iter().all(|known| known.tag != field.tag) {
                self.own.push(*field);
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
            let values = with_encoding(field.tag().get(), values);
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

/// MessageEncoding(347) also names the encoding of a session that asks for it.
pub(crate) fn with_encoding(tag: u32, mut values: Vec<(String, String)>) -> Vec<(String, String)> {
    if tag == 347 {
        values.push(("ISO-8859-1".to_owned(), "LATIN_1".to_owned()));
    }
    values
}

/// Fields of the standard that the facts of a version do not have: the names of a Logon of FIX 4.2, and the
/// SessionStatus of FIXT 1.1, which was added to it later.
pub(crate) const MISSING: [(&str, OwnField); 4] = [
    ("FIX42.xml", missing(553, "Username", "STRING", "A")),
    ("FIX42.xml", missing(554, "Password", "STRING", "A")),
    ("FIXT11.xml", missing(1409, "SessionStatus", "INT", "5")),
    ("FIXT11.xml", missing(1409, "SessionStatus", "INT", "A")),
];

const fn missing(tag: u32, name: &'static str, data_type: &'static str, message: &'static str) -> OwnField {
    OwnField { tag, name, data_type, message, values: &[] }
}

fn written(file: &File) -> String {
    let mut writing = Writing {
        dictionary: &file.dictionary,
        out: String::new(),
        used: BTreeSet::new(),
        own: Vec::new(),
        of: Messages::NONE,
    };
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

/// Tags and names of a message's fields; of a group that is not taken only the count.
fn members<'d>(items: impl Iterator<Item = LayoutItem<'d>>, found: &mut BTreeMap<u32, String>) {
    for item in items {
        match item.kind() {
            LayoutItemKind::Field(field) => {
                found.entry(field.tag().get()).or_insert_with(|| field.name().to_owned());
            }
            LayoutItemKind::Component(component) => members(component.items(), found),
            LayoutItemKind::Group(count, entry) => {
                found.entry(count.tag().get()).or_insert_with(|| count.name().to_owned());
                if TAKEN.iter().any(|field| field.tag == count.tag().get()) {
                    members(entry.into_iter(), found);
                }
            }
        }
    }
}

/// The table of docs/fix.md: the processing of each field in each message.
fn table() -> String {
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut defined: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    // The latest name of a field is its first.
    for dictionary in [Dictionary::fix50sp2(), Dictionary::fix44(), Dictionary::fix42()] {
        for msg_type in TO_US {
            let Some(message) = dictionary.message_by_msgtype(msg_type) else { continue };
            let mut found = BTreeMap::new();
            members(message.layout(), &mut found);
            defined.entry(msg_type).or_default().extend(found.keys());
            for (tag, name) in found {
                names.entry(tag).or_insert(name);
            }
        }
    }
    for field in &TAKEN {
        names.entry(field.tag).or_insert_with(|| field.name.to_owned());
    }
    let mut table = String::from(
        "| tag | field | D | F | H | AF | R | G | q | x |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (tag, name) in &names {
        write!(table, "| {tag} | {name} |").unwrap();
        for msg_type in TO_US {
            let messages = Messages::of(msg_type.as_bytes());
            let field = TAKEN.iter().find(|field| field.tag == *tag && field.is_taken_in(messages));
            let cell = match field {
                Some(field) if field.processed.has(messages) => " processed |",
                Some(_) => " ignored |",
                None if defined[msg_type].contains(tag) && is_on_list(*tag) => " on the list |",
                None if defined[msg_type].contains(tag) => " rejected |",
                None => " |",
            };
            table.push_str(cell);
        }
        table.push('\n');
    }
    table
}

#[test]
fn the_table_of_fields_in_the_documentation_is_what_the_code_does() {
    const BEGIN: &str = "<!-- fields -->\n";
    const END: &str = "<!-- end of fields -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fix.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/fix.md has a place for the table");
    let (written, after) = rest.split_once(END).unwrap();
    let table = table();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert!(written == table, "UPDATE_EXPECT=1 rewrites the table in docs/fix.md");
    }
}

/// The fields within NoPartyIDs(453).
const OF_PARTIES: [u32; 6] = [447, 448, 452, 523, 802, 803];

#[test]
fn every_field_of_the_published_dictionaries_is_processed_or_ignored() {
    for (file, text) in PUBLISHED {
        let numbers: BTreeMap<&str, u32> = text
            .lines()
            .filter_map(|line| {
                let (number, rest) = line.split_once("<field number='")?.1.split_once("' name='")?;
                Some((rest.split_once('\'')?.0, number.parse().ok()?))
            })
            .collect();
        for msg_type in TO_US {
            let Some((_, body)) = text.split_once(&format!(" msgtype='{msg_type}' ")) else { continue };
            let (body, _) = body.split_once("</message>").unwrap();
            let messages = Messages::of(msg_type.as_bytes());
            let names = body.split("name='").skip(1).map(|rest| rest.split_once('\'').unwrap().0);
            for name in names {
                let tag = numbers.get(name).copied();
                if tag.is_some_and(|tag| is_on_list(tag) || OF_PARTIES.contains(&tag)) {
                    continue;
                }
                let field = TAKEN.iter().find(|field| Some(field.tag) == tag);
                let field = field.unwrap_or_else(|| panic!("{file}: {msg_type}: {name} is in no class"));
                assert!(field.is_taken_in(messages), "{file}: {msg_type}: {name} is rejected, and published");
                assert!(
                    !(field.processed.has(messages) && field.ignored.has(messages)),
                    "{msg_type}: {name} is in two classes"
                );
            }
        }
    }
}
