//! The trace that a request belongs to, as W3C Trace Context (version 00) carries it between systems.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A trace and a span in it. Its text is a `traceparent` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    sampled: bool,
}

/// The text is no `traceparent` of version 00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no traceparent")]
pub struct NoTraceParent;

impl TraceContext {
    /// A new trace, whose spans are recorded. Both ids are random and not zero.
    pub const fn begin(trace: [u8; 16], span: [u8; 8]) -> Self {
        Self { trace, span, sampled: true }
    }

    /// A span within this one.
    #[must_use]
    pub const fn child(self, span: [u8; 8]) -> Self {
        Self { span, ..self }
    }

    /// Whether the caller records the trace.
    pub const fn is_sampled(self) -> bool {
        self.sampled
    }

    pub fn trace_id(self) -> String {
        hex(&self.trace)
    }

    pub fn span_id(self) -> String {
        hex(&self.span)
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Lowercase digits only, and not all zero.
fn id<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut id = [0; BYTES];
    if text.len() != BYTES * 2 {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    (id != [0; BYTES]).then_some(id)
}

impl FromStr for TraceContext {
    type Err = NoTraceParent;

    /// Of a later version only the fields of version 00 are read; version ff is none.
    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        let parse = || {
            let mut parts = text.split('-');
            let version = parts.next().filter(|version| version.len() == 2 && *version != "ff")?;
            // Version 00 is a valid number, but no valid id.
            (version == "00" || id::<1>(version).is_some()).then_some(())?;
            let (trace, span) = (id(parts.next()?)?, id(parts.next()?)?);
            let flags = parts.next().filter(|flags| flags.len() == 2)?;
            let [flags] = if flags == "00" { [0] } else { id(flags)? };
            (version != "00" || parts.next().is_none()).then_some(())?;
            Some(Self { trace, span, sampled: flags & 1 == 1 })
        };
        parse().ok_or(NoTraceParent)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", hex(&self.trace), hex(&self.span), u8::from(self.sampled))
    }
}

impl TryFrom<String> for TraceContext {
    type Error = NoTraceParent;

    fn try_from(text: String) -> Result<Self, NoTraceParent> {
        text.parse()
    }
}

impl From<TraceContext> for String {
    fn from(context: TraceContext) -> Self {
        context.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the W3C's recommendation.
    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let context: TraceContext = EXAMPLE.parse().unwrap();
        assert_eq!(context.to_string(), EXAMPLE);
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert!(context.is_sampled());
        let child = context.child([1; 8]);
        assert_eq!(child.to_string(), "00-0af7651916cd43dd8448eb211c80319c-0101010101010101-01");
        let later: TraceContext = EXAMPLE.replacen("00", "cc", 1).parse().unwrap();
        assert_eq!(later, context);
        let extended: TraceContext =
            format!("{}-what-the-future-holds", EXAMPLE.replacen("00", "cc", 1)).parse().unwrap();
        assert_eq!(extended, context);
        assert!(!EXAMPLE.replace("-01", "-00").parse::<TraceContext>().unwrap().is_sampled());
    }

    #[test]
    fn anything_else_is_no_traceparent() {
        let none = |text: &str| assert_eq!(text.parse::<TraceContext>(), Err(NoTraceParent), "{text}");
        for length in 0..EXAMPLE.len() {
            none(&EXAMPLE[..length]);
        }
        none(&EXAMPLE.to_uppercase());
        none(&EXAMPLE.replacen("00", "ff", 1));
        none(&format!("{EXAMPLE}-more"));
        none(&format!("{EXAMPLE} "));
        none("00-00000000000000000000000000000000-b7ad6b7169203331-01");
        none("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01");
        none("00-ééééééééééééééééé-b7ad6b7169203331-01");
    }
}
