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
    let places = dense(fields.iter().map(|field| field.tag().get()));
    let mut single_characters = Vec::new();
    for field in fields {
        let kind = kind(field.tag().get(), field.fix_datatype());
        let values: BTreeSet<String> = field
            .enums()
            .map(|values| values.map(|value| value.value().to_owned()).collect())
            .unwrap_or_default();
        let values = Vec::from_iter(values);
        single_characters.push(characters(kind, &values));
        writeln!(
            out,
            "        FieldDef {{ tag: {}, kind: Kind::{kind}, values: &{values:?} }},",
            field.tag()
        )?;
    }
    writeln!(out, "    ],\n    places: &{places:?},\n    single_characters: &{single_characters:?},")?;
    for (section, component) in [("header", "StandardHeader"), ("trailer", "StandardTrailer")] {
        let mut section_data = Section::default();
        if let Some(component) = dictionary.component_by_name(component) {
            section_data.add(component.items(), true);
        }
        writeln!(out, "    {section}: {},", section_data.render(true))?;
    }
    writeln!(out, "    messages: &[")?;
    let messages = dictionary.messages();
    let messages: BTreeMap<&str, _> = messages.iter().map(|message| (message.msg_type(), message)).collect();
    let types: Vec<Option<u32>> = messages
        .keys()
        .map(|msg_type| <[u8; 1]>::try_from(msg_type.as_bytes()).ok().map(|[byte]| u32::from(byte)))
        .collect();
    let single = dense_at(&types);
    for (msg_type, message) in messages {
        let mut section = Section::default();
        section.add(message.layout(), true);
        writeln!(out, "        ({msg_type:?}, {}),", section.render(true))?;
    }
    writeln!(out, "    ],\n    short_types: &{single:?},\n}};")?;
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

    /// Members at every depth.
    fn all(&self) -> BTreeSet<u32> {
        self.groups.values().fold(self.members.clone(), |mut all, group| {
            all.extend(group.all());
            all
        })
    }

    /// Sets of bits are for the sections that every message is looked up in: they would be large for all groups.
    fn render(&self, is_top: bool) -> String {
        let groups: String =
            self.groups.iter().map(|(tag, group)| format!("({tag}, {}), ", group.render(false))).collect();
        let plain = self.members.iter().copied().filter(|tag| !self.groups.contains_key(tag));
        let (plain, anywhere) =
            if is_top { (bits(plain), bits(self.all())) } else { (Vec::new(), Vec::new()) };
        format!(
            "Section {{ first: {}, members: &{:?}, required: &{:?}, groups: &[{groups}], plain: &{plain:?}, \
             anywhere: &{anywhere:?} }}",
            self.first.unwrap_or(0),
            Vec::from_iter(&self.members),
            Vec::from_iter(&self.required),
        )
    }
}

/// For every number up to the largest, one more than its place in the list, 0 when it is not in it.
fn dense(numbers: impl Iterator<Item = u32>) -> Vec<u16> {
    dense_at(&numbers.map(Some).collect::<Vec<_>>())
}

/// [`dense`], of a list whose gaps count as places.
fn dense_at(numbers: &[Option<u32>]) -> Vec<u16> {
    let mut places = Vec::new();
    for (place, number) in (1..).zip(numbers) {
        let Some(at) = number.and_then(|number| usize::try_from(number).ok()) else { continue };
        if places.len() <= at {
            places.resize(at + 1, 0);
        }
        places[at] = place;
    }
    places
}

/// A bit for every number.
fn bits(numbers: impl IntoIterator<Item = u32>) -> Vec<u64> {
    let mut words = Vec::new();
    for number in numbers {
        let at = usize::try_from(number / 64).unwrap_or(0);
        if words.len() <= at {
            words.resize(at + 1, 0);
        }
        words[at] |= 1 << (number % 64);
    }
    words
}

/// A bit for every value, when each is one ASCII character and of the datatype's form; none otherwise.
fn characters(kind: &str, values: &[String]) -> u128 {
    let has_form = |byte: u8| match kind {
        "Text" | "Char" | "Multiple" => byte.is_ascii(),
        "Boolean" => matches!(byte, b'Y' | b'N'),
        "Integer" | "Decimal" => byte.is_ascii_digit(),
        _ => false,
    };
    values
        .iter()
        .try_fold(0, |bits, value| match value.as_bytes() {
            [byte] if has_form(*byte) => Some(bits | 1 << *byte),
            _ => None,
        })
        .unwrap_or(0)
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
        FixDatatype::Data | FixDatatype::XmlData => "Data",
        // Text(58) is prose.
        _ if tag == 58 => "Lines",
        _ => "Text",
    }
}
