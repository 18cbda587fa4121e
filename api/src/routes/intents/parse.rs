//! Parses the body of an intent into a structurally valid request.
//!
//! Fields are read in the order of the contract's table, so that the first fault in that order is reported. A violation
//! with a rejection reason in the contract (a missing beneficiary, permit or rail detail) is no fault here.

use dvp_core::context::Context;
use dvp_domain::address::AddressFault;
use dvp_domain::asset::{AssetDescriptor, AssetType};
use dvp_domain::beneficiary::{Beneficiary, BeneficiaryAddress};
use dvp_domain::intent::{Bounds, IntentRequest, LIFETIME_DAYS_MAX, Permit, latest_deadline};
use dvp_domain::permit::SIGNATURE_TEXT_MAX;
use dvp_domain::time::Timestamp;
use serde_json::{Map, Value};

use crate::http::error::ApiError;
use crate::http::fields::Object;
use crate::wire::{
    ACTOR_TYPES, ASSET, ASSET_TYPES, BENEFICIARY, BENEFICIARY_ADDRESS, BOUNDS, INTENT, PAYOUT_METHODS,
    PERMIT, SETTLEMENT_TYPES, SIDES,
};

/// Whether a body has a field that legacy orders do not have. Then it is an intent regardless of its other fields.
pub(crate) fn is_intent(body: &Value) -> bool {
    ["intentId", "inputAsset", "outputAsset"]
        .iter()
        .any(|name| body.get(name).is_some_and(|value| !value.is_null()))
}

/// A valid request. Its deadline is compared with `now`; its assets have the registry's symbols, if it knows them. Its
/// wallets are none of the service's contracts.
pub(crate) fn intent(body: &Value, context: &Context, now: Timestamp) -> Result<IntentRequest, ApiError> {
    let registry = &context.registry;
    let is_wallet = |text: &str| context.chains.contracts().check_wallet(text);
    let body = Object::root(body, INTENT)?;
    let intent_id = body.id("intentId")?.to_owned();
    let client_reference = body.opt_id("clientReference")?.map(str::to_owned);
    let user = body.id("user")?.to_owned();
    let mut input_asset = asset(&body, "inputAsset")?;
    let owner = match input_asset.kind {
        AssetType::Erc20 => Some("must be the address of the wallet that signed the permit"),
        AssetType::Native => Some("must be the address of the wallet that deposits"),
        AssetType::Fiat => None,
    };
    if let (Some(meant), Err(fault)) = (owner, is_wallet(&user)) {
        return Err(wallet_fault(&body, "user", meant, &fault));
    }
    let mut output_asset = asset(&body, "outputAsset")?;
    registry.normalise(&mut input_asset);
    registry.normalise(&mut output_asset);
    let bounds = bounds(&body, now)?;
    let quote_id = body.opt_id("quoteId")?.map(str::to_owned);
    let deadline = Timestamp::from_millis(body.millis("deadline")?);
    if deadline <= now {
        return Err(body.fault("deadline", "has passed (it is in Unix milliseconds)"));
    }
    if deadline > latest_deadline(now) {
        return Err(body.fault("deadline", format_args!("is more than {LIFETIME_DAYS_MAX} days ahead")));
    }
    let output_recipient = body.opt_id("outputRecipient")?.map(str::to_owned);
    let is_on_chain = matches!(output_asset.kind, AssetType::Erc20 | AssetType::Native);
    let (field, receiver) =
        output_recipient.as_deref().map_or(("user", &*user), |to| ("outputRecipient", to));
    if is_on_chain && let Err(fault) = is_wallet(receiver) {
        // Without a recipient the user's own wallet would be the one.
        let field = if fault == AddressFault::Form { "outputRecipient" } else { field };
        return Err(wallet_fault(
            &body,
            field,
            "must be the address of the wallet that a token goes to",
            &fault,
        ));
    }
    Ok(IntentRequest {
        intent_id,
        client_reference,
        user,
        input_asset,
        output_asset,
        bounds,
        quote_id,
        deadline,
        settlement_type: body.choice("settlementType", SETTLEMENT_TYPES)?,
        output_recipient,
        beneficiary: body.opt_object("beneficiary", BENEFICIARY)?.as_ref().map(beneficiary).transpose()?,
        permit: body.opt_object("permit", PERMIT)?.as_ref().map(permit).transpose()?,
        actor_type: body.opt_choice("actorType", ACTOR_TYPES)?.unwrap_or_default(),
        side: body.opt_choice("side", SIDES)?.unwrap_or_default(),
        metadata: metadata(&body)?,
    })
}

/// What is no address at all is told which one is meant.
fn wallet_fault(body: &Object<'_>, name: &str, meant: &str, fault: &AddressFault) -> ApiError {
    if *fault == AddressFault::Form { body.fault(name, meant) } else { body.fault(name, fault) }
}

/// An asset as the caller describes it; the registry is not consulted here.
pub(crate) fn asset(body: &Object<'_>, name: &str) -> Result<AssetDescriptor, ApiError> {
    let asset = body.object(name, ASSET)?;
    let address = asset.opt_address("address")?;
    let currency = asset.opt_text("currency")?;
    if currency.is_some_and(|code| code.len() != 3 || !code.bytes().all(|b| b.is_ascii_alphabetic())) {
        return Err(asset.fault("currency", "must be an ISO 4217 code"));
    }
    Ok(AssetDescriptor {
        kind: asset.choice("type", ASSET_TYPES)?,
        symbol: asset.id("symbol")?.to_owned(),
        address: address.map(str::to_owned),
        chain: asset.opt_id("chain")?.map(str::to_owned),
        currency: currency.map(str::to_owned),
    })
}

/// Flat amounts, or a target and a limit on each side: one of the two, and one side fixed.
fn bounds(body: &Object<'_>, now: Timestamp) -> Result<Bounds, ApiError> {
    let flat = body.has("inputAmountMinor") || body.has("minOutputAmountMinor");
    let (input, output) = (body.opt_object("input", BOUNDS)?, body.opt_object("output", BOUNDS)?);
    if !flat && (input.is_some() || output.is_some()) {
        let input = input.ok_or_else(|| body.fault("input", "is required"))?;
        let output = output.ok_or_else(|| body.fault("output", "is required"))?;
        return ranged(&input, &output, now);
    }
    for (name, side) in [("input", input), ("output", output)] {
        if side.is_some() {
            return Err(body.fault(name, "cannot be given beside inputAmountMinor or minOutputAmountMinor"));
        }
    }
    Ok(Bounds::ExactInput {
        input: body.amount("inputAmountMinor")?,
        min_output: body.amount("minOutputAmountMinor")?,
    })
}

/// The contract's table: a fixed side has target = limit, the other a limit alone; in a range the input has a limit and
/// the output falls from its target to its limit.
fn ranged(input: &Object<'_>, output: &Object<'_>, now: Timestamp) -> Result<Bounds, ApiError> {
    let target = "targetAmountMinor";
    let (input_limit, output_limit) = (input.amount("limitAmountMinor")?, output.amount("limitAmountMinor")?);
    if input.has(target) && input.amount(target)? != input_limit {
        return Err(input.fault(target, "must equal limitAmountMinor: only an output decays"));
    }
    let output_target = if output.has(target) { Some(output.amount(target)?) } else { None };
    match (input.has(target), output_target) {
        (true, None) => Ok(Bounds::ExactInput { input: input_limit, min_output: output_limit }),
        (false, Some(fixed)) if fixed == output_limit => {
            Ok(Bounds::ExactOutput { output: fixed, max_input: input_limit })
        }
        (false, Some(target_output)) if target_output > output_limit => Ok(Bounds::Range {
            max_input: input_limit,
            target_output,
            min_output: output_limit,
            received_at: now,
        }),
        (false, Some(_)) => Err(output.fault(target, "must not be below limitAmountMinor")),
        (true, Some(_)) => Err(output.fault(target, "only one side can be fixed")),
        (false, None) => Err(input.fault(target, "one side must be fixed: its target equal to its limit")),
    }
}

/// Reads and checks the fields of a beneficiary.
pub(crate) fn beneficiary(given: &Object<'_>) -> Result<Beneficiary, ApiError> {
    let text = |name: &str| given.opt_text(name).map(|text| text.map(str::to_owned));
    let account = given.opt_text("account")?;
    if account.is_some_and(|account| account.chars().count() > crate::http::fields::ID_MAX) {
        return Err(given.fault("account", "must have at most 128 characters"));
    }
    let beneficiary = Beneficiary {
        account: account.map(str::to_owned),
        name: text("name")?,
        country: text("country")?,
        payout_method: given.opt_choice("payoutMethod", PAYOUT_METHODS)?,
        swift_code: text("swiftCode")?,
        bank: text("bank")?,
        address: given.opt_object("address", BENEFICIARY_ADDRESS)?.as_ref().map(address).transpose()?,
        travel_rule_data: given.opt_open_object("travelRuleData")?,
    };
    match beneficiary.check() {
        Ok(()) => Ok(beneficiary),
        Err(fault) => Err(given.fault(fault.field.as_str(), fault.problem)),
    }
}

fn address(given: &Object<'_>) -> Result<BeneficiaryAddress, ApiError> {
    let text = |name: &str| given.opt_text(name).map(|text| text.unwrap_or_default().to_owned());
    Ok(BeneficiaryAddress {
        line1: text("line1")?,
        city: text("city")?,
        state: text("state")?,
        postal_code: text("postalCode")?,
    })
}

/// Checks the form of the fields; the authorization is checked later and fails with `INVALID_PERMIT`.
fn permit(given: &Object<'_>) -> Result<Permit, ApiError> {
    Ok(Permit {
        token: given.id_or_address("token")?.to_owned(),
        amount_minor: given.amount("amountMinor")?,
        spender: given.id_or_address("spender")?.to_owned(),
        nonce: given.units("nonce")?,
        deadline: given.seconds("deadline")?,
        signature: given
            .required("signature", given.opt_text_of("signature", SIGNATURE_TEXT_MAX)?)?
            .to_owned(),
    })
}

/// The caller's own object; the fields the contract names have their types.
fn metadata(body: &Object<'_>) -> Result<Option<Map<String, Value>>, ApiError> {
    const TEXTS: [&str; 6] = [
        "senderKycHash",
        "depositReference",
        "currency",
        "targetStablecoin",
        "beneficiaryAccount",
        "beneficiaryName",
    ];
    if let Some(metadata) = body.opt_open("metadata")? {
        for name in TEXTS {
            metadata.opt_text(name)?;
        }
        metadata.opt_open("travelRuleData")?;
    }
    body.opt_open_object("metadata")
}
