//! Where each field of a message stands, by our published dictionary.

use std::collections::BTreeMap;

use anyhow::Context as _;

/// A field of a message: its tag, and the groups it is in, each by its count field and its first field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldLocation {
    pub tag: u32,
    pub groups: Vec<(u32, u32)>,
}

/// The value of an attribute: the dictionaries quote with apostrophes.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}='"))?;
    rest.split_once('\'').map(|(value, _)| value)
}

/// Every field of a message, those of groups included. `Ok(None)`: the version has no such message.
pub(super) fn places(dictionary: &str, msg_type: &str) -> anyhow::Result<Option<Vec<FieldLocation>>> {
    let tags: BTreeMap<&str, u32> = dictionary
        .lines()
        .filter_map(|line| Some((attribute(line, "name")?, attribute(line, "number")?.parse().ok()?)))
        .collect();
    let tag_of = |line: &str| {
        let name = attribute(line, "name").context("a name")?;
        tags.get(name).copied().with_context(|| format!("{name} has no number"))
    };
    let start = format!(" msgtype='{msg_type}'");
    let mut lines = dictionary.lines().skip_while(|line| !line.contains(&start));
    if lines.next().is_none() {
        return Ok(None);
    }
    let mut found = Vec::new();
    // The count field of each group around the line, and its first field once that was seen.
    let mut groups: Vec<(u32, Option<u32>)> = Vec::new();
    for line in lines.map(str::trim).take_while(|line| *line != "</message>") {
        if line == "</group>" {
            groups.pop();
            continue;
        }
        let is_group = line.starts_with("<group");
        if !is_group && !line.starts_with("<field") {
            continue;
        }
        let tag = tag_of(line)?;
        if let Some((_, first @ None)) = groups.last_mut() {
            *first = Some(tag);
        }
        let around = groups.iter().filter_map(|(count, first)| Some((*count, (*first)?))).collect();
        found.push(FieldLocation { tag, groups: around });
        if is_group {
            groups.push((tag, None));
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_nested_groups_are_found_with_their_path() {
        let text = "<message name='X' msgtype='D'>\n<field name='A'/>\n<group name='NoB'>\n<field name='C'/>\n\
                    <group name='NoE'>\n<field name='F'/>\n</group>\n<field name='G'/>\n</group>\n<field name='H'/>\n\
                    </message>\n<field number='1' name='A'/>\n<field number='2' name='NoB'/>\n\
                    <field number='3' name='C'/>\n<field number='5' name='NoE'/>\n<field number='6' name='F'/>\n\
                    <field number='7' name='G'/>\n<field number='8' name='H'/>";
        let found = places(text, "D").expect("a dictionary").expect("the message");
        let found: Vec<(u32, Vec<(u32, u32)>)> = found.into_iter().map(|at| (at.tag, at.groups)).collect();
        let in_b = vec![(2, 3)];
        let expected = vec![
            (1, vec![]),
            (2, vec![]),
            (3, in_b.clone()),
            (5, in_b.clone()),
            (6, vec![(2, 3), (5, 6)]),
            (7, in_b),
            (8, vec![]),
        ];
        assert_eq!(found, expected);
        assert_eq!(places(text, "AF").expect("a dictionary"), None);
    }
}
