//! Partners with their keys, and what an administrator may do about them.

use axum::extract::Path;
use dvp_store::PgConnection;
use dvp_store::database::changes::Subject;
use dvp_store::partners::registry::{self, ListedKey, PartnerRow};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell};
use crate::error::PageError;
use crate::offers::Offer;
use crate::request::{Asked, Reply, Visit};
use crate::view;

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
    let new = operator.offers([Offer::new("partner create", "New partner")]);
    let page = operator.page("Partners", "Partners").live(&[Subject::Partners]);
    blocks::render(page, None, vec![table.with_offers(new)])
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
            Cell::offers(operator.offers(key_offers(row))),
        ]
    });
    let headings = ["Key", "Begins with", "Environment", "State", "Scopes", "Issued (UTC)", "Change"];
    let issue = Offer::new("key issue", "Issue a key").about("partner", &name);
    let keys = Block::table("API keys", &headings, "The partner has no key.", key_rows)
        .with_offers(operator.offers([issue]));
    let action_rows = actions.iter().map(|row| {
        vec![Cell::time(row.at), Cell::text(&row.action), Cell::text(&row.operator), Cell::text(&row.reason)]
    });
    let headings = ["Time (UTC)", "Action", "Operator", "Reason"];
    let actions =
        Block::table("Operators' actions", &headings, "The partner was never disabled.", action_rows);
    let facts = Block::facts("Partner", facts).half().with_offers(operator.offers(offers(&partner)));
    let all = vec![facts, keys, actions];
    let state = state(&partner);
    blocks::render(
        operator.page("Partners", format!("Partner {name}")).live(&[Subject::Partners, Subject::Approvals]),
        Some(state),
        all,
    )
}

/// What can be done about a partner.
fn offers(partner: &PartnerRow) -> Vec<Offer> {
    let name = partner.name.as_str();
    let switch = match partner.disabled_at {
        None => Offer::new("partner disable", "Disable").about("name", name).dangerous(),
        Some(at) => Offer::new("partner enable", "Enable").about("name", name).seen("disabled-at", at),
    };
    vec![
        switch,
        Offer::new("fix-session add", "New FIX session").about("partner", name),
        Offer::new("partner instruct", "Standing instruction").about("name", name),
        Offer::new("partner deposit", "Credit a deposit").about("name", name),
        Offer::new("beneficiary create", "New beneficiary").about("partner", name),
        Offer::new("personal-data request", "Personal data").about("partner", name),
    ]
}

/// What can be done about a key.
fn key_offers(key: &ListedKey) -> Vec<Offer> {
    if key.revoked_at.is_some() {
        return Vec::new();
    }
    let offer = |action, label: &str| Offer::new(action, label).about("key-id", &key.key_id);
    let switch = if key.disabled_at.is_none() {
        offer("key disable", "Disable").dangerous()
    } else {
        offer("key enable", "Enable")
    };
    vec![switch, offer("key rotate", "Rotate"), offer("key revoke", "Revoke").dangerous()]
}
