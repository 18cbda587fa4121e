//! Partners with their keys, sessions' and endpoints' owners; an administrator disables and enables them.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Redirect};
use chrono::{DateTime, Utc};
use dvp_core::operators::partners::{self as core_partners, CreateError, SwitchError, Tier};
use dvp_store::database::changes::Subject;
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::partners::registry::{self, PartnerRow};
use dvp_store::{Acquire as _, PgConnection, StoreError};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form as FormBlock};
use crate::error::{PageError, sentence};
use crate::navigation::ADMINISTRATION;
use crate::operator::Operator;
use crate::request::{Asked, Reply, Sent, Visit, lead_to};
use crate::routes::credentials;
use crate::view::{self};

const ROWS: i64 = 100;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct PartnersQuery {
    #[serde(default)]
    after: String,
}

fn state(partner: &PartnerRow) -> Cell {
    Cell::state(if partner.disabled_at.is_none() { "enabled" } else { "disabled" })
}

pub(crate) async fn list(Visit { console, operator }: Visit, Asked(query): Asked<PartnersQuery>) -> Reply {
    let mut conn = console.reading().await?;
    let partners = registry::list_partners(&mut conn, &query.after, ROWS).await?;
    drop(conn);
    let rows = partners.iter().map(|row| {
        vec![
            Cell::link(&row.name, view::partner(&row.name)),
            Cell::id(&row.id),
            Cell::text(&row.tier),
            Cell::count(row.limit_per_minute),
            state(row),
            Cell::time(row.created_at),
            Cell::link("show", format!("/orders?partner={}", view::segment(&row.name))),
        ]
    });
    let headings = ["Partner", "Id", "Tier", "#Requests a minute", "State", "Since", "Orders"];
    let mut table = Block::table("Partners", &headings, "There is no partner.", rows);
    let is_full = i64::try_from(partners.len()) == Ok(ROWS);
    table.older = partners
        .last()
        .filter(|_| is_full)
        .map(|row| format!("/partners?after={}", view::segment(&row.name)));
    let mut all = vec![table];
    if operator.may(ADMINISTRATION) {
        all.push(Block::forms("New partner", vec![new_form()]).half());
    }
    blocks::render(operator.page("Partners", "Partners").live(&[Subject::Partners]), None, all)
}

/// The form that creates a partner.
fn new_form() -> FormBlock {
    let fields = vec![
        Field::text("name", "Name"),
        Field::choice("tier", "Tier", Tier::ALL.map(Tier::as_str)),
        Field::text("limit", "Requests a minute (the tier's when empty)").optional(),
        Field::text("reason", "Reason"),
    ];
    FormBlock::new("/partners", "Create the partner", fields)
}

#[derive(Debug, Deserialize)]
pub(crate) struct NewPartner {
    name: String,
    tier: String,
    #[serde(default)]
    limit: String,
    reason: String,
}

impl NewPartner {
    fn terms(&self) -> Result<(Tier, Option<i64>), PageError> {
        let tier = Tier::ALL.into_iter().find(|tier| tier.as_str() == self.tier);
        let tier = tier.ok_or_else(|| PageError::Invalid(format!("There is no tier {}.", self.tier)))?;
        let limit = self.limit.trim();
        if limit.is_empty() {
            return Ok((tier, None));
        }
        let wrong = |_| PageError::Invalid("The requests a minute are a whole number.".to_owned());
        Ok((tier, Some(limit.parse().map_err(wrong)?)))
    }
}

/// Creates a partner, which can do nothing before it has a key or a session.
pub(crate) async fn create(Visit { console, operator }: Visit, Sent(form): Sent<NewPartner>) -> Reply {
    const ROUTE: &str = "POST /partners";
    let (tier, limit) = form.terms()?;
    let (name, reason) = (form.name.trim(), form.reason.trim());
    let mut conn = console.acting().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    let done = if reason.is_empty() {
        Err(PageError::Conflict("A reason is needed.".to_owned()))
    } else {
        core_partners::create(&mut tx, name, tier, limit).await.map_err(|error| match error {
            CreateError::Store(error) => error.into(),
            refused => PageError::Conflict(sentence(&refused.to_string())),
        })
    };
    let action = if done.is_ok() { ConsoleAction::Acted } else { ConsoleAction::Refused };
    operator.record(&mut tx, action, ROUTE, &format!("{name}: {reason}")).await?;
    tx.commit().await.map_err(StoreError::from)?;
    done.map(|_| Redirect::to(&view::partner(name)).into_response())
}

async fn find(conn: &mut PgConnection, name: &str) -> Result<PartnerRow, PageError> {
    registry::find_partner(conn, name).await?.ok_or_else(|| PageError::NotFound(format!("partner {name}")))
}

pub(crate) async fn show(Visit { console, operator }: Visit, Path(name): Path<String>) -> Reply {
    let mut conn = console.reading().await?;
    let partner = find(&mut conn, &name).await?;
    let keys = registry::list_keys(&mut conn, Some(&partner.id), "", ROWS).await?;
    let actions = registry::list_actions(&mut conn, &partner.id, ROWS).await?;
    drop(conn);
    let facts = vec![
        ("Id", Cell::id(&partner.id)),
        ("Tier", Cell::text(&partner.tier)),
        ("Requests a minute", Cell::text(view::count(partner.limit_per_minute))),
        ("Since", Cell::time(partner.created_at)),
        ("Orders", Cell::link("Show its orders", format!("/orders?partner={}", view::segment(&name)))),
    ];
    let key_rows = keys.iter().map(|row| {
        let state = match (row.revoked_at, row.disabled_at) {
            (Some(_), _) => Cell::toned("revoked", "idle"),
            (None, Some(_)) => Cell::state("disabled"),
            (None, None) => Cell::state("active"),
        };
        vec![
            Cell::id(&row.key_id),
            Cell::id(format!("{}…", row.key_prefix)),
            Cell::text(&row.env),
            state,
            Cell::text(row.scopes.join(", ")),
            Cell::time(row.created_at),
        ]
    });
    let headings = ["Key", "Begins with", "Environment", "State", "Scopes", "Issued (UTC)"];
    let mut key_forms = Vec::new();
    if operator.may(ADMINISTRATION) {
        key_forms.push(credentials::issue_form(&name));
        key_forms.extend(credentials::key_forms(&keys));
    }
    let keys = Block::table("API keys", &headings, "The partner has no key.", key_rows).with_forms(key_forms);
    let action_rows = actions.iter().map(|row| {
        vec![Cell::time(row.at), Cell::text(&row.action), Cell::text(&row.operator), Cell::text(&row.reason)]
    });
    let headings = ["Time (UTC)", "Action", "Operator", "Reason"];
    let actions =
        Block::table("Operators' actions", &headings, "The partner was never disabled.", action_rows);
    let mut all = vec![Block::facts("Partner", facts).half()];
    if operator.may(ADMINISTRATION) {
        let is_enabled = partner.disabled_at.is_none();
        let (action, button) = if is_enabled { ("disable", "Disable") } else { ("enable", "Enable") };
        let seen = partner.disabled_at.map(|at| Field::seen("disabled_at", at));
        let fields = seen.into_iter().chain([Field::text("reason", "Reason")]).collect();
        let form = FormBlock::new(format!("{}/{action}", view::partner(&name)), button, fields);
        let form = if is_enabled { form.dangerous() } else { form };
        all.push(Block::forms("Change", vec![form]).half());
    }
    all.extend([keys, actions]);
    let state = state(&partner);
    blocks::render(
        operator.page("Partners", format!("Partner {name}")).live(&[Subject::Partners, Subject::Approvals]),
        Some(state),
        all,
    )
}

#[derive(Debug, Deserialize)]
pub(crate) struct Why {
    reason: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EnableForm {
    /// When the partner was disabled, as the operator saw it.
    disabled_at: DateTime<Utc>,
    reason: String,
}

pub(crate) async fn disable(
    Visit { console, operator }: Visit,
    Path(name): Path<String>,
    Sent(Why { reason }): Sent<Why>,
) -> Reply {
    let mut conn = console.acting().await?;
    let done = core_partners::switch(&mut conn, &name, false, &operator.name, &reason).await;
    switched(&mut conn, &operator, "POST /partners/{name}/disable", &name, done.map(|_| ())).await
}

pub(crate) async fn enable(
    Visit { console, operator }: Visit,
    Path(name): Path<String>,
    Sent(EnableForm { disabled_at, reason }): Sent<EnableForm>,
) -> Reply {
    let mut conn = console.acting().await?;
    let done = core_partners::enable_seen(&mut conn, &name, disabled_at, &operator.name, &reason).await;
    switched(&mut conn, &operator, "POST /partners/{name}/enable", &name, done).await
}

/// Shows the partner, or records that it was not switched.
async fn switched(
    conn: &mut PgConnection,
    operator: &Operator,
    route: &str,
    name: &str,
    done: Result<(), SwitchError>,
) -> Reply {
    match done {
        Ok(()) => lead_to(&view::partner(name)),
        Err(SwitchError::Store(error)) => Err(error.into()),
        Err(SwitchError::Unknown(name)) => Err(PageError::NotFound(format!("partner {name}"))),
        Err(error @ (SwitchError::NoReason | SwitchError::Changed)) => {
            operator.record(conn, ConsoleAction::Refused, route, name).await?;
            Err(PageError::Conflict(sentence(&error.to_string())))
        }
    }
}
