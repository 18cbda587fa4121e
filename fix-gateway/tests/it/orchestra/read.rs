//! The committed Orchestra files, read again: the dictionaries made from them, and what they say becomes of each field.

use std::collections::{BTreeMap, BTreeSet};

use dvp_fix_gateway::dictionaries::{ORCHESTRA, find, orchestra};
use hotfix_dictionary::FixDatatype;
use roxmltree::{Document, Node};

use super::code_name;

/// A field, or a group with its members, as a message has it.
#[derive(Debug, PartialEq)]
struct Member {
    name: String,
    required: bool,
    group: Option<Vec<Member>>,
}

/// A field's name, its datatype, and its values with their names.
type ReadField = (String, String, Vec<(String, String)>);

/// What a dictionary says.
#[derive(Debug, PartialEq)]
struct Read {
    header: Vec<Member>,
    trailer: Vec<Member>,
    /// MsgType(35), name, and is it a session message?
    messages: Vec<(String, String, bool, Vec<Member>)>,
    /// By tag.
    fields: BTreeMap<u32, ReadField>,
}

fn attribute(node: Node<'_, '_>, name: &str) -> String {
    node.attribute(name).unwrap_or_else(|| panic!("{node:?} has no {name}")).to_owned()
}

fn id<'a>(node: Node<'a, '_>) -> &'a str {
    node.attribute("id").unwrap_or_else(|| panic!("{node:?} has no id"))
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Node<'a, 'i> {
    elements(node).find(|child| child.has_tag_name(name)).unwrap_or_else(|| panic!("{node:?} has no {name}"))
}

fn elements<'a, 'i>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}

fn quickfix_members(node: Node<'_, '_>) -> Vec<Member> {
    let member = |node: Node<'_, '_>| Member {
        name: attribute(node, "name"),
        required: attribute(node, "required") == "Y",
        group: node.has_tag_name("group").then(|| quickfix_members(node)),
    };
    elements(node).map(member).collect()
}

fn of_quickfix(text: &str) -> Read {
    let document = Document::parse(text).unwrap();
    let root = document.root_element();
    let message = |node: Node<'_, '_>| {
        let is_admin = attribute(node, "msgcat") == "admin";
        (attribute(node, "msgtype"), attribute(node, "name"), is_admin, quickfix_members(node))
    };
    let field = |node: Node<'_, '_>| {
        let data_type = FixDatatype::from_quickfix_name(&attribute(node, "type")).unwrap().name();
        let value = |node| (attribute(node, "enum"), code_name(&attribute(node, "description")));
        let values = elements(node).map(value).collect();
        (attribute(node, "number").parse().unwrap(), (attribute(node, "name"), data_type.to_owned(), values))
    };
    Read {
        header: quickfix_members(child(root, "header")),
        trailer: quickfix_members(child(root, "trailer")),
        messages: elements(child(root, "messages")).map(message).collect(),
        fields: elements(child(root, "fields")).map(field).collect(),
    }
}

/// An Orchestra file, with what is looked up in it by id.
struct Orchestra<'a, 'i> {
    root: Node<'a, 'i>,
    by_id: BTreeMap<(&'static str, &'a str), Node<'a, 'i>>,
    code_sets: BTreeMap<&'a str, Node<'a, 'i>>,
}

impl<'a, 'i> Orchestra<'a, 'i> {
    /// Ids and names must be of one each.
    fn read(root: Node<'a, 'i>) -> Self {
        let mut by_id = BTreeMap::new();
        for list in ["fields", "groups", "codeSets", "components", "messages"] {
            let mut names = BTreeSet::new();
            for node in elements(child(root, list)) {
                let (id, name) = (node.attribute("id").unwrap(), node.attribute("name").unwrap());
                assert!(names.insert(name) && by_id.insert((list, id), node).is_none(), "{list}: {name}");
                let codes: Vec<&str> = elements(node).filter_map(|code| code.attribute("value")).collect();
                assert_eq!(codes.len(), codes.iter().collect::<BTreeSet<_>>().len(), "{name}");
            }
        }
        let sets = elements(child(root, "codeSets")).map(|set| (set.attribute("name").unwrap(), set));
        Self { root, by_id, code_sets: sets.collect() }
    }

    fn find(&self, list: &'static str, id: &'a str) -> Node<'a, 'i> {
        *self.by_id.get(&(list, id)).unwrap_or_else(|| panic!("{list} has no {id}"))
    }

    fn members(&self, node: Node<'a, 'i>, tags: &mut BTreeSet<u32>) -> Vec<Member> {
        let mut members = Vec::new();
        for reference in elements(node) {
            let presence = reference.attribute("presence");
            let is_group = reference.has_tag_name("groupRef");
            if !(is_group || reference.has_tag_name("fieldRef")) || presence == Some("forbidden") {
                continue;
            }
            let group = is_group.then(|| self.find("groups", id(reference)));
            let tag = group.map_or_else(|| id(reference), |group| id(child(group, "numInGroup")));
            tags.insert(tag.parse().unwrap());
            members.push(Member {
                name: attribute(self.find("fields", tag), "name"),
                required: presence == Some("required"),
                group: group.map(|group| self.members(group, tags)),
            });
        }
        members
    }

    /// The dictionary of the messages of these categories.
    fn dictionary(&self, takes: impl Fn(&str) -> bool, has_header: bool) -> Read {
        let mut tags = BTreeSet::new();
        let mut section = |name: &str| {
            let components = elements(child(self.root, "components"));
            let mut named = components.filter(|component| attribute(*component, "name") == name);
            if has_header { self.members(named.next().unwrap(), &mut tags) } else { Vec::new() }
        };
        let (header, trailer) = (section("StandardHeader"), section("StandardTrailer"));
        let mut messages = Vec::new();
        for node in elements(child(self.root, "messages")) {
            let category = attribute(node, "category");
            if takes(&category) {
                let members = self.members(child(node, "structure"), &mut tags);
                let (msg_type, name) = (attribute(node, "msgType"), attribute(node, "name"));
                messages.push((msg_type, name, category == "Session", members));
            }
        }
        let fields = elements(child(self.root, "fields")).filter_map(|node| {
            let tag = attribute(node, "id").parse().unwrap();
            tags.contains(&tag).then(|| (tag, self.field(node)))
        });
        Read { header, trailer, messages, fields: fields.collect() }
    }

    fn field(&self, node: Node<'_, '_>) -> ReadField {
        let (name, data_type) = (attribute(node, "name"), attribute(node, "type"));
        let Some(set) = self.code_sets.get(data_type.as_str()) else { return (name, data_type, Vec::new()) };
        let value = |code| (attribute(code, "value"), attribute(code, "name"));
        (name, attribute(*set, "type"), elements(*set).map(value).collect())
    }
}

#[test]
fn the_dictionaries_made_from_the_orchestra_files_are_those_that_we_publish() {
    let dictionary = |version: &str, takes: &dyn Fn(&str) -> bool, has_header| {
        let document = Document::parse(orchestra(version).unwrap()).unwrap();
        Orchestra::read(document.root_element()).dictionary(takes, has_header)
    };
    let whole = |version| dictionary(version, &|_| true, true);
    let made = [
        ("FIX42", whole("FIX.4.2")),
        ("FIX44", whole("FIX.4.4")),
        ("FIXT11", dictionary("FIXT.1.1", &|category| category == "Session", true)),
        ("FIX50SP2", dictionary("FIX.5.0SP2", &|category| category != "Session", false)),
    ];
    for (name, made) in made {
        let published = of_quickfix(find(name).unwrap());
        assert!(made.messages.len() > 6 && made.fields.len() > 40, "{name}");
        assert_eq!(made.header, published.header, "{name}");
        assert_eq!(made.trailer, published.trailer, "{name}");
        assert_eq!(made.messages, published.messages, "{name}");
        assert!(made.fields.keys().eq(published.fields.keys()), "{name}");
        for (tag, field) in &published.fields {
            assert_eq!(made.fields.get(tag), Some(field), "{name}: {tag}");
        }
    }
}

#[test]
fn presence_in_the_orchestra_files_is_what_the_documentation_says() {
    let page = include_str!("../../../../docs/fix.md");
    let table =
        page.split_once("<!-- fields -->\n").unwrap().1.split_once("<!-- end of fields -->").unwrap().0;
    let rows: BTreeMap<&str, Vec<&str>> = table
        .lines()
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0], cells[2..].to_vec())
        })
        .collect();
    for (_, text) in ORCHESTRA {
        let document = Document::parse(text).unwrap();
        let file = Orchestra::read(document.root_element());
        let mut compared = 0;
        for message in elements(child(file.root, "messages")) {
            let msg_type = attribute(message, "msgType");
            let Some(column) = rows["tag"].iter().position(|column| *column == msg_type) else { continue };
            for reference in elements(child(message, "structure")) {
                if reference.has_tag_name("componentRef") {
                    continue;
                }
                let presence = attribute(reference, "presence");
                let tag = if reference.has_tag_name("groupRef") {
                    id(child(file.find("groups", id(reference)), "numInGroup"))
                } else {
                    id(reference)
                };
                let fits = match rows[tag][column] {
                    "processed" => presence == "required" || presence == "optional",
                    "ignored" | "on the list" => presence == "required" || presence == "ignored",
                    "rejected" => presence == "forbidden",
                    _ => false,
                };
                assert!(fits, "{msg_type}: {tag} is {presence}");
                compared += 1;
            }
        }
        assert!(compared > 200, "{compared}");
    }
}
