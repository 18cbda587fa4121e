//! Cuts a byte stream into frames, resumable at every byte and bounded.
//!
//! A frame begins at `8=FIX` and ends with the first `SOH 10=… SOH` at or after the end that BodyLength(9) declares.
//! So a wrong length loses that frame and the bytes inside its declared length, but never the stream: searching
//! for `8=FIX` inside a broken frame instead could process bytes that the sender meant as data.
//! A length that is no number, or beyond the limit, counts as no length: the frame ends at the next trailer.

use nom::{
    IResult, Parser,
    bytes::streaming::{tag, take_while, take_while1},
    sequence::delimited,
};

use super::SOH;

/// BeginString and BodyLength end within this many bytes, or the length counts as absent.
const HEADER_MAX: usize = 64;

/// What is kept of a frame that is too long: MsgType and MsgSeqNum are at its beginning.
const KEPT: usize = 512;
/// The bytes of CheckSum(10).
const TRAILER: usize = b"10=000\x01".len();
/// The longest frame that is discarded as a whole.
const DISCARDED_MAX: usize = 64 * 1024 * 1024;

/// Holds the received bytes that are not yet a frame.
#[derive(Debug, Default)]
pub struct Framer {
    /// Bytes from the wire are `start..filled`; behind them is room for more.
    buffer: Vec<u8>,
    /// Where the bytes not yet given out begin.
    start: usize,
    filled: usize,
    /// Where the search for the trailer goes on, once the header is understood.
    search_from: Option<usize>,
    limit: usize,
    /// The declared length of a frame that is longer than the limit, with its header.
    declared: Option<usize>,
    /// A frame that is too long, while it is discarded.
    discarding: Option<Discarding>,
    /// The beginning of the last frame that was discarded.
    head: Vec<u8>,
}

#[derive(Debug)]
struct Discarding {
    head: Vec<u8>,
    /// Bytes before its trailer.
    rest: usize,
}

/// One step of the framer.
#[derive(Debug, PartialEq, Eq)]
pub enum Framed<'a> {
    /// From `8=FIX` to the SOH after `10=…`. Nothing else is checked.
    Frame(&'a [u8]),
    /// More bytes are needed.
    Incomplete,
    /// A frame of more than the limit was discarded as a whole; these are its first 512 bytes at most.
    Discarded(&'a [u8]),
    /// A frame went past the limit, and its declared length does not tell where it ends. The stream cannot be trusted any
    /// more.
    TooLong,
}

impl Framer {
    /// A framer that gives up on a frame of more than `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            search_from: None,
            limit,
            declared: None,
            discarding: None,
            head: Vec::new(),
        }
    }

    /// Changes the limit, for instance once the peer is authenticated.
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Room for `bytes` more bytes, or somewhat more: write the bytes read at its beginning and call
    /// [`Framer::filled`]. Calling it again without that gives the same room.
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.start == self.filled {
            self.search_from = None;
            (self.start, self.filled) = (0, 0);
        }
        if self.buffer.len() - self.filled < bytes && self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.search_from = self.search_from.map(|from| from - self.start);
            self.filled -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.filled < bytes {
            self.buffer.resize(self.filled + bytes, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// This number of bytes at the beginning of [`Framer::room`] has been filled from the wire.
    pub fn filled(&mut self, bytes: usize) {
        self.filled = self.buffer.len().min(self.filled + bytes);
    }

    /// Takes bytes as they come from the wire.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// Gives back the memory, if nothing is held.
    pub fn shrink(&mut self) {
        if self.pending() == 0 && self.discarding.is_none() {
            *self = Self::new(self.limit);
        }
    }

    /// The bytes held and not yet given out, as they came.
    pub fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.filled).unwrap_or_default()
    }

    /// The number of bytes held and not yet given out.
    pub const fn pending(&self) -> usize {
        self.filled - self.start
    }

    /// The next frame. Call until it returns [`Framed::Incomplete`].
    pub fn next_frame(&mut self) -> Framed<'_> {
        if self.discarding.is_some() {
            return self.discard();
        }
        let from = match self.search_from {
            Some(from) => from,
            None => match self.find_header() {
                Some(from) => from,
                None => {
                    return if self.pending() > self.limit { Framed::TooLong } else { Framed::Incomplete };
                }
            },
        };
        self.search_from = Some(from);
        let Some(end) = self.find_trailer(from) else {
            if self.pending() <= self.limit {
                return Framed::Incomplete;
            }
            // No trailer within the limit: the frame is as long as it says.
            let Some(rest) = self.declared.take() else { return Framed::TooLong };
            self.discarding = Some(Discarding { head: Vec::new(), rest });
            self.search_from = None;
            return self.discard();
        };
        let begin = self.start;
        self.start = end;
        self.search_from = None;
        // It came in one piece, with its trailer where it says.
        if self.declared.take().is_some_and(|declared| begin + declared + TRAILER == end) {
            self.head = self.buffer[begin..end.min(begin + KEPT)].to_vec();
            return Framed::Discarded(&self.head);
        }
        Framed::Frame(&self.buffer[begin..end])
    }

    /// Drops what has come of a frame that is too long, and its trailer when that is due.
    fn discard(&mut self) -> Framed<'_> {
        let Some(discarding) = &mut self.discarding else { return Framed::Incomplete };
        let held = &self.buffer[self.start..self.filled];
        let kept = held.len().min(discarding.rest).min(KEPT - discarding.head.len());
        discarding.head.extend_from_slice(&held[..kept]);
        let dropped = held.len().min(discarding.rest);
        discarding.rest -= dropped;
        self.start += dropped;
        let held = &self.buffer[self.start..self.filled];
        if discarding.rest > 0 || held.len() < TRAILER {
            return Framed::Incomplete;
        }
        if !held.starts_with(b"10=") || held[TRAILER - 1] != SOH {
            return Framed::TooLong;
        }
        self.start += TRAILER;
        self.head = self.discarding.take().map(|discarding| discarding.head).unwrap_or_default();
        Framed::Discarded(&self.head)
    }

    /// Skips to `8=FIX` and returns the earliest position of the trailer.
    fn find_header(&mut self) -> Option<usize> {
        const MARK: &[u8] = b"8=FIX";
        let held = &self.buffer[self.start..self.filled];
        let Some(skip) = held.windows(MARK.len()).position(|window| window == MARK) else {
            // The last four bytes may be the beginning of the mark.
            self.start = self.filled - held.len().min(MARK.len() - 1);
            return None;
        };
        self.start += skip;
        let held = &self.buffer[self.start..self.filled];
        match header(&held[..held.len().min(HEADER_MAX)]) {
            Ok((rest, length)) => {
                let header_bytes = held.len().min(HEADER_MAX) - rest.len();
                let is_too_long = |length: &usize| (self.limit..DISCARDED_MAX).contains(length);
                self.declared = length.filter(is_too_long).map(|length| header_bytes + length);
                let body = length.filter(|length| *length <= self.limit).unwrap_or(0);
                // One back: the trailer begins with the SOH that ends the body.
                Some(self.start + header_bytes + body - 1)
            }
            Err(nom::Err::Incomplete(_)) if held.len() < HEADER_MAX => None,
            Err(_) => Some(self.start + MARK.len()),
        }
    }

    fn find_trailer(&mut self, from: usize) -> Option<usize> {
        const MARK: &[u8] = b"\x0110=";
        let tail = self.buffer.get(from..self.filled)?;
        let Some(at) = tail.windows(MARK.len()).position(|window| window == MARK) else {
            // Not to look at the same bytes again, but the last three may be the beginning of the mark.
            self.search_from = Some(from.max((self.filled + 1).saturating_sub(MARK.len())));
            return None;
        };
        let value = from + at + MARK.len();
        let soh = self.buffer[value..self.filled].iter().position(|byte| *byte == SOH)?;
        Some(value + soh + 1)
    }
}

/// `8=… SOH 9=… SOH`: the declared length, `None` when it is no number.
fn header(input: &[u8]) -> IResult<&[u8], Option<usize>> {
    let soh = tag(&[SOH][..]);
    let value = |byte: u8| byte != SOH;
    let begin_string = delimited(tag(&b"8="[..]), take_while1(value), &soh);
    let body_length = delimited(tag(&b"9="[..]), take_while(value), &soh);
    (begin_string, body_length).map(|(_, digits): (&[u8], &[u8])| super::parse::length(digits)).parse(input)
}
