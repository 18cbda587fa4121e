//! The rules of engagement as FIX Orchestra 1.0 files, made from the facts that the dictionaries are made from.
//!
//! A field's presence in a message to us is what the gateway does: `required` and `optional` are read, `ignored` has
//! no effect, `forbidden` is rejected by its tag.

mod read;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use dvp_fix_gateway::dictionaries::{IGNORED, Messages, ORCHESTRA, OWN_FIELDS, OwnField, TAKEN, orchestra};
use hotfix_dictionary::{Dictionary, Field, FixDatatype, LayoutItem, LayoutItemKind};

use crate::dictionaries::{File, MISSING, ONLY_42, files, is_on_list, is_taken, with_encoding};

/// Categories of messages, and the section of each.
const CATEGORIES: [(&str, &str); 7] = [
    ("Session", "Session"),
    ("BusinessReject", "Infrastructure"),
    ("QuotationNegotiation", "PreTrade"),
    ("MarketData", "PreTrade"),
    ("SecuritiesReferenceData", "PreTrade"),
    ("SingleGeneralOrderHandling", "Trade"),
    ("OrderMassHandling", "Trade"),
];
const SECTIONS: [&str; 4] = ["Session", "Infrastructure", "PreTrade", "Trade"];

fn category(msg_type: &str) -> &'static str {
    match msg_type {
        "j" => "BusinessReject",
        "R" | "S" | "AG" | "b" => "QuotationNegotiation",
        "V" | "W" | "Y" => "MarketData",
        "x" | "y" => "SecuritiesReferenceData",
        "D" | "F" | "G" | "H" | "8" | "9" => "SingleGeneralOrderHandling",
        "AF" | "q" | "r" => "OrderMassHandling",
        _ => "Session",
    }
}

/// What is said of a message beyond its fields.
fn note(msg_type: &str) -> Option<&'static str> {
    (msg_type == "G")
        .then_some("Rejected with OrderCancelReject(9), whatever it has; the order stays as it is.")
}

/// A name as the schema takes it: 255 characters at most, of which the first is a letter.
fn code_name(description: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = description.chars().map(word).take(255).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("Code_{name}") }
}

struct FieldFacts {
    name: String,
    data_type: &'static str,
    /// Values and their names.
    values: Vec<(String, String)>,
}

struct Group {
    id: u32,
    count: u32,
    name: String,
    members: Vec<String>,
}

/// A file in the making.
#[derive(Default)]
struct Writing {
    out: String,
    fields: BTreeMap<u32, FieldFacts>,
    groups: Vec<Group>,
    /// The message that is being written: its name, and which of its fields are taken.
    message: String,
    of: Option<Messages>,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

impl Writing {
    fn line(&mut self, depth: usize, text: &str) {
        writeln!(self.out, "{:1$}{text}", "", depth * 2).unwrap();
    }

    fn annotation(&mut self, depth: usize, text: &str) {
        let text = escaped(text);
        self.line(depth, &format!("<annotation><documentation>{text}</documentation></annotation>"));
    }

    fn know(&mut self, field: Field<'_>) {
        self.fields.entry(field.tag().get()).or_insert_with(|| {
            let values = field.enums().map(|values| {
                values.map(|value| (value.value().to_owned(), value.description().to_owned())).collect()
            });
            let values = with_encoding(field.tag().get(), values.unwrap_or_default()).into_iter();
            FieldFacts {
                name: field.name().to_owned(),
                data_type: field.fix_datatype().name(),
                values: values.map(|(value, name)| (value, code_name(&name))).collect(),
            }
        });
    }

    fn know_own(&mut self, field: &OwnField) {
        let data_type = FixDatatype::from_quickfix_name(field.data_type).unwrap();
        self.fields.entry(field.tag).or_insert_with(|| FieldFacts {
            name: field.name.to_owned(),
            data_type: data_type.name(),
            values: field
                .values
                .iter()
                .map(|value| ((*value).to_owned(), code_name(&value.to_uppercase())))
                .collect(),
        });
    }

    /// A reference to a field, with its presence.
    fn field_ref(&self, tag: u32, required: bool) -> String {
        let head = format!("<fieldRef id=\"{tag}\"");
        let needed = if required { "required" } else { "optional" };
        let Some(of) = self.of else { return format!("{head} presence=\"{needed}\"/>") };
        if !is_taken(of, tag) {
            return format!("{head} presence=\"forbidden\"/>");
        }
        let taken = TAKEN.iter().find(|field| field.tag == tag && field.is_taken_in(of));
        let is_processed = taken.is_some_and(|field| field.processed.has(of));
        let presence = if required || is_processed { needed } else { "ignored" };
        let longest = taken.map(|field| format!(" implMaxLength=\"{}\"", field.max)).unwrap_or_default();
        if required && !is_processed {
            let said = "<annotation><documentation>Its value has no effect.</documentation></annotation>";
            return format!("{head} presence=\"{presence}\"{longest}>{said}</fieldRef>");
        }
        format!("{head} presence=\"{presence}\"{longest}/>")
    }

    /// References to the members; a component's members stand where it stands.
    fn members<'d>(
        &mut self,
        items: impl Iterator<Item = LayoutItem<'d>>,
        required: bool,
        seen: &mut BTreeSet<u32>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for item in items {
            let required = required && item.required();
            match item.kind() {
                LayoutItemKind::Field(field) => {
                    if seen.insert(field.tag().get()) {
                        self.know(field);
                        found.push(self.field_ref(field.tag().get(), required));
                    }
                }
                LayoutItemKind::Component(component) => {
                    found.extend(self.members(component.items(), required, seen));
                }
                LayoutItemKind::Group(count, entry) => {
                    let tag = count.tag().get();
                    if seen.insert(tag) {
                        self.know(count);
                        found.push(self.group_ref(count, entry.into_iter(), required));
                    }
                }
            }
        }
        found
    }

    /// A group that is rejected is its count field, so that its members need no description.
    fn group_ref<'d>(
        &mut self,
        count: Field<'_>,
        entry: impl Iterator<Item = LayoutItem<'d>>,
        required: bool,
    ) -> String {
        let tag = count.tag().get();
        let of = self.of;
        if of.is_some_and(|of| !is_taken(of, tag)) {
            return self.field_ref(tag, required);
        }
        if is_on_list(tag) {
            self.of = None;
        }
        let members = self.members(entry, true, &mut BTreeSet::new());
        self.of = of;
        let id = self.group(tag, count.name(), members);
        let ignored = of.is_some() && is_on_list(tag);
        let presence = if required { "required" } else { "optional" };
        let presence = if ignored { "ignored" } else { presence };
        format!("<groupRef id=\"{id}\" presence=\"{presence}\"/>")
    }

    /// The id of a group. Groups of one count field that differ have names of the messages that first have them, and
    /// ids of their own, so that a reader needs nothing else to tell them apart.
    fn group(&mut self, count: u32, name: &str, members: Vec<String>) -> u32 {
        let same: Vec<&Group> = self.groups.iter().filter(|group| group.count == count).collect();
        if let Some(group) = same.iter().find(|group| group.members == members) {
            return group.id;
        }
        let n = u32::try_from(same.len()).unwrap();
        let is_taken = |name: &String| same.iter().any(|group| group.name == *name);
        let numbered = (2..).map(|n| format!("{name}In{}{n}", self.message));
        let mut names = [name.to_owned(), format!("{name}In{}", self.message)].into_iter().chain(numbered);
        let name = names.find(|name| !is_taken(name)).unwrap();
        let id = if n == 0 { count } else { count * 1000 + n };
        self.groups.push(Group { id, count, name, members });
        id
    }

    fn component(&mut self, id: u32, name: &str, dictionary: &Dictionary) -> Vec<String> {
        self.message = name.to_owned();
        let component = dictionary.component_by_name(name).unwrap();
        let mut lines = vec![format!("<component id=\"{id}\" name=\"{name}\" category=\"Session\">")];
        let members = self.members(component.items(), true, &mut BTreeSet::new());
        lines.extend(members.into_iter().map(|member| format!("  {member}")));
        lines.push("</component>".to_owned());
        lines
    }

    fn message(&mut self, msg_type: &str, file: &File) -> Vec<String> {
        let Some(message) = file.dictionary.message_by_msgtype(msg_type) else { return Vec::new() };
        let messages = Messages::of(msg_type.as_bytes());
        self.of = (messages != Messages::NONE).then_some(messages);
        message.name().clone_into(&mut self.message);
        let mut seen = BTreeSet::new();
        let mut members = vec!["<componentRef id=\"1024\" presence=\"required\"/>".to_owned()];
        members.extend(self.members(message.layout(), true, &mut seen));
        if msg_type == "G" {
            for field in TAKEN.iter().filter(|field| field.tag < 5000 && field.ignored.has(Messages::G)) {
                if seen.insert(field.tag) {
                    self.know(file.dictionary.field_by_tag(field.tag).unwrap());
                    members.push(self.field_ref(field.tag, false));
                }
            }
        }
        let of = if msg_type == "G" { "D" } else { msg_type };
        let own = OWN_FIELDS.iter().filter(|field| field.message == of);
        let missing = MISSING.iter().filter(|(of, field)| *of == file.name && field.message == msg_type);
        for field in own.chain(missing.map(|(_, field)| field)) {
            self.know_own(field);
            members.push(self.field_ref(field.tag, false));
        }
        members.push("<componentRef id=\"1025\" presence=\"required\"/>".to_owned());
        let id = msg_type.bytes().fold(0, |id, byte| id * 256 + u32::from(byte));
        let flow = match category(msg_type) {
            "Session" | "BusinessReject" => "",
            _ if self.of.is_some() => " flow=\"ToService\"",
            _ => " flow=\"ToClient\"",
        };
        self.of = None;
        let (name, category) = (message.name(), category(msg_type));
        let head =
            format!("id=\"{id}\" name=\"{name}\" msgType=\"{msg_type}\" category=\"{category}\"{flow}");
        let mut lines = vec![format!("<message {head}>"), "  <structure>".to_owned()];
        lines.extend(members.into_iter().map(|member| format!("    {member}")));
        lines.push("  </structure>".to_owned());
        if let Some(note) = note(msg_type) {
            lines.push(format!("  <annotation><documentation>{note}</documentation></annotation>"));
        }
        lines.push("</message>".to_owned());
        lines
    }

    fn head(&mut self, version: &str) {
        let title = format!("dvp: {version}");
        self.line(0, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
        let spaces = "xmlns=\"http://fixprotocol.io/2020/orchestra/repository\" xmlns:dcterms=\"http://purl.org/dc/terms/\"";
        let last = version.split_whitespace().last().unwrap();
        self.line(0, &format!("<repository {spaces} name=\"dvp\" version=\"{last}\">"));
        self.line(1, &format!("<metadata><dcterms:title>{title}</dcterms:title></metadata>"));
        self.line(1, "<categories>");
        for (name, section) in CATEGORIES {
            let kind = "componentType=\"Message\"";
            self.line(2, &format!("<category name=\"{name}\" {kind} section=\"{section}\"/>"));
        }
        self.line(1, "</categories>");
        self.line(1, "<sections>");
        for name in SECTIONS {
            self.line(2, &format!("<section name=\"{name}\"/>"));
        }
        self.line(1, "</sections>");
    }

    fn types_and_fields(&mut self) {
        let facts = std::mem::take(&mut self.fields);
        let types: BTreeMap<&str, FixDatatype> = FixDatatype::iter_all()
            .filter(|known| facts.values().any(|field| field.data_type == known.name()))
            .flat_map(|known| [known, known.base_type()])
            .map(|known| (known.name(), known))
            .collect();
        self.line(1, "<datatypes>");
        for (name, known) in types {
            let base = known.base_type();
            let base = if base == known { String::new() } else { format!(" baseType=\"{}\"", base.name()) };
            self.line(2, &format!("<datatype name=\"{name}\"{base}/>"));
        }
        self.line(1, "</datatypes>");
        self.line(1, "<codeSets>");
        for (tag, FieldFacts { name, data_type, values }) in
            facts.iter().filter(|(_, f)| !f.values.is_empty())
        {
            self.line(2, &format!("<codeSet id=\"{tag}\" name=\"{name}CodeSet\" type=\"{data_type}\">"));
            for (n, (value, code)) in values.iter().enumerate() {
                let id = tag * 1000 + u32::try_from(n).unwrap() + 1;
                self.line(3, &format!("<code id=\"{id}\" name=\"{code}\" value=\"{}\"/>", escaped(value)));
            }
            self.line(2, "</codeSet>");
        }
        self.line(1, "</codeSets>");
        self.line(1, "<fields>");
        for (tag, FieldFacts { name, data_type, values }) in &facts {
            let data_type =
                if values.is_empty() { (*data_type).to_owned() } else { format!("{name}CodeSet") };
            let head = format!("<field id=\"{tag}\" name=\"{name}\" type=\"{data_type}\"");
            let Some(field) = IGNORED.iter().find(|field| field.tag == *tag) else {
                self.line(2, &format!("{head}/>"));
                continue;
            };
            self.line(2, &format!("{head}>"));
            let only = match (tag, field.values) {
                (64, _) => ", with today's date in UTC".to_owned(),
                (_, []) => String::new(),
                (_, values) => format!(", with {}", values.join(", ")),
            };
            self.annotation(3, &format!("To us: ignored unless the session has another list{only}."));
            self.line(2, "</field>");
        }
        self.line(1, "</fields>");
    }
}

const ABOUT: &str = "Presence in a message to us: required and optional are read, ignored has no effect, forbidden is \
                     rejected by its tag. User-defined tags from 5000 on, but 20000 to 20999, are ignored. A group that is \
                     forbidden is given by its count field.";

/// One file: of the dictionaries of the session's messages and of the application's, which FIX before 5.0 has in one.
fn written(version: &str, session: &File, application: &File) -> String {
    let mut writing = Writing::default();
    let mut components = writing.component(1024, "StandardHeader", &session.dictionary);
    components.extend(writing.component(1025, "StandardTrailer", &session.dictionary));
    let is_42 = session.name == "FIX42.xml";
    let of = |file: &File| -> Vec<&'static str> {
        file.messages.iter().copied().filter(|msg_type| is_42 || *msg_type != ONLY_42).collect()
    };
    let mut messages = Vec::new();
    for msg_type in of(session) {
        messages.extend(writing.message(msg_type, session));
    }
    if session.name != application.name {
        for msg_type in of(application) {
            messages.extend(writing.message(msg_type, application));
        }
    }
    writing.head(version);
    writing.types_and_fields();
    writing.line(1, "<actors>");
    for name in ["Client", "Service"] {
        writing.line(2, &format!("<actor name=\"{name}\"/>"));
    }
    for (name, source, destination) in [("ToService", "Client", "Service"), ("ToClient", "Service", "Client")]
    {
        let ends = format!("source=\"{source}\" destination=\"{destination}\"");
        writing.line(2, &format!("<flow name=\"{name}\" {ends} reliability=\"recoverable\"/>"));
    }
    writing.line(1, "</actors>");
    let groups = groups(std::mem::take(&mut writing.groups));
    for (name, lines) in [("components", components), ("groups", groups), ("messages", messages)] {
        writing.line(1, &format!("<{name}>"));
        lines.iter().for_each(|line| writing.line(2, line));
        writing.line(1, &format!("</{name}>"));
    }
    writing.annotation(1, ABOUT);
    writing.line(0, "</repository>");
    writing.out
}

fn groups(mut groups: Vec<Group>) -> Vec<String> {
    groups.sort_by_key(|group| (group.count, group.id));
    let mut lines = Vec::new();
    for Group { id, count, name, members } in groups {
        lines.push(format!("<group id=\"{id}\" name=\"{name}\">"));
        lines.push(format!("  <numInGroup id=\"{count}\"/>"));
        lines.extend(members.into_iter().map(|member| format!("  {member}")));
        lines.push("</group>".to_owned());
    }
    lines
}

/// A file's text as it must be, by its name.
fn all_written() -> [(&'static str, String); 3] {
    let [fix42, fix44, fixt, fix50] = files();
    [
        ("orchestra-FIX42.xml", written("FIX.4.2", &fix42, &fix42)),
        ("orchestra-FIX44.xml", written("FIX.4.4", &fix44, &fix44)),
        ("orchestra-FIX50SP2.xml", written("FIXT.1.1 with FIX.5.0SP2", &fixt, &fix50)),
    ]
}

#[test]
fn the_orchestra_files_are_what_the_facts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fix");
    for ((name, text), (versions, published)) in all_written().iter().zip(ORCHESTRA) {
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(folder.join(name), text).unwrap();
        } else {
            assert!(text == published, "UPDATE_EXPECT=1 rewrites {name}");
            assert!(versions.iter().all(|version| orchestra(version) == Some(published)));
        }
    }
}
