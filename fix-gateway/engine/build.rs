//! Writes the dictionaries as constant tables.
//!
//! The facts (which fields, values, messages and groups a version has) come from a crate made for them; what is kept
//! of them is only what validation asks.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::Write as _,
    path::Path,
};

use hotfix_dictionary::{Dictionary, FixDatatype, LayoutItem, LayoutItemKind};

type Failure = Box<dyn std::error::Error>;

#[expect(
    clippy::disallowed_methods,
    reason = "Cargo tells a build script its output folder by environment only"
)]
fn main() -> Result<(), Failure> {
    // Cargo would run this again for every changed source file otherwise.
    println!("cargo::rerun-if-changed=build.rs");
    let path = Path::new(&env::var("OUT_DIR")?).join("dictionaries.rs");
    let mut out = fs::File::create(path)?;
    let versions = [
        ("FIX42", Dictionary::fix42()),
        ("FIX44", Dictionary::fix44()),
        ("FIXT11", Dictionary::fixt11()),
        ("FIX50SP2", Dictionary::fix50sp2()),
    ];
    for (name, dictionary) in &versions {
        write_dictionary(&mut out, name, dictionary)?;
    }
    Ok(())
}

fn write_dictionary(out: &mut fs::File, name: &str, dictionary: &Dictionary) -> Result<(), Failure> {
    writeln!(out, "/// Facts of {}.", dictionary.version())?;
    writeln!(out, "pub static {name}: Dictionary = Dictionary {{")?;
    writeln!(out, "    fields: &[")?;
    let mut fields = dictionary.fields();
    fields.sort_by_key(|field| field.tag());
    for field in fields {
        let kind = kind(field.tag().get(), field.fix_datatype());
        let values: BTreeSet<String> = field
            .enums()
            .map(|values| values.map(|value| value.value().to_owned()).collect())
            .unwrap_or_default();
        let values = Vec::from_iter(values);
        writeln!(
            out,
            "        FieldDef {{ tag: {}, kind: Kind::{kind}, values: &{values:?} }},",
            field.tag()
        )?;
    }
    writeln!(out, "    ],")?;
    for (section, component) in [("header", "StandardHeader"), ("trailer", "StandardTrailer")] {
        let mut section_data = Section::default();
        if let Some(component) = dictionary.component_by_name(component) {
            section_data.add(component.items(), true);
        }
        writeln!(out, "    {section}: {},", section_data.render())?;
    }
    writeln!(out, "    messages: &[")?;
    let messages = dictionary.messages();
    let messages: BTreeMap<&str, _> = messages.iter().map(|message| (message.msg_type(), message)).collect();
    for (msg_type, message) in messages {
        let mut section = Section::default();
        section.add(message.layout(), true);
        writeln!(out, "        ({msg_type:?}, {}),", section.render())?;
    }
    writeln!(out, "    ],\n}};")?;
    Ok(())
}

/// What a message, a group's entry, the header or the trailer is made of.
#[derive(Default)]
struct Section {
    first: Option<u32>,
    members: BTreeSet<u32>,
    required: BTreeSet<u32>,
    groups: BTreeMap<u32, Section>,
}

impl Section {
    /// A member of a component is required only when the component is, too.
    fn add<'a>(&mut self, items: impl Iterator<Item = LayoutItem<'a>>, required: bool) {
        for item in items {
            let required = required && item.required();
            match item.kind() {
                LayoutItemKind::Field(field) => self.member(field.tag().get(), required),
                LayoutItemKind::Component(component) => self.add(component.items(), required),
                LayoutItemKind::Group(count, entry) => {
                    self.member(count.tag().get(), required);
                    let mut group = Self::default();
                    group.add(entry.into_iter(), true);
                    self.groups.insert(count.tag().get(), group);
                }
            }
        }
    }

    fn member(&mut self, tag: u32, required: bool) {
        self.first.get_or_insert(tag);
        self.members.insert(tag);
        if required {
            self.required.insert(tag);
        }
    }

    fn render(&self) -> String {
        let groups: String =
            self.groups.iter().map(|(tag, group)| format!("({tag}, {}), ", group.render())).collect();
        format!(
            "Section {{ first: {}, members: &{:?}, required: &{:?}, groups: &[{groups}] }}",
            self.first.unwrap_or(0),
            Vec::from_iter(&self.members),
            Vec::from_iter(&self.required),
        )
    }
}

/// The checks a datatype needs.
fn kind(tag: u32, datatype: FixDatatype) -> &'static str {
    match datatype {
        // TZTimeOnly and TZTimestamp, which the source of the facts does not tell from their UTC kin.
        FixDatatype::UtcTimeOnly | FixDatatype::UtcTimestamp if matches!(tag, 1079 | 1132) => "Text",
        FixDatatype::Char => "Char",
        FixDatatype::Boolean => "Boolean",
        FixDatatype::Float
        | FixDatatype::Amt
        | FixDatatype::Price
        | FixDatatype::PriceOffset
        | FixDatatype::Qty
        | FixDatatype::Percentage => "Decimal",
        FixDatatype::Int
        | FixDatatype::DayOfMonth
        | FixDatatype::Length
        | FixDatatype::NumInGroup
        | FixDatatype::SeqNum
        | FixDatatype::TagNum => "Integer",
        FixDatatype::MonthYear => "MonthYear",
        FixDatatype::MultipleCharValue | FixDatatype::MultipleStringValue => "Multiple",
        FixDatatype::LocalMktDate | FixDatatype::UtcDateOnly => "Date",
        FixDatatype::UtcTimeOnly => "TimeOfDay",
        FixDatatype::UtcTimestamp => "Timestamp",
        _ => "Text",
    }
}
