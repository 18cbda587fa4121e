//! The messages of PostgreSQL's protocol that the relay reads and writes itself.

/// A type byte and a length, which counts itself.
const HEAD: usize = 5;
/// A longer notice is cut; its fields come in the order severity, code, message, then the rest.
const NOTICE_BYTES_MAX: usize = 8 * 1024;
/// The server's function that waits until a standby has a commit. It warns when the wait was cancelled: the commit is
/// then visible, and is lost when the standby is promoted.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";
/// The number of CancelRequest in place of a protocol version.
const CANCEL: [u8; 4] = [0x04, 0xd2, 0x16, 0x2e];

/// A message of the server, with its head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn kind(&self) -> u8 {
        self.0.first().copied().unwrap_or_default()
    }

    pub(super) fn body(&self) -> &[u8] {
        self.0.get(HEAD..).unwrap_or_default()
    }

    /// Takes the first message off the buffer if it is complete.
    pub(super) fn take(buffer: &mut Vec<u8>) -> Option<Self> {
        let length = buffer.get(1..HEAD)?.try_into().map(u32::from_be_bytes).ok()?;
        let end = usize::try_from(length).ok()?.checked_add(1)?;
        (buffer.len() >= end).then(|| Self(buffer.drain(..end).collect()))
    }

    /// The columns of a DataRow as text.
    pub(super) fn columns(&self) -> Option<Vec<Option<String>>> {
        let (count, mut rest) = self.body().split_first_chunk::<2>()?;
        let mut columns = Vec::new();
        for _ in 0..u16::from_be_bytes(*count) {
            let (length, values) = rest.split_first_chunk::<4>()?;
            rest = values;
            let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
                columns.push(None);
                continue;
            };
            let (value, following) = rest.split_at_checked(length)?;
            columns.push(Some(String::from_utf8_lossy(value).into_owned()));
            rest = following;
        }
        Some(columns)
    }
}

/// A field of an ErrorResponse or a NoticeResponse.
pub(super) fn field(body: &[u8], code: u8) -> Option<String> {
    let fields = body.split(|byte| *byte == 0);
    let found = fields.filter_map(<[u8]>::split_first).find(|(kind, _)| **kind == code)?;
    Some(String::from_utf8_lossy(found.1).into_owned())
}

/// Whether a notice says that a transaction was committed here without the confirmation of a standby. By the name of
/// the server's function, which is not translated.
pub(super) fn is_unconfirmed_commit(notice: &[u8]) -> bool {
    field(notice, b'R').is_some_and(|routine| routine == WAIT_FOR_STANDBY)
}

/// Query: one message of the simple protocol.
pub(super) fn query(sql: &str) -> Vec<u8> {
    let length = u32::try_from(sql.len() + 5).unwrap_or(u32::MAX);
    [&b"Q"[..], &length.to_be_bytes(), sql.as_bytes(), b"\0"].concat()
}

/// CancelRequest, for a connection of its own. `key` is the body of BackendKeyData.
pub(super) fn cancel_request(key: &[u8]) -> Vec<u8> {
    let length = u32::try_from(key.len() + 8).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &CANCEL, key].concat()
}

/// An ErrorResponse of severity FATAL with SQLSTATE 08001 (the client was unable to establish a connection).
pub(super) fn fatal(reason: &str) -> Vec<u8> {
    let text = reason.replace('\0', " ");
    let fields = format!("SFATAL\0VFATAL\0C08001\0M{text}\0\0");
    // The length counts itself.
    let length = u32::try_from(fields.len() + 4).unwrap_or(u32::MAX);
    [&b"E"[..], &length.to_be_bytes(), fields.as_bytes()].concat()
}

/// Follows the server's output, in any fragments.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    head: Vec<u8>,
    /// Bytes of the current message's body that have not arrived.
    left: usize,
    notice: Vec<u8>,
    is_ready: bool,
    has_unconfirmed_commit: bool,
}

impl Scanner {
    pub(super) fn scan(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.is_ready = false;
            if self.head.len() < HEAD {
                let (head, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                let Some(length) = self.head.get(1..HEAD) else { return };
                let length = length.try_into().map(u32::from_be_bytes).unwrap_or_default();
                self.left = usize::try_from(length).unwrap_or(usize::MAX).saturating_sub(HEAD - 1);
            } else {
                let (body, rest) = bytes.split_at(bytes.len().min(self.left));
                if self.head.first() == Some(&b'N') && self.notice.len() < NOTICE_BYTES_MAX {
                    self.notice.extend_from_slice(body);
                }
                self.left -= body.len();
                bytes = rest;
            }
            if self.left == 0 {
                self.is_ready = self.head.first() == Some(&b'Z');
                self.has_unconfirmed_commit |= is_unconfirmed_commit(&self.notice);
                self.head.clear();
                self.notice.clear();
            }
        }
    }

    /// Whether the last complete message is ReadyForQuery, and nothing follows it.
    pub(super) const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether a notice said that a commit was not confirmed by a standby.
    pub(super) const fn has_unconfirmed_commit(&self) -> bool {
        self.has_unconfirmed_commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(routine: &str) -> Vec<u8> {
        let fields = format!("SWARNUNG\0VWARNING\0C01000\0Mabgebrochen\0Fsyncrep.c\0L309\0R{routine}\0\0");
        let length = u32::try_from(fields.len() + 4).unwrap();
        [&b"N"[..], &length.to_be_bytes(), fields.as_bytes()].concat()
    }

    #[test]
    fn the_end_of_an_answer_is_recognized_in_any_fragments() {
        let answer = b"C\0\0\0\rSELECT 1\0Z\0\0\0\x05I";
        for at in 1..answer.len() {
            let mut scanner = Scanner::default();
            let (first, second) = answer.split_at(at);
            scanner.scan(first);
            assert!(!scanner.is_ready(), "{at}");
            scanner.scan(second);
            assert!(scanner.is_ready(), "{at}");
            scanner.scan(b"A");
            assert!(!scanner.is_ready(), "{at}");
        }
        // Within a row these bytes are data.
        let mut scanner = Scanner::default();
        scanner.scan(b"D\0\0\0\x10\0\x01\0\0\0\x06Z\0\0\0\x05I");
        assert!(!scanner.is_ready());
    }

    #[test]
    fn a_commit_without_a_standby_is_recognized_in_any_language_and_fragments() {
        let bytes = [&notice("SyncRepWaitForLSN")[..], b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I"].concat();
        for at in 0..bytes.len() {
            let mut scanner = Scanner::default();
            let (first, second) = bytes.split_at(at);
            scanner.scan(first);
            scanner.scan(second);
            assert!(scanner.has_unconfirmed_commit() && scanner.is_ready(), "{at}");
        }
        let mut scanner = Scanner::default();
        scanner.scan(&notice("exec_stmt_raise"));
        assert!(!scanner.has_unconfirmed_commit());
    }

    #[test]
    fn messages_and_columns_are_read_when_they_are_complete() {
        let row = b"D\0\0\0\x14\0\x03\0\0\0\x01t\xff\xff\xff\xff\0\0\0\x01f";
        let mut buffer = Vec::new();
        for byte in row {
            assert_eq!(Message::take(&mut buffer), None);
            buffer.push(*byte);
        }
        buffer.push(b'Z');
        let message = Message::take(&mut buffer).unwrap();
        assert_eq!(message.kind(), b'D');
        assert_eq!(message.columns(), Some(vec![Some("t".into()), None, Some("f".into())]));
        assert_eq!(buffer, b"Z");
        assert_eq!(Message(b"D\0\0\0\x0b\0\x01\0\0\0\x09t".to_vec()).columns(), None);
    }

    #[test]
    fn messages_of_ours_have_the_protocols_form() {
        let message = fatal("db:5432: no\0");
        assert_eq!(message[..5], [b'E', 0, 0, 0, 40]);
        assert_eq!(message.len(), 41);
        assert!(message.ends_with(b"Mdb:5432: no \0\0"));
        assert_eq!(query("x"), b"Q\0\0\0\x06x\0");
        assert_eq!(cancel_request(&[1; 8])[..8], [0, 0, 0, 16, 4, 210, 22, 46]);
    }
}
