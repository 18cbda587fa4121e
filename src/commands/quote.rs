//! `dvp quote explain`: how a price was made.

use std::fmt::Display;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use dvp_domain::fees::{GasCharge, GasUse};
use dvp_domain::ids::{QuoteId, Reference};
use dvp_domain::plan::Slice;
use dvp_domain::pricing::Priced;
use dvp_domain::quote::explain::{Explanation, Unit, explain};
use dvp_store::orders::{executions, quotes};
use serde_json::json;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum QuoteCommand {
    /// Explain the price of a firm quote or of an order, step by step, with its own numbers.
    ///
    /// Each step is computed again from the one before it; exit code 1 when a stored amount differs.
    #[command(
        after_help = "Example:\n  dvp quote explain --id qte_… --dir .dvp\n  dvp quote explain --id exe_… --dir .dvp --json"
    )]
    Explain(QuoteExplain),
}

#[derive(Debug, Args)]
pub(crate) struct QuoteExplain {
    /// A firm quote's id (`qte_…`) or an execution's (`exe_…`).
    #[arg(long, value_name = "ID")]
    pub id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: QuoteCommand) -> anyhow::Result<ExitCode> {
    match command {
        QuoteCommand::Explain(args) => explain_one(args).await,
    }
}

/// A stored price, with its assets.
struct StoredPrice {
    priced: Priced,
    slices: Vec<Slice>,
    input: (String, u8),
    output: (String, u8),
}

async fn explain_one(QuoteExplain { id, place }: QuoteExplain) -> anyhow::Result<ExitCode> {
    let mut access = Access::open(&place).await?;
    let StoredPrice { priced, slices, input, output } = find(&mut access, &id).await?;
    let units = (Unit { asset: &input.0, exponent: input.1 }, Unit { asset: &output.0, exponent: output.1 });
    match explain(&priced, &slices, units) {
        Ok(explained) => {
            print(place.json, &json!({"id": id, "explanation": explained}), || lines(&id, &explained))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(fault) => {
            let text = fault.to_string();
            print(place.json, &json!({"id": id, "contradiction": text}), || {
                vec![format!("CONTRADICTION: {text}")]
            })?;
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn find(access: &mut Access, id: &str) -> anyhow::Result<StoredPrice> {
    if id.starts_with(QuoteId::PREFIX) {
        let terms = quotes::find_firm_by_id(&mut access.conn, id).await?;
        let terms = terms.with_context(|| format!("there is no firm quote {id}"))?;
        let input = access.exponent(&terms.input_asset)?;
        let output = access.exponent(&terms.output_asset)?;
        return Ok(StoredPrice {
            priced: terms.priced,
            slices: terms.slices,
            input: (terms.input_asset, input),
            output: (terms.output_asset, output),
        });
    }
    if !id.starts_with(Reference::PREFIX) {
        bail!(
            "{id} is neither a firm quote ({}…) nor an execution ({}…)",
            QuoteId::PREFIX,
            Reference::PREFIX
        );
    }
    let execution = executions::find_by_reference(&mut access.conn, id).await?;
    let terms = execution.with_context(|| format!("there is no execution {id}"))?.terms;
    Ok(StoredPrice {
        priced: terms.plan.priced,
        slices: terms.plan.slices,
        input: (terms.input.asset, terms.input.exponent),
        output: (terms.output.asset, terms.output.exponent),
    })
}

fn bps(value: Option<impl Display>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |bps| format!("{bps} bps"))
}

fn lines(id: &str, explained: &Explanation<'_>) -> Vec<String> {
    let mut lines = vec![id.to_owned()];
    lines.extend(explained.steps.iter().map(|step| {
        let amount = step.amount_minor.to_decimal_string(step.unit.exponent);
        format!("  {:<16} {amount} {}  ({})", step.step, step.unit.asset, step.rule)
    }));
    let reference = explained.reference_price.map_or_else(|| "none".to_owned(), |price| price.to_string());
    lines.push(format!("  reference price  {reference}"));
    lines.push(format!("  rate             {}  (spread {})", explained.rate, bps(explained.spread_bps)));
    lines.push(format!(
        "  cost             {}  (spread, fees and rounding against the reference)",
        bps(explained.cost_bps)
    ));
    lines.push(format!(
        "  residual         {} × 10^-18 minor units of the output, {} of the input  (posted to the ledger)",
        explained.residual_e18, explained.fee_residual_e18
    ));
    lines.extend(explained.absorbed.iter().map(|fee| {
        let amount = fee.amount_minor.to_decimal_string(fee.exponent);
        format!("  absorbed fee     {amount} {}  (paid by the service, changes no amount)", fee.currency)
    }));
    lines.extend(explained.gas.iter().map(|charge| {
        let GasCharge { chain, gas_use, gas, wei_per_gas, coin, coin_price } = charge;
        let unit = match gas_use {
            GasUse::Settlement | GasUse::Payment => "gas",
            GasUse::SettlementData | GasUse::PaymentData => "bytes",
        };
        let gas_use = gas_use.as_str();
        let asset = explained.steps.first().map_or("", |step| step.unit.asset);
        format!(
            "  {gas_use:<16} {gas} {unit} × {wei_per_gas} wei × {coin_price} {asset} per {coin}  (on {chain})"
        )
    }));
    lines.extend(explained.parts.iter().map(|part| {
        let rate = part.rate.map_or_else(|| "unknown".to_owned(), |rate| rate.to_string());
        format!(
            "  part             {} minor units for {}, {} at {rate}  ({})",
            part.output_minor, part.input_minor, part.provider_id, part.venue
        )
    }));
    lines
}
