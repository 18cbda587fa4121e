//! Treasury: balances, limits, price bands and pauses, and requests to change them.

use axum::extract::rejection::FormRejection;
use axum::extract::{Extension, Form, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use chrono::{DateTime, Utc};
use dvp_core::bands::{self as core_bands, BandChange};
use dvp_core::limits::{self as core_limits, LimitChange};
use dvp_core::pauses::{self as core_pauses, PauseSwitch};
use dvp_core::requests::{Maker, RequestedChange};
use dvp_core::statements::account_name;
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_domain::pause::Scope;
use dvp_domain::reconcile::transfers::KnownTransfer;
use dvp_store::changes::Subject;
use dvp_store::ledger::balances;
use dvp_store::operators::ConsoleAction;
use dvp_store::pauses::PauseRow;
use dvp_store::transfers::{self, TransferFilter};
use dvp_store::{PgConnection, bands, limits, partners, pauses};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form as FormBlock};
use crate::error::{PageError, sentence};
use crate::navigation::TREASURY;
use crate::operator::Operator;
use crate::routes::operations::Proposal;
use crate::routes::{operations, statement};
use crate::state::Console;
use crate::view::{self, Page};

/// The most balances of the list, and the most transfers.
const BALANCES: i64 = 500;
const TRANSFERS: i64 = 100;

pub(crate) async fn show(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
) -> Result<Response, PageError> {
    let mut conn = console.reading().await?;
    let held = balances::list(&mut conn, BALANCES).await?;
    let set = limits::list(&mut conn).await?;
    let widths = bands::list(&mut conn).await?;
    let paused = pauses::list(&mut conn).await?;
    let open = TransferFilter { is_open: true, limit: TRANSFERS, ..TransferFilter::default() };
    let moving = transfers::list(&mut conn, &open).await?;
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
    let moving = moving.iter().map(|kept| {
        let KnownTransfer { id, cell, owner, asset, amount: minor, state, since } = &kept.known;
        vec![
            Cell::text(id.to_string()),
            Cell::text(state.as_str()),
            Cell::text(cell.to_string()),
            Cell::text(owner.to_string()),
            Cell::text(asset),
            amount(&minor.to_string(), asset),
            Cell::time(since.to_utc()),
        ]
    });
    let headings = ["Id", "State", "Other cell", "Owner", "Asset", "#Amount", "Since"];
    let transfers = Block::table("Transfers between cells", &headings, "None is open.", moving);
    let limits = set.iter().map(|row| {
        vec![
            Cell::text(view::words(&row.scope)),
            Cell::text(&row.target),
            Cell::text(&row.asset),
            Cell::text(&row.period),
            amount(&row.amount, &row.asset),
            amount(&row.used, &row.asset),
            amount(&row.open, &row.asset),
            Cell::link("request", format!("/approvals/{}", view::segment(&row.approval))),
        ]
    });
    let headings = ["Scope", "Target", "Asset", "Per", "#Limit", "#Accepted today", "#Open", "Approved by"];
    let limits = Block::table("Limits", &headings, "No limit is set.", limits);
    let bands = widths.iter().map(|row| {
        vec![
            Cell::text(format!("{}/{}", row.input, row.output)),
            Cell::number(format!("{} bps", row.deviation_bps)),
            Cell::text(row.middle.clone().unwrap_or_else(|| "reference price".to_owned())),
            Cell::link("request", format!("/approvals/{}", view::segment(&row.approval))),
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
        transfers,
        balances,
    ];
    let all = all.into_iter().filter(|block| !block.is_bare()).collect();
    blocks::render(
        Page::of(Some(&operator), "Treasury", "Treasury").live(&[
            Subject::Controls,
            Subject::Approvals,
            Subject::Feed,
        ]),
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

type Given<T> = Result<Form<T>, FormRejection>;

pub(crate) async fn pause(
    state: State<Console>,
    operator: Extension<Operator>,
    form: Given<PauseForm>,
) -> Result<Response, PageError> {
    let Form(form) = read(form)?;
    switch(state, operator, form, PauseSwitch::Pause).await
}

pub(crate) async fn resume(
    state: State<Console>,
    operator: Extension<Operator>,
    form: Given<ResumeForm>,
) -> Result<Response, PageError> {
    let Form(ResumeForm { scope, target, paused_at, reason }) = read(form)?;
    let form = PauseForm { scope, target, reason };
    switch(state, operator, form, PauseSwitch::ResumeSeen(paused_at)).await
}

async fn switch(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    PauseForm { scope, target, reason }: PauseForm,
    switch: PauseSwitch,
) -> Result<Response, PageError> {
    let parsed =
        Scope::parse(&scope).ok_or_else(|| PageError::Invalid(format!("There is no scope {scope}.")))?;
    let mut conn = console.acting().await?;
    let done = core_pauses::switch(&mut conn, switch, parsed, target.trim(), &operator.name, &reason).await;
    match done {
        Ok(_) => Ok(Redirect::to("/treasury").into_response()),
        Err(error) => {
            let route = match switch {
                PauseSwitch::Pause => "POST /treasury/pauses/add",
                PauseSwitch::Resume | PauseSwitch::ResumeSeen(_) => "POST /treasury/pauses/remove",
            };
            let error = match error {
                core_pauses::PauseError::Store(error) => error.into(),
                refused => PageError::Conflict(sentence(&refused.to_string())),
            };
            refuse(&mut conn, &operator, route, &format!("{scope} {target}"), error).await
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

pub(crate) async fn limit(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    form: Given<LimitForm>,
) -> Result<Response, PageError> {
    let Form(form) = read(form)?;
    let unknown = |what: &str, text: &str| PageError::Invalid(format!("There is no {what} {text}."));
    let scope = LimitScope::parse(&form.scope).ok_or_else(|| unknown("scope", &form.scope))?;
    let period = Period::parse(&form.period).ok_or_else(|| unknown("period", &form.period))?;
    let asset = form.asset.trim().to_owned();
    let decimals = console.settings.decimals.get(&asset).ok_or_else(|| unknown("asset", &asset))?;
    let amount = form.amount.trim().replace(',', "");
    let amount_minor = (!amount.is_empty()).then(|| Minor::parse_decimal(&amount, *decimals)).transpose();
    let amount_minor = amount_minor.map_err(|error| PageError::Invalid(format!("The amount {error}.")))?;
    let mut conn = console.acting().await?;
    let mut target = form.target.trim().to_owned();
    if scope == LimitScope::Partner {
        let partner = partners::find_partner(&mut conn, &target).await?;
        target = partner.ok_or_else(|| unknown("partner", &target))?.id;
    }
    let change = LimitChange { scope, target, asset, period, amount_minor };
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let requested = core_limits::request(&mut conn, &change, maker).await;
    requested_or_refused(&mut conn, &operator, "POST /treasury/limits", requested).await
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

pub(crate) async fn band(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    form: Given<BandForm>,
) -> Result<Response, PageError> {
    let Form(form) = read(form)?;
    let pair = form.pair.trim();
    let (input, output) =
        pair.split_once('/').ok_or_else(|| PageError::Invalid("A pair is INPUT/OUTPUT.".to_owned()))?;
    for asset in [input, output] {
        if !console.settings.decimals.contains_key(asset) {
            return Err(PageError::Invalid(format!("There is no asset {asset}.")));
        }
    }
    let invalid = |what: &str| PageError::Invalid(format!("The {what} is no number."));
    let given = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
    let width = given(&form.bps).map(|text| text.parse().map_err(|_| invalid("width"))).transpose()?;
    let middle = given(&form.middle).map(|text| text.parse().map_err(|_| invalid("middle"))).transpose()?;
    let change = BandChange { input: input.into(), output: output.into(), deviation_bps: width, middle };
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    let requested = core_bands::request(&mut conn, &change, maker).await;
    requested_or_refused(&mut conn, &operator, "POST /treasury/bands", requested).await
}

fn read<T>(form: Given<T>) -> Result<Form<T>, PageError> {
    form.map_err(|error| PageError::Invalid(error.to_string()))
}

/// Shows the request, or records that it was refused.
async fn requested_or_refused(
    conn: &mut PgConnection,
    operator: &Operator,
    route: &str,
    requested: Result<RequestedChange, impl Into<PageError>>,
) -> Result<Response, PageError> {
    match requested {
        Ok(RequestedChange { approval, .. }) => {
            Ok(Redirect::to(&format!("/approvals/{}", view::segment(&approval.id))).into_response())
        }
        Err(error) => refuse(conn, operator, route, "", error.into()).await,
    }
}

async fn refuse(
    conn: &mut PgConnection,
    operator: &Operator,
    route: &str,
    subject: &str,
    error: PageError,
) -> Result<Response, PageError> {
    operator.record(conn, ConsoleAction::Refused, route, &format!("{subject}: {error}")).await?;
    Err(error)
}
