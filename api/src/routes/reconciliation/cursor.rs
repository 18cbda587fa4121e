//! The cursor of a reader of a report, as an opaque text.
//!
//! `version (1) | position (8) | accepted at, microseconds (8) | reference | MAC (16)`, lowercase hex. The MAC covers
//! tenant, epoch, range and kind of report too: a cursor is valid only for the report it came from.

use chrono::{DateTime, NaiveDate, Utc};
use dvp_core::secrets::Vault;
use dvp_store::orders::intents::Tenant;
use uuid::Uuid;

const VERSION: u8 = 2;
const HEAD: usize = 17;
const MAC: usize = 16;
/// A reference is `exe_` and 32 hex digits.
const REFERENCE_MAX: usize = 64;

/// The context that a cursor is bound to.
pub(super) struct Report<'a> {
    pub(super) vault: &'a Vault,
    pub(super) tenant: &'a Tenant,
    pub(super) epoch: Uuid,
    pub(super) from: NaiveDate,
    pub(super) to: NaiveDate,
    pub(super) is_daily: bool,
}

/// The snapshot and the last row read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) position: i64,
    pub(super) after: (DateTime<Utc>, String),
}

impl Report<'_> {
    pub(super) fn cursor(&self, mark: &Mark) -> String {
        let (accepted_at, reference) = &mark.after;
        let head = [
            &[VERSION][..],
            &mark.position.to_be_bytes(),
            &accepted_at.timestamp_micros().to_be_bytes(),
            reference.as_bytes(),
        ]
        .concat();
        hex::encode([head.as_slice(), &self.mac(&head)].concat())
    }

    pub(super) fn mark(&self, cursor: &str) -> Option<Mark> {
        if cursor.len() > 2 * (HEAD + REFERENCE_MAX + MAC) {
            return None;
        }
        let bytes = hex::decode(cursor).ok()?;
        let (body, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC)?)?;
        if !self.vault.is_cursor_mac(&self.authenticated(body), mac) {
            return None;
        }
        let (head, reference) = body.split_at_checked(HEAD)?;
        let number = |from: usize| head.get(from..from + 8)?.try_into().ok().map(i64::from_be_bytes);
        let accepted_at = DateTime::from_timestamp_micros(number(9)?)?;
        let reference = String::from_utf8(reference.to_vec()).ok()?;
        (head.first() == Some(&VERSION)).then_some(())?;
        Some(Mark { position: number(1)?, after: (accepted_at, reference) })
    }

    fn mac(&self, body: &[u8]) -> [u8; MAC] {
        self.vault.cursor_mac(&self.authenticated(body))
    }

    fn authenticated(&self, body: &[u8]) -> Vec<u8> {
        let Tenant { partner_id, livemode } = self.tenant;
        let scope = format!("{}|{}|{}|{livemode}|{partner_id}", self.from, self.to, self.is_daily);
        [self.epoch.as_bytes().as_slice(), body, &[0], scope.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_valid_for_its_own_report_only() {
        let tenant = |livemode| Tenant { partner_id: "p".into(), livemode };
        let (vault, test, live) = (Vault::new([1; 32]), tenant(false), tenant(true));
        let day = |day| NaiveDate::from_ymd_opt(2026, 1, day).unwrap();
        let report = |tenant, to, is_daily| Report {
            vault: &vault,
            tenant,
            epoch: Uuid::from_u128(7),
            from: day(1),
            to: day(to),
            is_daily,
        };
        let at = DateTime::from_timestamp_micros(1_767_225_600_000_123).unwrap();
        let mark = Mark { position: 41, after: (at, "exe_1".into()) };
        let cursor = report(&test, 2, false).cursor(&mark);
        assert_eq!(report(&test, 2, false).mark(&cursor), Some(mark));
        for other in [report(&live, 2, false), report(&test, 3, false), report(&test, 2, true)] {
            assert_eq!(other.mark(&cursor), None);
        }
        for at in 0..cursor.len() {
            let mut changed = cursor.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(report(&test, 2, false).mark(&String::from_utf8(changed).unwrap()), None);
            assert_eq!(report(&test, 2, false).mark(&cursor[..at]), None);
        }
    }
}
