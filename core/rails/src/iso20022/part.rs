//! The parts of a file that are not understood. Pure.

use dvp_domain::payment::PaymentSubject;
use dvp_domain::text::{TEXT_MAX, clean};

use super::instruction::{by_uetr, is_end_to_end_id};
use super::pain001::{BLOCK, MESSAGE};
use super::xml::{Node, Span};

/// More parts of one file are one part.
const PARTS_MAX: usize = 200;

/// A part that does not count, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub why: String,
    /// Where it stands in the file's text; `None`: it has no place there.
    pub span: Option<Span>,
}

impl Part {
    pub(super) fn of(node: &Node, why: impl Into<String>) -> Self {
        Self { why: why.into(), span: Some(node.span).filter(|span| span.start < span.end) }
    }

    /// The whole file, or what stands nowhere in it.
    pub(super) fn whole(why: impl Into<String>) -> Self {
        Self { why: why.into(), span: None }
    }
}

impl PartialEq<&str> for Part {
    fn eq(&self, why: &&str) -> bool {
        self.why == *why
    }
}

/// The ids in a text that have the form of ours: end-to-end ids, alone or as part of a block's or a message's id, and
/// UETRs.
pub fn ids_in(text: &str) -> (Vec<String>, Vec<String>) {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    let (mut ids, mut uetrs) = (Vec::new(), Vec::new());
    for word in words {
        let own = [
            word,
            word.strip_prefix(BLOCK).unwrap_or_default(),
            word.strip_prefix(MESSAGE).unwrap_or_default(),
        ];
        ids.extend(own.into_iter().find(|id| is_end_to_end_id(id)).map(str::to_owned));
        if let Some(PaymentSubject::Uetr(uetr)) = by_uetr(word) {
            uetrs.push(uetr);
        }
    }
    (ids, uetrs)
}

/// All parts in one text.
pub(super) fn told(parts: &[Part]) -> String {
    let all = parts.iter().map(|part| part.why.as_str()).collect::<Vec<_>>().join("; ");
    let number = if parts.len() > 1 { format!("{} parts: ", parts.len()) } else { String::new() };
    clean(&format!("{number}{all}"), TEXT_MAX)
}

/// The parts that are kept: a file of nothing else has as many as it has elements.
pub(super) fn kept(parts: &[Part]) -> Vec<Part> {
    let Some((first, others)) = parts.split_at_checked(PARTS_MAX - 1).filter(|(_, others)| others.len() > 1)
    else {
        return parts.to_vec();
    };
    let why = format!("{} other parts, the first of them: {}", others.len(), told(&others[..1]));
    first.iter().cloned().chain([Part::whole(why)]).collect()
}
