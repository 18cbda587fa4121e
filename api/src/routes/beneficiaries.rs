//! `/v1/beneficiaries`: the recipients that are registered for the partner, entered by operators or by itself.

use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use dvp_core::operators::beneficiaries::{EntryError, enter_by_partner};
use dvp_domain::beneficiary::{Beneficiary, MaskedBeneficiary};
use dvp_store::partners::beneficiaries::{self, DestinationRow};
use serde::Serialize;

use super::account::list;
use super::intents::parse;
use crate::access::auth::Caller;
use crate::http::error::{ApiError, Reply, json, text};
use crate::http::fields::{Object, fault, take_body};
use crate::state::Api;
use crate::wire::{RECIPIENT, RECIPIENT_DETAILS};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecipientView {
    /// As `beneficiary.account` of an intent takes it.
    account: String,
    status: &'static str,
    currency: String,
    payout_method: Option<&'static str>,
    country: Option<String>,
    #[serde(flatten)]
    masked: MaskedBeneficiary,
}

impl RecipientView {
    fn of(api: &Api, row: DestinationRow) -> Self {
        let (account, details) = (row.account(), row.destination.details);
        let hash = |account: &str| api.engine.context().vault.account_hash(account);
        Self {
            account,
            status: row.destination.status.as_str(),
            currency: row.destination.currency,
            payout_method: details.payout_method.map(|method| method.as_str()),
            masked: MaskedBeneficiary::of(&details, hash),
            country: details.country,
        }
    }
}

/// The oldest first.
pub(crate) async fn show(State(api): State<Api>, caller: Caller) -> Reply {
    let mut conn = api.engine.reads().acquire().await?;
    let rows = beneficiaries::list_destinations(&mut conn, Some(&caller.tenant.partner_id)).await?;
    list(rows.into_iter().map(|row| RecipientView::of(&api, row)).collect())
}

pub(crate) struct Recipient {
    currency: String,
    details: Beneficiary,
}

impl FromRequest<Api> for Recipient {
    type Rejection = ApiError;

    async fn from_request(request: Request, _api: &Api) -> Result<Self, ApiError> {
        let body = take_body(request).await?;
        let fields = Object::root(&body, RECIPIENT)?;
        let currency = fields.id("currency")?;
        if currency.len() != 3 || !currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(fields.fault("currency", "must be three capital letters, as of ISO 4217"));
        }
        let details = parse::beneficiary(&fields.object("beneficiary", RECIPIENT_DETAILS)?)?;
        if details.is_reference() {
            return Err(fault("beneficiary.account", "must be an account, not a registered one"));
        }
        Ok(Self { currency: currency.to_owned(), details })
    }
}

/// An operator verifies it before it is paid. The same recipient again is answered as it stands.
pub(crate) async fn register(
    State(api): State<Api>,
    caller: Caller,
    Recipient { currency, details }: Recipient,
) -> Reply {
    let mut conn = api.engine.pool().acquire().await?;
    let (partner, by) = (&caller.tenant.partner_id, format!("key:{}", caller.key_id));
    let (row, is_new) = enter_by_partner(&mut conn, partner, &details, &currency, &by).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, text(&RecipientView::of(&api, row))))
}

impl From<EntryError> for ApiError {
    fn from(error: EntryError) -> Self {
        let field = match &error {
            EntryError::Missing(field) => format!("beneficiary.{field}"),
            EntryError::Fault(why) => format!("beneficiary.{}", why.field.as_str()),
            EntryError::Unpayable(why) => why.field.to_owned(),
            EntryError::TooMany => "body".to_owned(),
            EntryError::Store(_) => String::new(),
        };
        match error {
            EntryError::Store(error) => error.into(),
            EntryError::Missing(_) => fault(&field, "is required"),
            EntryError::Fault(why) => fault(&field, why.problem),
            EntryError::Unpayable(why) => fault(&field, why),
            EntryError::TooMany => fault(&field, error),
        }
    }
}
