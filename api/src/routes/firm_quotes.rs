//! `POST /v1/quotes/firm`: rate and fees locked for a while (contract section 2.4).

use axum::extract::State;
use axum::http::StatusCode;
use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::asset::{Asset, AssetDescriptor};
use dvp_domain::fees::FeeItem;
use dvp_domain::intent::{ActorType, Side};
use dvp_domain::money::Minor;
use dvp_domain::quote::{AmountType, FirmRequest, FirmTerms};
use dvp_domain::rejection;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::quotes::NewFirmQuote;
use serde::Serialize;
use serde_json::Value;

use crate::access::idempotency::{IdempotentRequest, Lookup, answer};
use crate::http::error::{ApiError, Code, Reply, text};
use crate::http::fields::Object;
use crate::routes::intents::parse::asset;
use crate::state::Api;
use crate::wire::{ACTOR_TYPES, FIRM_QUOTE, SIDES};

struct FirmQuoteRequest<'a> {
    request_id: &'a str,
    side: Side,
    actor: ActorType,
    input: AssetDescriptor,
    output: AssetDescriptor,
    amount: Minor,
    amount_type: AmountType,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    request_id: &'a str,
    quote_id: &'a str,
    pair: String,
    all_in_rate: String,
    input: Money<'a>,
    output: Money<'a>,
    fees: &'a [FeeItem],
    valid_until: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Money<'a> {
    amount_minor: Minor,
    currency: &'a str,
    exponent: u8,
}

impl<'a> Money<'a> {
    fn of(asset: &'a Asset, amount_minor: Minor) -> Self {
        Self { amount_minor, currency: &asset.symbol, exponent: asset.exponent }
    }
}

pub(crate) async fn create(State(api): State<Api>, write: IdempotentRequest) -> Reply {
    write.perform(&api, Lookup::First, async |write| quote(&api, write).await).await
}

async fn quote(api: &Api, write: &IdempotentRequest) -> Reply {
    let requested = parse(&write.body)?;
    let registry = &api.engine.context().registry;
    let assets = registry.resolve(&requested.input).zip(registry.resolve(&requested.output));
    let locked = match assets {
        Some((input, output)) => {
            let FirmQuoteRequest { amount, amount_type, side, actor, .. } = requested;
            let request = FirmRequest { input, output, amount, amount_type, side, actor };
            api.engine
                .firm_quote(&request)
                .await?
                .map(|terms| (render(&requested, input, output, &terms), terms))
        }
        None => None,
    };
    // What no market would change is said; without it there is no liquidity now.
    let not_offered = || {
        let amount =
            (requested.amount_type == AmountType::Source).then_some(("amountMinor", requested.amount));
        rejection::not_offered((&requested.input, &requested.output), amount, registry)
            .map_or(ApiError::Plain(Code::InsufficientLiquidity), ApiError::NoQuote)
    };
    let done = match locked {
        Some((stored, terms)) => {
            let (tenant, request_id) = (write.caller.tenant.clone(), requested.request_id.to_owned());
            let quote = NewFirmQuote { tenant, request_id, terms };
            // Others may have taken or held the output since it was priced.
            let render = move |outcome: &Outcome| match outcome {
                Outcome::Refused(Refusal::NotHeld) => ApiError::Plain(Code::InsufficientLiquidity).stored(),
                Outcome::Refused(Refusal::CoolingDown(cool_down)) => {
                    ApiError::CoolingDown(*cool_down).stored()
                }
                _ => stored.clone(),
            };
            api.engine.keep_firm_quote(quote, write.part(render)).await?
        }
        None => api.engine.keep_refusal(write.part_with(not_offered().stored())).await?,
    };
    answer(done)
}

fn parse(body: &Value) -> Result<FirmQuoteRequest<'_>, ApiError> {
    const AMOUNT_TYPES: &[(&str, AmountType)] =
        &[("source", AmountType::Source), ("target", AmountType::Target)];
    let body = Object::root(body, FIRM_QUOTE)?;
    let request_id = body.id("requestId")?;
    body.id("actorId")?;
    let actor = body.opt_choice("actorType", ACTOR_TYPES)?.unwrap_or_default();
    Ok(FirmQuoteRequest {
        request_id,
        side: body.opt_choice("side", SIDES)?.unwrap_or_default(),
        actor,
        input: asset(&body, "inputAsset")?,
        output: asset(&body, "outputAsset")?,
        amount: body.amount("amountMinor")?,
        amount_type: body.choice("amountType", AMOUNT_TYPES)?,
    })
}

fn render(
    requested: &FirmQuoteRequest<'_>,
    input: &Asset,
    output: &Asset,
    terms: &FirmTerms,
) -> StoredResponse {
    let view = View {
        request_id: requested.request_id,
        quote_id: terms.quote_id.as_str(),
        pair: format!("{}/{}", input.symbol, output.symbol),
        all_in_rate: terms.priced.rate.to_string(),
        input: Money::of(input, terms.priced.input),
        output: Money::of(output, terms.priced.output),
        fees: terms.fees(),
        valid_until: terms.valid_until.iso8601(),
    };
    StoredResponse { status: StatusCode::CREATED.as_u16(), body: text(&view) }
}
