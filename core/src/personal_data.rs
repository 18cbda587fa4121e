//! Erasure of personal data: of orders by the age of their end (the retention job), and of an order or a beneficiary when
//! one operator requests it and another one approves it ([`crate::approvals`]).
//!
//! Nothing is erased that has not ended: an order with funds, a payment, a recall or a decision on its way, or a
//! beneficiary that can be paid. What is left of an order is what the books need: amounts, references, hashes, times.
//! A database may have copies of what orders of another cell had ([`copies`]): to erase such an order erases them here.

use std::time::Duration;

use dvp_domain::cell::CellId;
use dvp_domain::terms::Terms;
use dvp_rails::iso20022::text::plain;
use dvp_store::approvals::Approval;
use dvp_store::personal::orders::EndedOrder;
use dvp_store::personal::{Words, beneficiaries, copies, messages, orders, trail};
use dvp_store::{Acquire as _, PgConnection, StoreError, moves};
use serde::{Deserialize, Serialize};

use crate::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

/// The kind of requests about personal data.
pub const PERSONAL_DATA: &str = "personal_data";

/// The least age of erasure: a bank may be asked to give a payment back for thirteen months.
pub const AGE_LEAST: Duration = Duration::from_secs(400 * 86_400);

/// Letters of a name in a bank's file.
const NAME_MAX: usize = 140;

/// Whose personal data is erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "of")]
pub enum Erasure {
    /// Of an order: the beneficiary's details, what the partner gave as metadata, and copies of both.
    #[serde(rename_all = "camelCase")]
    Order {
        reference: String,
        /// Also the partner's reference, in the receipt, too.
        client_reference: bool,
    },
    /// Of a registered beneficiary: its name, address and accounts.
    Beneficiary { id: String },
}

impl Erasure {
    /// The order's execution, or the beneficiary's id.
    pub fn subject(&self) -> &str {
        match self {
            Self::Order { reference, .. } => reference,
            Self::Beneficiary { id } => id,
        }
    }
}

/// Why personal data was not erased, or its erasure not requested.
#[derive(Debug, thiserror::Error)]
pub enum ErasureError {
    #[error("there is no order or beneficiary {0}")]
    Unknown(String),
    #[error("{subject} is not erased: {why}")]
    Unended { subject: String, why: String },
    #[error("the personal data of {0} was erased before")]
    Erased(String),
    #[error("{0} came over FIX: its client reference is the ClOrdID, which its session never uses again")]
    ClOrdId(String),
    #[error("reason and evidence repeat what is to be erased")]
    Repeated,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for ErasureError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Requests an erasure.
pub async fn request(
    conn: &mut PgConnection,
    erasure: &Erasure,
    maker: Maker<'_>,
) -> Result<RequestedChange, ErasureError> {
    let details = serde_json::to_value(erasure).map_err(|error| StoreError::corrupt("approval", error))?;
    let mut tx = conn.begin().await?;
    let words = check(&mut tx, erasure).await;
    // Only read: the locks end here.
    tx.rollback().await?;
    if words?.are_in(&format!("{} {}", maker.reason, maker.evidence)) {
        return Err(ErasureError::Repeated);
    }
    let change =
        SettingChange { kind: PERSONAL_DATA, subject: erasure.subject(), action: "erase", details: &details };
    Ok(requests::request_change(conn, change, maker).await?)
}

/// Erases what another operator requested, when it is approved.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), ErasureError> {
    requests::check_unmoved(conn, request).await?;
    let erasure: Erasure = serde_json::from_value(request.details.clone())
        .map_err(|error| StoreError::corrupt("approval", error))?;
    let words = check(conn, &erasure).await?;
    match &erasure {
        Erasure::Beneficiary { id } => Ok(beneficiaries::erase(conn, id, &words).await?),
        Erasure::Order { reference, client_reference } => {
            erase_order(conn, reference, *client_reference).await?;
            Ok(copies::erase(conn, reference, *client_reference).await?)
        }
    }
}

/// Whether a subject is erased, and whether it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureStatus {
    pub is_erased: bool,
    /// Why it may not be.
    pub unended: Option<String>,
    /// Other cells that may have the same data, where it is erased by a request of its own.
    pub also_in_cells: Vec<String>,
}

/// Whether a subject is erased, and whether it may be.
pub async fn status(conn: &mut PgConnection, erasure: &Erasure) -> Result<ErasureStatus, ErasureError> {
    let mut tx = conn.begin().await?;
    let found = look(&mut tx, erasure).await;
    // Only read: the locks end here.
    tx.rollback().await?;
    found.map(|found| found.status)
}

/// What is known of a subject, which is locked until the transaction ends.
struct Found {
    status: ErasureStatus,
    words: Words,
    client_reference: ClientReference,
}

/// The client's reference of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientReference {
    None,
    Known,
    /// The ClOrdID of a FIX session.
    ClOrdId,
}

async fn look(conn: &mut PgConnection, erasure: &Erasure) -> Result<Found, ErasureError> {
    let unknown = || ErasureError::Unknown(erasure.subject().to_owned());
    Ok(match erasure {
        Erasure::Order { reference, .. } => match orders::lock(conn, reference).await? {
            Some(order) => {
                let words = words(&order);
                let also_in_cells = moves::list_other_cells(conn, order.terms.partner_id.as_str()).await?;
                let client_reference = reference_of(conn, &order.terms).await?;
                let status =
                    ErasureStatus { is_erased: order.is_erased, unended: order.unended, also_in_cells };
                Found { status, words, client_reference }
            }
            None => look_at_copy(conn, reference).await?.ok_or_else(unknown)?,
        },
        Erasure::Beneficiary { id } => {
            let found = beneficiaries::lock(conn, id).await?.ok_or_else(unknown)?;
            let unended = (found.payable > 0 || found.open_orders > 0).then(|| {
                format!(
                    "{} of its destinations are not disabled, {} orders that name it have not ended",
                    found.payable, found.open_orders
                )
            });
            let also_in_cells = moves::list_other_cells(conn, &found.partner_id).await?;
            let status = ErasureStatus { is_erased: found.is_erased, unended, also_in_cells };
            Found { status, words: found.words, client_reference: ClientReference::None }
        }
    })
}

async fn reference_of(conn: &mut PgConnection, terms: &Terms) -> Result<ClientReference, StoreError> {
    Ok(match &terms.request.client_reference {
        None => ClientReference::None,
        Some(_) if messages::is_of_session(conn, terms).await? => ClientReference::ClOrdId,
        Some(_) => ClientReference::Known,
    })
}

/// An order of another cell. Whether it has ended is known there only.
async fn look_at_copy(conn: &mut PgConnection, reference: &str) -> Result<Option<Found>, StoreError> {
    let Some(copy) = copies::find(conn, reference).await? else { return Ok(None) };
    let also_in_cells = match &copy.partner_id {
        Some(partner) => moves::list_other_cells(conn, partner).await?,
        None => CellId::of_id(reference).iter().map(ToString::to_string).collect(),
    };
    let client_reference = match (copy.is_of_session, copy.has_client_reference) {
        (true, _) => ClientReference::ClOrdId,
        (false, true) => ClientReference::Known,
        (false, false) => ClientReference::None,
    };
    let status = ErasureStatus { is_erased: copy.is_erased, unended: None, also_in_cells };
    Ok(Some(Found { status, words: Words::default(), client_reference }))
}

/// Checks that a subject may be erased, and returns its words.
async fn check(conn: &mut PgConnection, erasure: &Erasure) -> Result<Words, ErasureError> {
    let Found { status, words, client_reference } = look(conn, erasure).await?;
    let subject = erasure.subject().to_owned();
    if let Some(why) = status.unended.filter(|_| !status.is_erased) {
        return Err(ErasureError::Unended { subject, why });
    }
    let reference_too = matches!(erasure, Erasure::Order { client_reference: true, .. });
    match client_reference {
        ClientReference::ClOrdId if reference_too => Err(ErasureError::ClOrdId(subject)),
        ClientReference::Known if reference_too => Ok(words),
        ClientReference::None | ClientReference::Known | ClientReference::ClOrdId => {
            if status.is_erased {
                Err(ErasureError::Erased(subject))
            } else {
                Ok(words)
            }
        }
    }
}

/// Who the recipient is, as our own documents and a bank's files have it.
fn words(order: &EndedOrder) -> Words {
    let mut words = Words::default();
    let mut add_name = |name: &str| {
        words.add_name(name);
        words.add_name(&plain(name, NAME_MAX));
    };
    order.registered.names.iter().for_each(|name| add_name(name));
    let Some(beneficiary) = &order.terms.request.beneficiary else { return words };
    beneficiary.name().into_iter().for_each(add_name);
    order.registered.accounts.iter().for_each(|account| words.add(account));
    beneficiary.account().filter(|_| !beneficiary.is_reference()).into_iter().for_each(|one| words.add(one));
    if let Some(address) = &beneficiary.address {
        words.add(&address.line1);
        words.add(&plain(&address.line1, NAME_MAX));
    }
    words
}

/// Erases an order's personal data in the caller's transaction. `false`: it has not ended, or was erased before.
async fn erase_order(
    conn: &mut PgConnection,
    reference: &str,
    client_reference: bool,
) -> Result<bool, StoreError> {
    let Some(order) = orders::lock(conn, reference).await? else { return Ok(false) };
    if order.unended.is_some() || (order.is_erased && !client_reference) {
        return Ok(false);
    }
    let words = words(&order);
    orders::erase(conn, &order.terms, client_reference).await?;
    messages::erase_facts(conn, &order.terms).await?;
    trail::erase_order(conn, &order.terms, &words).await?;
    Ok(true)
}

/// Erases orders that ended before this age, intents that were rejected before, and copies of orders of another cell
/// that were made before, `limit` of each at most. Returns their number.
pub async fn erase_aged(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let mut erased = orders::erase_rejected(conn, age, limit).await?;
    erased = erased.saturating_add(copies::erase_aged(conn, age, limit).await?);
    for reference in orders::list_due(conn, age, limit).await? {
        erased = erased.saturating_add(u64::from(erase_order(conn, &reference, false).await?));
    }
    Ok(erased)
}
