//! The language of the scripts.

pub(crate) enum Step<'a> {
    /// `# …`
    Comment,
    /// `new`: another session, of FIX 4.4, whose driver shows its tasks.
    New,
    /// `set OPTION`, before the first `connect`.
    Set(&'a str),
    /// `connect`: a new connection.
    Connect,
    /// `cut`: the peer closes its side.
    Cut,
    /// `send TYPE NUMBER FIELDS`: a message with the usual header around it. A field of the header that is given
    /// replaces the usual one; an empty one (`56` without `=`) leaves it out.
    Send {
        msg_type: &'a str,
        seq: &'a str,
        fields: &'a str,
    },
    /// `raw MESSAGE`: only BodyLength(9) and CheckSum(10) are added where they are missing.
    Raw(&'a str),
    /// `bytes BYTES`: as they are.
    Bytes(&'a str),
    /// `+SECONDS` pass.
    Wait(f64),
    /// `report TYPE`: we send a message of our own accord, an ExecutionReport if no other.
    Report(&'a str),
    /// `log_out TEXT`: we end the session.
    LogOut(&'a str),
    /// `unauthenticated`: the peers of the following Logons are others.
    Unauthenticated,
    /// `keeps`: the peer has seen nothing that is stored.
    Keeps,
    /// `slow`: the store answers at `stored` only.
    Slow,
    Stored,
    /// `is open`: has the schedule a session now?
    IsOpen,
}

impl<'a> Step<'a> {
    pub(crate) fn parse(line: &'a str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "#" => Self::Comment,
            "new" => Self::New,
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
            "report" if rest.is_empty() => Self::Report("8"),
            "report" => Self::Report(rest),
            "log_out" => Self::LogOut(rest),
            "unauthenticated" => Self::Unauthenticated,
            "keeps" => Self::Keeps,
            "slow" => Self::Slow,
            "stored" => Self::Stored,
            "is" => Self::IsOpen,
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
