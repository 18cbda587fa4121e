//! Invitations of operators and changes of their roles, requested by one operator and approved by another one.
//!
//! ```text
//! requested --approved--> operator added --link made, by its approver--> link and code, together, sign in
//!     '-- code, shown to the maker ------------------------------------------^
//! ```
//!
//! Invariants: neither the operator who requests an invitation nor the one who approves it can use it alone, so that
//! nobody adds a second operator to approve its own requests; nobody requests or approves a change of its own roles; an
//! approved request has one link.
//!
//! Kept by `console/tests/it/invitations.rs::an_invitation_takes_two_operators_and_a_code_and_a_link`.

use chrono::{DateTime, Duration, Utc};
use dvp_domain::operator::OperatorRole;
use dvp_store::database::clock;
use dvp_store::operators::accounts as store;
use dvp_store::operators::accounts::sessions::{self, NewLink};
use dvp_store::operators::accounts::tokens;
use dvp_store::operators::approvals::{self, Approval};
use dvp_store::{PgConnection, StoreError};
use serde::{Deserialize, Serialize};

use crate::operators::accounts::{self, LINK_GOOD_FOR, OperatorError, new_token, token_hash};
use crate::operators::requests::{
    self, ChangeError, Maker, RequestedChange, SettingChange, is_same_operator,
};

/// The kind of requests about operators.
pub const OPERATOR: &str = "operator";

const INVITE: &str = "invite";
const SET_ROLES: &str = "set_roles";
const LINK: &str = "new_link";
const IDENTIFY: &str = "set_identity";
const ENABLE: &str = "enable";
const TOKEN: &str = "service_token";
/// Random bytes of a code.
const CODE_BYTES: usize = 10;

/// What is requested of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
struct OperatorChange {
    name: String,
    roles: Vec<OperatorRole>,
    /// The roles at the request.
    roles_before: Vec<OperatorRole>,
    /// SHA-256 of the code that the link needs, in hex.
    code_sha256: Option<String>,
    /// The address of its account at the identity provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<ServiceToken>,
}

/// A token of a service operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct ServiceToken {
    /// Of the token, in hex.
    pub sha256: String,
    /// What it is good for.
    pub actions: Vec<String>,
    pub until: DateTime<Utc>,
}

impl OperatorChange {
    const fn of(name: String, roles: Vec<OperatorRole>, roles_before: Vec<OperatorRole>) -> Self {
        Self { name, roles, roles_before, code_sha256: None, email: None, token: None }
    }

    /// Of an operator whose roles stay.
    fn about(operator: store::OperatorRow) -> Self {
        Self::of(operator.name, operator.roles.clone(), operator.roles)
    }
}

/// Why an operator was not invited or changed.
#[derive(Debug, thiserror::Error)]
pub enum InvitationError {
    #[error("another administrator requests changes of your own account")]
    OwnAccount,
    #[error("an operator does not approve changes of its own account: a third one does")]
    Beneficiary,
    #[error("the operator has these roles already")]
    Unchanged,
    #[error("the operator is disabled")]
    Disabled,
    #[error("the operator is not disabled")]
    Enabled,
    #[error("the request is not an approved invitation, or another operator approved it")]
    NoInvitation,
    #[error("the link was made already, or a day has passed since the approval: request a new link")]
    LinkMade,
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request and the code that its maker gives to the operator. The code is stored nowhere.
#[derive(Debug)]
pub struct RequestedInvitation {
    pub requested: RequestedChange,
    pub code: String,
}

/// The stored hash of a code as it was typed.
pub fn code_hash(code: &str) -> [u8; 32] {
    let plain: String = code.chars().filter(char::is_ascii_alphanumeric).collect();
    token_hash(&plain.to_ascii_lowercase())
}

/// A new code, in groups of four.
fn new_code() -> Result<String, OperatorError> {
    let mut bytes = [0_u8; CODE_BYTES];
    getrandom::fill(&mut bytes)?;
    let pairs: Vec<String> = bytes.chunks(2).map(hex::encode).collect();
    Ok(pairs.join("-"))
}

/// Requests that an operator is added.
pub async fn request_invitation(
    conn: &mut PgConnection,
    name: &str,
    roles: &[OperatorRole],
    maker: Maker<'_>,
) -> Result<RequestedInvitation, InvitationError> {
    accounts::check(name, roles)?;
    if store::find_by_name(conn, name).await?.is_some() {
        return Err(OperatorError::NameTaken(name.to_owned()).into());
    }
    let change = OperatorChange::of(name.to_owned(), roles.to_vec(), Vec::new());
    with_code(conn, INVITE, change, maker).await
}

/// Requests a new link for an operator who cannot sign in any more.
pub async fn request_link(
    conn: &mut PgConnection,
    name: &str,
    maker: Maker<'_>,
) -> Result<RequestedInvitation, InvitationError> {
    let operator = other(conn, name, maker).await?;
    with_code(conn, LINK, OperatorChange::about(operator), maker).await
}

/// Requests other roles for an operator.
pub async fn request_roles(
    conn: &mut PgConnection,
    name: &str,
    roles: &[OperatorRole],
    maker: Maker<'_>,
) -> Result<RequestedChange, InvitationError> {
    let operator = other(conn, name, maker).await?;
    accounts::check(&operator.name, roles)?;
    if is_same(&operator.roles, roles) {
        return Err(InvitationError::Unchanged);
    }
    let change = OperatorChange::of(operator.name, roles.to_vec(), operator.roles);
    request(conn, SET_ROLES, &change, maker).await
}

/// Requests the address by which an operator signs in at the identity provider; none: it does so no more.
pub async fn request_identity(
    conn: &mut PgConnection,
    name: &str,
    email: Option<&str>,
    maker: Maker<'_>,
) -> Result<RequestedChange, InvitationError> {
    let operator = other(conn, name, maker).await?;
    let change = OperatorChange { email: email.map(ToOwned::to_owned), ..OperatorChange::about(operator) };
    request(conn, IDENTIFY, &change, maker).await
}

/// Requests that a disabled operator may sign in again.
pub async fn request_enabling(
    conn: &mut PgConnection,
    name: &str,
    maker: Maker<'_>,
) -> Result<RequestedChange, InvitationError> {
    let operator = accounts::named(conn, name).await?;
    if operator.disabled_at.is_none() {
        return Err(InvitationError::Enabled);
    }
    request(conn, ENABLE, &OperatorChange::about(operator), maker).await
}

/// Requests a token of a service operator.
pub async fn request_token(
    conn: &mut PgConnection,
    name: &str,
    token: ServiceToken,
    maker: Maker<'_>,
) -> Result<RequestedChange, InvitationError> {
    let operator = other(conn, name, maker).await?;
    let change = OperatorChange { token: Some(token), ..OperatorChange::about(operator) };
    request(conn, TOKEN, &change, maker).await
}

/// Makes a token of a service operator good.
pub async fn insert_token(
    conn: &mut PgConnection,
    name: &str,
    token: &ServiceToken,
) -> Result<(), InvitationError> {
    let operator = accounts::named(conn, name).await?;
    let hash = hex::decode(&token.sha256).map_err(|error| StoreError::corrupt("approval", error))?;
    Ok(tokens::insert_service(conn, &operator.id, &hash, &token.actions, token.until).await?)
}

fn is_same(one: &[OperatorRole], other: &[OperatorRole]) -> bool {
    one.iter().all(|role| other.contains(role)) && other.iter().all(|role| one.contains(role))
}

/// An operator that can sign in, and is not the maker.
async fn other(
    conn: &mut PgConnection,
    name: &str,
    maker: Maker<'_>,
) -> Result<store::OperatorRow, InvitationError> {
    let operator = accounts::named(conn, name).await?;
    if is_same_operator(&operator.name, maker.operator) {
        return Err(InvitationError::OwnAccount);
    }
    if operator.disabled_at.is_some() { Err(InvitationError::Disabled) } else { Ok(operator) }
}

async fn with_code(
    conn: &mut PgConnection,
    action: &str,
    change: OperatorChange,
    maker: Maker<'_>,
) -> Result<RequestedInvitation, InvitationError> {
    let code = new_code()?;
    let change = OperatorChange { code_sha256: Some(hex::encode(code_hash(&code))), ..change };
    let requested = request(conn, action, &change, maker).await?;
    Ok(RequestedInvitation { requested, code })
}

async fn request(
    conn: &mut PgConnection,
    action: &str,
    change: &OperatorChange,
    maker: Maker<'_>,
) -> Result<RequestedChange, InvitationError> {
    let subject = change.name.to_lowercase();
    let wanted = SettingChange { kind: OPERATOR, subject: &subject, action };
    Ok(requests::request_change(conn, wanted, change, maker).await?)
}

/// Adds or changes an operator when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
    checker: &str,
) -> Result<(), InvitationError> {
    let change: OperatorChange = requests::unmoved(conn, request).await?;
    if is_same_operator(&change.name, checker) {
        return Err(InvitationError::Beneficiary);
    }
    if request.action == INVITE {
        accounts::add(conn, &change.name, &change.roles, &request.maker).await?;
        return Ok(());
    }
    let operator = accounts::named(conn, &change.name).await?;
    if operator.disabled_at.is_some() != (request.action == ENABLE) {
        return Err(if request.action == ENABLE {
            InvitationError::Enabled
        } else {
            InvitationError::Disabled
        });
    }
    if !is_same(&operator.roles, &change.roles_before) {
        return Err(ChangeError::Moved.into());
    }
    match (request.action.as_str(), &change.token) {
        (SET_ROLES, _) => {
            store::update_roles(conn, &operator.id, &change.roles).await?;
        }
        (ENABLE, _) => {
            store::set_disabled(conn, &operator.id, false).await?;
        }
        (IDENTIFY, _) => {
            accounts::identify(conn, &change.name, change.email.as_deref()).await?;
        }
        (TOKEN, Some(token)) => insert_token(conn, &change.name, token).await?,
        _ => {}
    }
    Ok(())
}

/// Whether an operator has approved an invitation whose link can still be made.
pub fn may_make_link(request: &Approval, checker: &str) -> bool {
    let is_invitation = request.kind == OPERATOR && [INVITE, LINK].contains(&request.action.as_str());
    let is_checker = request.checker.as_deref().is_some_and(|name| is_same_operator(name, checker));
    let is_recent = request.decided_at.is_some_and(|at| clock::now().to_utc() - at < Duration::days(1));
    is_invitation && is_checker && is_recent && request.state == "approved"
}

/// Makes the link of an approved invitation, once, for the operator who approved it. Returns the name and the token,
/// which is stored nowhere.
pub async fn make_link(
    conn: &mut PgConnection,
    approval_id: &str,
    checker: &str,
) -> Result<(String, String), InvitationError> {
    let request = approvals::find(conn, approval_id).await?.ok_or(InvitationError::NoInvitation)?;
    if !may_make_link(&request, checker) {
        return Err(InvitationError::NoInvitation);
    }
    let change: OperatorChange = requests::read(&request)?;
    let operator = accounts::named(conn, &change.name).await?;
    if operator.disabled_at.is_some() {
        return Err(InvitationError::Disabled);
    }
    let corrupt = || StoreError::corrupt("approval", format_args!("the code of {approval_id}"));
    let mut code_hash = [0; 32];
    let code = change.code_sha256.ok_or_else(corrupt)?;
    hex::decode_to_slice(code, &mut code_hash).map_err(|_| corrupt())?;
    let token = new_token().map_err(OperatorError::from)?;
    let link = NewLink {
        operator_id: &operator.id,
        token_hash: &token_hash(&token),
        reusable: false,
        good_for: LINK_GOOD_FOR,
        code_hash: Some(&code_hash),
        approval_id: Some(approval_id),
    };
    match sessions::insert_link(conn, &link).await {
        Err(error) if error.constraint() == Some("operator_link_approval_key") => {
            Err(InvitationError::LinkMade)
        }
        inserted => Ok(inserted.map(|()| (operator.name, token))?),
    }
}
