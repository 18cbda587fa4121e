//! Permits that a transaction made public and that may still be valid, since their order has no lock.
//!
//! A permit says who pays and how much, not to whom: until its deadline its signature is refused for another partner,
//! beneficiary or recipient. The holds are read before these rows, because an order that ends meanwhile leaves one of
//! the two.
//!
//! Kept by `core/tests/it/acceptance.rs::a_permit_that_a_failed_lock_made_public_is_its_partners_and_its_payees` and
//! `core/tests/it/acceptance.rs::a_permit_whose_lock_a_reorganization_removed_is_its_partners`.

use std::collections::HashMap;

use dvp_domain::canonical::sha256;
use dvp_domain::intent::Permit;
use dvp_domain::terms::Terms;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::{StoreError, statement};

/// A permit by its wallet and by what the wallet signed. It is not known by its signature: of a wallet that is a contract,
/// anyone may write a public one in other bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PermitId {
    chain_id: i64,
    /// Lowercase address.
    owner: String,
    signed: [u8; 32],
}

impl PermitId {
    /// `owner` in lower case.
    pub fn of(permit: &Permit, (chain_id, owner): (i64, String)) -> Self {
        let Permit { token, amount_minor, spender, nonce, deadline, signature: _ } = permit;
        let [token, spender] = [token, spender].map(|address| address.to_lowercase());
        let signed = sha256(&format!("{token} {amount_minor} {spender} {nonce} {deadline}"));
        Self { chain_id, owner, signed }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedPermit {
    pub id: PermitId,
    pub reference: String,
    /// Unix seconds.
    pub deadline: u64,
}

impl PublishedPermit {
    /// The permit of an order, if its input is pulled with one, on its chain.
    pub fn of(terms: &Terms, chain_id: i64) -> Option<Self> {
        let permit = terms.request.permit.as_ref().filter(|_| terms.locks())?;
        let id = PermitId::of(permit, (chain_id, terms.request.user.to_lowercase()));
        Some(Self { id, reference: terms.reference.to_string(), deadline: permit.deadline })
    }
}

/// Records permits. One that is known already stays with its first order.
pub async fn insert(conn: &mut PgConnection, published: &[PublishedPermit]) -> Result<(), StoreError> {
    let ids: Vec<&PermitId> = published.iter().map(|one| &one.id).collect();
    let keys = Keys::of(&ids);
    let sql = "insert into permit_published (chain_id, owner, signed, reference, deadline) \
         select c, o, s, r, d \
         from unnest($1::int8[], $2::text[], $3::bytea[], $4::text[], $5::int8[]) as u (c, o, s, r, d) \
         on conflict on constraint permit_published_pkey do nothing";
    let parameters = (
        keys.chains,
        keys.owners,
        keys.signed,
        published.iter().map(|one| one.reference.as_str()).collect::<Vec<_>>(),
        published.iter().map(|one| i64::try_from(one.deadline).unwrap_or(i64::MAX)).collect::<Vec<_>>(),
    );
    statement::execute(conn, sql, parameters).await
}

/// The terms of the orders for which these permits were published, of those that were.
pub async fn find(
    conn: &mut PgConnection,
    permits: &[PermitId],
) -> Result<HashMap<PermitId, Terms>, StoreError> {
    let ids: Vec<&PermitId> = permits.iter().collect();
    let keys = Keys::of(&ids);
    let sql = "select u.at, e.terms \
         from unnest($1::int8[], $2::text[], $3::bytea[]) with ordinality as u (c, o, s, at) \
         join permit_published p on p.chain_id = u.c and p.owner = u.o and p.signed = u.s \
         join execution e on e.reference = p.reference";
    let rows: Vec<(i64, Json<Terms>)> =
        statement::list(conn, sql, (keys.chains, keys.owners, keys.signed)).await?;
    let named = |at: i64| permits.get(usize::try_from(at).ok()?.checked_sub(1)?).cloned();
    Ok(rows.into_iter().filter_map(|(at, Json(terms))| Some((named(at)?, terms))).collect())
}

struct Keys<'a> {
    chains: Vec<i64>,
    owners: Vec<&'a str>,
    signed: Vec<&'a [u8]>,
}

impl<'a> Keys<'a> {
    fn of(permits: &[&'a PermitId]) -> Self {
        Self {
            chains: permits.iter().map(|one| one.chain_id).collect(),
            owners: permits.iter().map(|one| one.owner.as_str()).collect(),
            signed: permits.iter().map(|one| one.signed.as_slice()).collect(),
        }
    }
}
