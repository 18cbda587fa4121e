//! The language of the scripts.

/// One line.
pub(crate) enum Step<'a> {
    /// `# …`
    Comment,
    /// `set OPTION`, before the first `connect`.
    Set(&'a str),
    /// `connect`: a new connection.
    Connect,
    /// `cut`: the peer closes its side.
    Cut,
    /// `send TYPE NUMBER FIELDS`: a message with the usual header around it. A field of the header that is given
    /// replaces the usual one; an empty one (`56` without `=`) leaves it out.
    Send { msg_type: &'a str, seq: &'a str, fields: &'a str },
    /// `raw MESSAGE`: only BodyLength(9) and CheckSum(10) are added where they are missing.
    Raw(&'a str),
    /// `bytes BYTES`: as they are.
    Bytes(&'a str),
    /// `+SECONDS` pass.
    Wait(f64),
    /// `report`: we send an ExecutionReport of our own accord.
    Report,
    /// `log_out TEXT`: we end the session.
    LogOut(&'a str),
}

impl<'a> Step<'a> {
    pub(crate) fn parse(line: &'a str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "#" => Self::Comment,
            "set" => Self::Set(rest),
            "connect" => Self::Connect,
            "cut" => Self::Cut,
            "send" => {
                let mut words = rest.splitn(3, ' ');
                let mut next = || words.next().unwrap_or_default();
                Self::Send { msg_type: next(), seq: next(), fields: next() }
            }
            "raw" => Self::Raw(rest),
            "bytes" => Self::Bytes(rest),
            "report" => Self::Report,
            "log_out" => Self::LogOut(rest),
            wait => Self::Wait(wait.strip_prefix('+').unwrap().parse().unwrap()),
        }
    }
}

/// How bytes are handed in.
#[derive(Clone, Copy)]
pub(crate) enum Pieces<'a> {
    Whole,
    Bytes,
    /// In pieces of these lengths, over and over.
    Cut(&'a [usize]),
}

impl Pieces<'_> {
    pub(crate) fn of(self, bytes: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::Whole => vec![bytes],
            Self::Bytes => bytes.chunks(1).collect(),
            Self::Cut(lengths) => {
                let mut rest = bytes;
                let mut pieces = Vec::new();
                for length in lengths.iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    let (piece, after) = rest.split_at((*length).min(rest.len()));
                    pieces.push(piece);
                    rest = after;
                }
                pieces
            }
        }
    }
}
