//! Treasury: balances, limits, price bands and pauses, and requests to change them.

use chrono::{DateTime, Utc};
use dvp_core::ledger::statements::account_name;
use dvp_core::operators::bands::{self as core_bands, BandChange};
use dvp_core::operators::limits::{self as core_limits, LimitChange};
use dvp_core::operators::pauses::{self as core_pauses, PauseSwitch};
use dvp_core::operators::requests::Maker;
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_domain::pause::Scope;
use dvp_store::database::changes::Subject;
use dvp_store::ledger::balances;
use dvp_store::operators::pauses::PauseRow;
use dvp_store::orders::abandonments;
use dvp_store::{operators::bands, operators::limits, operators::pauses};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form as FormBlock};
use crate::error::{PageError, sentence};
use crate::navigation::TREASURY;
use crate::request::{Reply, Sent, Visit, lead_to};
use crate::routes::operations::Proposal;
use crate::routes::{operations, statement};
use crate::view::{self};

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
        ]
    });
    let headings = ["Scope", "Target", "Asset", "Per", "#Limit", "#Accepted today", "#Open", "Approved by"];
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
        ]
    });
    let headings = ["Pair", "#Width", "Around", "Approved by", "Since"];
    let bands = Block::table("Price bands", &headings, "The configured bands hold.", bands);
    let pauses = paused.iter().map(|row| {
        vec![
            Cell::toned(&row.scope, "warn"),
            Cell::text(&row.target),
            Cell::text(&row.operator),
            Cell::text(&row.reason),
            Cell::time(row.paused_at),
        ]
    });
    let headings = ["Scope", "Target", "By", "Reason", "Since"];
    let pauses = Block::table("Pauses", &headings, "Nothing is paused.", pauses);
    let may_change = operator.may(TREASURY);
    let forms = |forms: Vec<FormBlock>| if may_change { forms } else { Vec::new() };
    let all = vec![
        pauses.with_forms(forms(pause_forms(&paused))),
        limits.with_forms(forms(vec![limit_form()])),
        cool_downs,
        bands.with_forms(forms(vec![band_form()])),
        Block::forms("Operations of the ledger", forms(vec![operations::form(&Proposal::default())])),
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

/// The form that pauses, and one for each pause that ends it.
fn pause_forms(paused: &[PauseRow]) -> Vec<FormBlock> {
    let pause = vec![
        Field::choice("scope", "Scope", Scope::ALL.map(Scope::as_str)),
        Field::text("target", "Target").optional(),
        Field::text("reason", "Reason"),
    ];
    let resume = paused.iter().map(|row| {
        let fields = vec![
            Field::hidden("scope", row.scope.as_str()),
            Field::hidden("target", row.target.as_str()),
            Field::seen("paused_at", row.paused_at),
            Field::text("reason", "Reason"),
        ];
        let about = format!("{} {}", view::words(&row.scope), row.target);
        FormBlock::new("/treasury/pauses/remove", "Resume", fields).about(about.trim().to_owned())
    });
    let pause = FormBlock::new("/treasury/pauses/add", "Pause", pause).dangerous();
    std::iter::once(pause).chain(resume).collect()
}

fn limit_form() -> FormBlock {
    let fields = vec![
        Field::choice("scope", "Scope", LimitScope::ALL.map(LimitScope::as_str)),
        Field::text("target", "Target").optional(),
        Field::text("asset", "Asset"),
        Field::choice("period", "Per", Period::ALL.map(Period::as_str)),
        Field::text("amount", "Amount (empty: no limit)").optional(),
        Field::text("reason", "Reason"),
        Field::text("evidence", "Evidence"),
    ];
    FormBlock::new("/treasury/limits", "Request the limit", fields)
}

fn band_form() -> FormBlock {
    let fields = vec![
        Field::text("pair", "Pair (INPUT/OUTPUT)"),
        Field::text("bps", "Width in bps (empty: none)").optional(),
        Field::text("middle", "Around (empty: reference)").optional(),
        Field::text("reason", "Reason"),
        Field::text("evidence", "Evidence"),
    ];
    FormBlock::new("/treasury/bands", "Request the band", fields)
}

#[derive(Debug, Deserialize)]
pub(crate) struct PauseForm {
    scope: String,
    #[serde(default)]
    target: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ResumeForm {
    scope: String,
    #[serde(default)]
    target: String,
    /// When the pause began that the operator saw.
    paused_at: DateTime<Utc>,
    reason: String,
}

pub(crate) async fn pause(visit: Visit, Sent(form): Sent<PauseForm>) -> Reply {
    switch(visit, form, PauseSwitch::Pause).await
}

pub(crate) async fn resume(
    visit: Visit,
    Sent(ResumeForm { scope, target, paused_at, reason }): Sent<ResumeForm>,
) -> Reply {
    let form = PauseForm { scope, target, reason };
    switch(visit, form, PauseSwitch::ResumeSeen(paused_at)).await
}

async fn switch(
    Visit { console, operator }: Visit,
    PauseForm { scope, target, reason }: PauseForm,
    switch: PauseSwitch,
) -> Reply {
    let parsed =
        Scope::parse(&scope).ok_or_else(|| PageError::Invalid(format!("There is no scope {scope}.")))?;
    let mut conn = console.acting().await?;
    let (targets, name) = (&console.settings.targets, &operator.name);
    let done = core_pauses::switch(&mut conn, targets, switch, parsed, target.trim(), name, &reason).await;
    match done {
        Ok(_) => lead_to("/treasury"),
        Err(error) => {
            let route = match switch {
                PauseSwitch::Pause => "POST /treasury/pauses/add",
                PauseSwitch::Resume | PauseSwitch::ResumeSeen(_) => "POST /treasury/pauses/remove",
            };
            let error = match error {
                core_pauses::PauseError::Store(error) => error.into(),
                refused => PageError::Conflict(sentence(&refused.to_string())),
            };
            operator.refuse(&mut conn, route, &format!("{scope} {target}"), error).await
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct LimitForm {
    scope: String,
    #[serde(default)]
    target: String,
    asset: String,
    period: String,
    /// A decimal number of the asset. Empty: the limit is removed.
    #[serde(default)]
    amount: String,
    reason: String,
    evidence: String,
}

pub(crate) async fn limit(Visit { console, operator }: Visit, Sent(form): Sent<LimitForm>) -> Reply {
    let unknown = |what: &str, text: &str| PageError::Invalid(format!("There is no {what} {text}."));
    let scope = LimitScope::parse(&form.scope).ok_or_else(|| unknown("scope", &form.scope))?;
    let period = Period::parse(&form.period).ok_or_else(|| unknown("period", &form.period))?;
    let asset = form.asset.trim().to_owned();
    let decimals = console.settings.decimals.get(&asset).ok_or_else(|| unknown("asset", &asset))?;
    let amount = form.amount.trim().replace(',', "");
    let amount_minor = (!amount.is_empty()).then(|| Minor::parse_decimal(&amount, *decimals)).transpose();
    let amount_minor = amount_minor.map_err(|error| PageError::Invalid(format!("The amount {error}.")))?;
    let mut conn = console.acting().await?;
    let target = form.target.trim().to_owned();
    let change = LimitChange { scope, target, asset, period, amount_minor };
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let requested = core_limits::request(&mut conn, &console.settings.targets, &change, maker).await;
    operator.requested(&mut conn, "POST /treasury/limits", "", requested).await
}

#[derive(Debug, Deserialize)]
pub(crate) struct BandForm {
    pair: String,
    /// Empty: the configured band.
    #[serde(default)]
    bps: String,
    /// Empty: the reference price.
    #[serde(default)]
    middle: String,
    reason: String,
    evidence: String,
}

pub(crate) async fn band(Visit { console, operator }: Visit, Sent(form): Sent<BandForm>) -> Reply {
    let pair = form.pair.trim();
    let (input, output) =
        pair.split_once('/').ok_or_else(|| PageError::Invalid("A pair is INPUT/OUTPUT.".to_owned()))?;
    let invalid = |what: &str| PageError::Invalid(format!("The {what} is no number."));
    let given = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
    let width = given(&form.bps).map(|text| text.parse().map_err(|_| invalid("width"))).transpose()?;
    let middle = given(&form.middle).map(|text| text.parse().map_err(|_| invalid("middle"))).transpose()?;
    let change = BandChange { input: input.into(), output: output.into(), deviation_bps: width, middle };
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    let requested = core_bands::request(&mut conn, &console.settings.targets, &change, maker).await;
    operator.requested(&mut conn, "POST /treasury/bands", "", requested).await
}
