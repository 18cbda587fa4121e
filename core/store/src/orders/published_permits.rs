//! Permits that a transaction made public and that may still be valid, since their order has no lock.
//!
//! A permit says who pays and how much, not to whom: until its deadline its signature is refused for another partner,
//! beneficiary or recipient. The holds are read before these rows, because an order that ends meanwhile leaves one of
//! the two.
//!
//! Kept by `core/tests/it/acceptance.rs::a_permit_that_a_failed_lock_made_public_is_its_partners_and_its_payees` and
//! `core/tests/it/acceptance.rs::a_permit_whose_lock_a_reorganization_removed_is_its_partners`.

use std::collections::HashMap;

use dvp_domain::permit::{self, PermitSignature};
use dvp_domain::terms::Terms;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::{StoreError, statement};

/// A permit by its wallet, its nonce and its signature, which no one but the wallet can make for another permit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PermitId {
    pub chain_id: i64,
    /// Lowercase address.
    pub owner: String,
    pub nonce: u128,
    pub signature: PermitSignature,
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
        let owner = terms.request.user.to_lowercase();
        let signature = permit::signature(permit).ok()?;
        let id = PermitId { chain_id, owner, nonce: permit.nonce.get(), signature };
        Some(Self { id, reference: terms.reference.to_string(), deadline: permit.deadline })
    }
}

/// Records permits. One that is known already stays with its first order.
pub async fn insert(conn: &mut PgConnection, published: &[PublishedPermit]) -> Result<(), StoreError> {
    let ids: Vec<&PermitId> = published.iter().map(|one| &one.id).collect();
    let keys = Keys::of(&ids);
    let sql = "insert into permit_published (chain_id, owner, nonce, signature, reference, deadline) \
         select c, o, n::numeric, s, r, d \
         from unnest($1::int8[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::int8[]) as u (c, o, n, s, r, d) \
         on conflict on constraint permit_published_pkey do nothing";
    let parameters = (
        keys.chains,
        keys.owners,
        keys.nonces,
        keys.signatures,
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
         from unnest($1::int8[], $2::text[], $3::text[], $4::bytea[]) with ordinality as u (c, o, n, s, at) \
         join permit_published p on p.chain_id = u.c and p.owner = u.o and p.nonce = u.n::numeric and p.signature = u.s \
         join execution e on e.reference = p.reference";
    let rows: Vec<(i64, Json<Terms>)> =
        statement::list(conn, sql, (keys.chains, keys.owners, keys.nonces, keys.signatures)).await?;
    let named = |at: i64| permits.get(usize::try_from(at).ok()?.checked_sub(1)?).cloned();
    Ok(rows.into_iter().filter_map(|(at, Json(terms))| Some((named(at)?, terms))).collect())
}

struct Keys<'a> {
    chains: Vec<i64>,
    owners: Vec<&'a str>,
    nonces: Vec<String>,
    signatures: Vec<&'a [u8]>,
}

impl<'a> Keys<'a> {
    fn of(permits: &[&'a PermitId]) -> Self {
        Self {
            chains: permits.iter().map(|one| one.chain_id).collect(),
            owners: permits.iter().map(|one| one.owner.as_str()).collect(),
            nonces: permits.iter().map(|one| one.nonce.to_string()).collect(),
            signatures: permits.iter().map(|one| one.signature.as_bytes().as_slice()).collect(),
        }
    }
}
