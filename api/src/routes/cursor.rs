//! The cursor of a reader of the feed, as an opaque text.
//!
//! `version (1) | epoch (16) | position (8) | MAC (16)`, lowercase hex. The MAC covers the tenant, so that a cursor is
//! valid for no other, and the epoch, which a restored database changes, because positions from before would skip
//! events.

use dvp_core::secrets::Vault;
use dvp_store::orders::intents::Tenant;
use subtle::ConstantTimeEq;
use uuid::Uuid;

const VERSION: u8 = 1;
const HEAD: usize = 25;
const LENGTH: usize = HEAD + 16;

/// The context that a cursor is bound to.
#[derive(Clone, Copy)]
pub(crate) struct Feed<'a> {
    pub(crate) vault: &'a Vault,
    pub(crate) tenant: &'a Tenant,
    pub(crate) epoch: Uuid,
}

impl Feed<'_> {
    pub(crate) fn cursor(&self, position: i64) -> String {
        let head = self.head(position.to_be_bytes());
        hex::encode([head.as_slice(), &self.mac(&head)].concat())
    }

    pub(crate) fn position(&self, cursor: &str) -> Option<i64> {
        let bytes: [u8; LENGTH] = hex::decode(cursor).ok()?.try_into().ok()?;
        let (head, mac) = bytes.split_at(HEAD);
        let position: [u8; 8] = head.get(HEAD - 8..)?.try_into().ok()?;
        let ours = self.head(position);
        let genuine =
            bool::from(head.ct_eq(&ours)) & self.vault.is_cursor_mac(&self.authenticated(&ours), mac);
        let position = i64::from_be_bytes(position);
        (genuine && position >= 0).then_some(position)
    }

    fn head(&self, position: [u8; 8]) -> Vec<u8> {
        [&[VERSION], self.epoch.as_bytes().as_slice(), &position].concat()
    }

    fn mac(&self, head: &[u8]) -> [u8; 16] {
        self.vault.cursor_mac(&self.authenticated(head))
    }

    fn authenticated(&self, head: &[u8]) -> Vec<u8> {
        let Tenant { partner_id, livemode } = self.tenant;
        [head, &[u8::from(*livemode)], partner_id.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_with_any_changed_byte_is_refused() {
        let (vault, tenant) = (Vault::new([1; 32]), Tenant { partner_id: "p".into(), livemode: false });
        let feed = Feed { vault: &vault, tenant: &tenant, epoch: Uuid::from_u128(7) };
        let cursor = feed.cursor(1);
        for at in 0..cursor.len() {
            let mut changed = cursor.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(feed.position(&String::from_utf8(changed).unwrap()), None, "digit {at}");
            assert_eq!(feed.position(&cursor[..at]), None, "first {at} digits");
        }
    }
}
