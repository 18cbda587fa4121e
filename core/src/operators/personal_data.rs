//! Erasure of personal data: of orders by the age of their end (the retention job), and of an order or a beneficiary when
//! one operator requests it and another one approves it ([`crate::operators::approvals`]).
//!
//! Nothing is erased that has not ended: an order with funds, a payment, a recall or a decision on its way, or a
//! beneficiary that can be paid. What is left of an order is what the books need: amounts, references, hashes, times.
//!
//! Triggers let the free text of an erased order change and nothing else, and an erased entry of the audit log is
//! named by a later one.
//!
//! Kept by `core/tests/it/personal_data.rs::an_order_is_erased_by_two_operators_from_every_column_and_the_books_stay`
//! and
//! `core/tests/it/personal_data.rs::the_audit_log_of_an_erased_order_is_verified_and_an_unexplained_erasure_is_found`.

use std::time::Duration;

use dvp_domain::terms::Terms;
use dvp_rails::iso20022::text::plain;
use dvp_store::operators::approvals::Approval;
use dvp_store::partners::personal::orders::EndedOrder;
use dvp_store::partners::personal::{Words, beneficiaries, messages, orders, trail};
use dvp_store::{Acquire as _, PgConnection, StoreError};
use serde::{Deserialize, Serialize};

use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

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
    let mut tx = conn.begin().await?;
    let words = check(&mut tx, erasure).await;
    // Only read: the locks end here.
    tx.rollback().await?;
    if words?.are_in(&format!("{} {}", maker.reason, maker.evidence)) {
        return Err(ErasureError::Repeated);
    }
    let change = SettingChange { kind: PERSONAL_DATA, subject: erasure.subject(), action: "erase" };
    Ok(requests::request_change(conn, change, erasure, maker).await?)
}

/// Erases what another operator requested, when it is approved.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), ErasureError> {
    let erasure: Erasure = requests::unmoved(conn, request).await?;
    let words = check(conn, &erasure).await?;
    match &erasure {
        Erasure::Beneficiary { id } => Ok(beneficiaries::erase(conn, id, &words).await?),
        Erasure::Order { reference, client_reference } => {
            erase_order(conn, reference, *client_reference).await?;
            Ok(())
        }
    }
}

/// Whether a subject is erased, and whether it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureStatus {
    pub is_erased: bool,
    /// Why it may not be.
    pub unended: Option<String>,
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
                let client_reference = reference_of(conn, &order.terms).await?;
                let status = ErasureStatus { is_erased: order.is_erased, unended: order.unended };
                Found { status, words, client_reference }
            }
            None => return Err(unknown()),
        },
        Erasure::Beneficiary { id } => {
            let found = beneficiaries::lock(conn, id).await?.ok_or_else(unknown)?;
            let unended = (found.payable > 0 || found.open_orders > 0).then(|| {
                format!(
                    "{} of its destinations are not disabled, {} orders that name it have not ended",
                    found.payable, found.open_orders
                )
            });
            let status = ErasureStatus { is_erased: found.is_erased, unended };
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
pub async fn erase_order(
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
