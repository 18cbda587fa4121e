//! Treasury: balances, limits, price bands and pauses, and what may be done about them.

use dvp_core::ledger::statements::account_name;
use dvp_store::database::changes::Subject;
use dvp_store::ledger::balances;
use dvp_store::orders::abandonments;
use dvp_store::{operators::bands, operators::limits, operators::pauses};

use crate::blocks::{self, Block, Cell};
use crate::offers::Offer;
use crate::request::{Reply, Visit};
use crate::routes::statement;
use crate::view;

/// The most balances of the list, and the most cool-downs.
const BALANCES: i64 = 500;
const COOL_DOWNS: i64 = 100;

pub(crate) async fn show(Visit { console, operator }: Visit) -> Reply {
    let mut conn = console.reading().await?;
    let held = balances::list(&mut conn, BALANCES).await?;
    let set = limits::list(&mut conn).await?;
    let cooling = abandonments::list_cooling(&mut conn, COOL_DOWNS).await?;
    let widths = bands::list(&mut conn).await?;
    let paused = pauses::list(&mut conn).await?;
    drop(conn);
    let amount = |minor: &str, asset: &str| Cell::number(view::amount(minor, console.decimals(asset)));
    let balances = held.iter().map(|row| {
        vec![
            Cell::text(&row.owner_kind),
            Cell::found(&row.owner),
            Cell::text(&row.asset),
            amount(&row.available, &row.asset),
            amount(&row.reserved, &row.asset),
            statement_of(row),
        ]
    });
    let balances = Block::table(
        "Balances",
        &["Owner", "Id", "Asset", "#Available", "#Reserved", "Statement"],
        "Nobody holds anything.",
        balances,
    );
    let limits = set.iter().map(|row| {
        vec![
            Cell::text(view::words(&row.scope)),
            Cell::text(&row.target),
            Cell::text(&row.asset),
            Cell::text(&row.period),
            amount(&row.amount, &row.asset),
            amount(&row.used, &row.asset),
            amount(&row.open, &row.asset),
            Cell::link("request", view::approval(&row.approval)),
            Cell::offers(operator.offers([("limit set", "Change"), ("limit remove", "Remove")].map(
                |(action, label)| {
                    Offer::new(action, label)
                        .about("scope", &row.scope)
                        .about("target", &row.target)
                        .about("asset", &row.asset)
                        .about("per", &row.period)
                },
            ))),
        ]
    });
    let headings =
        ["Scope", "Target", "Asset", "Per", "#Limit", "#Accepted today", "#Open", "Approved by", "Change"];
    let limits = Block::table("Limits", &headings, "No limit is set.", limits);
    let cooling = cooling.iter().map(|row| {
        vec![
            Cell::text(view::words(&row.scope)),
            Cell::text(&row.subject),
            Cell::text([row.provider_id.as_str(), &row.asset].join(" ").trim()),
            Cell::number(row.orders.to_string()),
            Cell::time(row.since),
            Cell::time(row.until),
        ]
    });
    let headings = ["Scope", "Wallet or partner", "Provider", "#Orders let go", "Since", "Until"];
    let cool_downs =
        Block::table("Cool-downs", &headings, "Nobody's orders or quotes are refused for now.", cooling);
    let bands = widths.iter().map(|row| {
        vec![
            Cell::text(format!("{}/{}", row.input, row.output)),
            Cell::number(format!("{} bps", row.deviation_bps)),
            Cell::text(row.middle.clone().unwrap_or_else(|| "reference price".to_owned())),
            Cell::link("request", view::approval(&row.approval)),
            Cell::time(row.set_at),
            Cell::offers(operator.offers([("band set", "Change"), ("band remove", "Remove")].map(
                |(action, label)| {
                    Offer::new(action, label).about("pair", format!("{}/{}", row.input, row.output))
                },
            ))),
        ]
    });
    let headings = ["Pair", "#Width", "Around", "Approved by", "Since", "Change"];
    let bands = Block::table("Price bands", &headings, "The configured bands hold.", bands);
    let pauses = paused.iter().map(|row| {
        vec![
            Cell::toned(&row.scope, "warn"),
            Cell::text(&row.target),
            Cell::text(&row.operator),
            Cell::text(&row.reason),
            Cell::time(row.paused_at),
            Cell::offers(
                operator.offers([Offer::new("pause remove", "Resume")
                    .about("scope", &row.scope)
                    .about("target", &row.target)
                    .seen("paused-at", row.paused_at)]),
            ),
        ]
    });
    let headings = ["Scope", "Target", "By", "Reason", "Since", "Change"];
    let pauses = Block::table("Pauses", &headings, "Nothing is paused.", pauses);
    let all = vec![
        pauses.with_offers(operator.offers([Offer::new("pause add", "Pause").dangerous()])),
        limits.with_offers(operator.offers([Offer::new("limit set", "New limit")])),
        cool_downs,
        bands.with_offers(operator.offers([Offer::new("band set", "New band")])),
        Block::offers("Operations of the ledger", operator.offers(postings())),
        Block::offers("Deposits and makers", operator.offers(deposits().into_iter().chain(others()))),
        Block::facts(
            "Statements and reports",
            vec![
                ("Accounts", Cell::link("Show an account's entries", "/treasury/statement")),
                ("Fees", Cell::link("Show the fees of some days", "/treasury/fees")),
                ("Exposure", Cell::link("Show what is reserved or owed", "/treasury/exposure")),
            ],
        ),
        balances,
    ];
    let all = all.into_iter().filter(|block| !block.is_bare()).collect();
    blocks::render(
        operator.page("Treasury", "Treasury").live(&[Subject::Controls, Subject::Approvals, Subject::Feed]),
        None,
        all,
    )
}

/// Where the entries of what an owner has available are.
fn statement_of(row: &balances::BalanceRow) -> Cell {
    Cell::link("show", statement::address(&account_name(&row.owner_kind, &row.owner, "available")))
}

/// What the ledger is given by hand.
pub(crate) fn postings() -> [Offer; 8] {
    [
        Offer::new("ledger request charge", "Charge of the bank"),
        Offer::new("ledger request withdrawal", "Withdrawal"),
        Offer::new("ledger request return", "Return of a deposit"),
        Offer::new("ledger request adjustment", "Adjustment against the house"),
        Offer::new("ledger request fee-sweep", "Sweep of earned fees"),
        Offer::new("ledger request transfer", "Transfer between providers"),
        Offer::new("ledger request claim-settlement", "Settlement of a claim"),
        Offer::new("ledger request gift", "Gift to the escrow"),
    ]
}

/// Money that came in.
pub(crate) fn deposits() -> [Offer; 2] {
    [
        Offer::new("partner deposit", "Deposit of a partner"),
        Offer::new("provider deposit", "Deposit of a provider"),
    ]
}

fn others() -> [Offer; 5] {
    [
        Offer::new("bank import", "Import a statement of the bank"),
        Offer::new("maker place", "Place a maker's order"),
        Offer::new("maker cancel", "Cancel a maker's order"),
        Offer::new("maker set", "Let a partner make prices"),
        Offer::new("maker end", "End a maker"),
    ]
}
