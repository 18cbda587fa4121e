//! The contracts: their code, how they are connected, and who may do what.

use alloy::primitives::{Address, B256, Bytes};
use alloy::providers::{DynProvider, Provider};

use super::code::is_deployed_by;
use super::{Defect, Expected, Finding, all};
use crate::ChainConfig;
use crate::contracts::{
    anchor::ReceiptAnchor, coin::CoinGate, escrow::Escrow, payouts::Payouts, permit::Permit,
    settler::IntentSettler,
};
use crate::deploy::Deployment;
use crate::rpc::view_now;

pub(super) async fn check(provider: &DynProvider, config: &ChainConfig, expected: &Expected) -> Vec<Finding> {
    let mut findings = Vec::new();
    for set in expected.called(&config.deployment) {
        let is_earlier = set.escrow != config.deployment.escrow;
        let (code, wiring, pause, roles, receivers) = tokio::join!(
            // Earlier contracts are those of an earlier version.
            code(provider, set, expected.accept_other_code || is_earlier),
            wiring(provider, set),
            pause(provider, set),
            roles(provider, set, &expected.relayers),
            receivers(provider, set, &expected.receivers),
        );
        let mut of_set = vec![code, wiring, pause];
        of_set.extend((!expected.relayers.is_empty()).then_some(roles));
        of_set.extend((!expected.receivers.is_empty()).then_some(receivers));
        let subject = format!("the earlier contracts of the escrow {}", set.escrow);
        findings.extend(of_set.into_iter().map(|one| if is_earlier { one.of(&subject) } else { one }));
    }
    findings
}

async fn code(provider: &DynProvider, deployment: &Deployment, accept_other: bool) -> Finding {
    let mut contracts: Vec<(&str, Address, &Bytes)> = vec![
        ("Permit", deployment.permit, &Permit::BYTECODE),
        ("Escrow", deployment.escrow, &Escrow::BYTECODE),
        ("IntentSettler", deployment.settler, &IntentSettler::BYTECODE),
        ("Payouts", deployment.payouts, &Payouts::BYTECODE),
        ("ReceiptAnchor", deployment.anchor, &ReceiptAnchor::BYTECODE),
    ];
    contracts.extend(deployment.coin.map(|coin| ("CoinGate", coin.gate, &CoinGate::BYTECODE)));
    let count = if deployment.coin.is_some() { "six" } else { "five" };
    let of = async |(name, address, creation): (&str, Address, &Bytes)| {
        let deployed = provider.get_code_at(address).await?;
        if deployed.is_empty() {
            return Err(Defect::Contradiction(format!("there is no {name} at {address}")));
        }
        if !accept_other && !is_deployed_by(&deployed, creation) {
            let said = format!("the code at {address} is not this version's {name}");
            return Err(Defect::Contradiction(said));
        }
        Ok(())
    };
    let well = if accept_other {
        format!("{count} contracts, of any version")
    } else {
        format!("the {count} contracts of this version")
    };
    all("contract code", well, contracts.into_iter().map(of)).await
}

/// The addresses that the contracts hold for ever.
async fn wiring(provider: &DynProvider, deployment: &Deployment) -> Finding {
    let (escrow, settler, payouts) = (deployment.escrow, deployment.settler, deployment.payouts);
    let found = async {
        let mut named = vec![
            ("the escrow's settler", view_now(provider, escrow, &Escrow::settlerCall {}).await?, settler),
            (
                "the escrow's permit contract",
                view_now(provider, escrow, &Escrow::permitCall {}).await?,
                deployment.permit,
            ),
            (
                "the settler's escrow",
                view_now(provider, settler, &IntentSettler::escrowCall {}).await?,
                escrow,
            ),
            (
                "the settler's payouts contract",
                view_now(provider, settler, &IntentSettler::payoutsCall {}).await?,
                payouts,
            ),
            (
                "the payouts contract's settler",
                view_now(provider, payouts, &Payouts::settlerCall {}).await?,
                settler,
            ),
        ];
        named.extend(coin_wiring(provider, deployment).await?);
        match named.into_iter().find(|(_, is, should)| is != should) {
            Some((what, is, should)) => Err(Defect::Contradiction(format!("{what} is {is}, not {should}"))),
            None => Ok("the contracts name each other".to_owned()),
        }
    };
    Finding { about: "contract wiring", found: found.await }
}

/// A record without a gate is not asked about it.
async fn coin_wiring(
    provider: &DynProvider,
    deployment: &Deployment,
) -> Result<Vec<(&'static str, Address, Address)>, Defect> {
    let Some(coin) = deployment.coin else { return Ok(Vec::new()) };
    let (escrow, payouts) = (deployment.escrow, deployment.payouts);
    Ok(vec![
        ("the escrow's gate", view_now(provider, escrow, &Escrow::gateCall {}).await?, coin.gate),
        ("the gate's escrow", view_now(provider, coin.gate, &CoinGate::escrowCall {}).await?, escrow),
        (
            "the gate's wrapped coin",
            view_now(provider, coin.gate, &CoinGate::wrappedCall {}).await?,
            coin.wrapped,
        ),
        (
            "the payouts contract's wrapped coin",
            view_now(provider, payouts, &Payouts::wrappedCall {}).await?,
            coin.wrapped,
        ),
    ])
}

async fn pause(provider: &DynProvider, deployment: &Deployment) -> Finding {
    let contracts = [("IntentSettler", deployment.settler), ("Payouts", deployment.payouts)];
    let of = async |(name, address): (&str, Address)| {
        if view_now(provider, address, &IntentSettler::pausedCall {}).await? {
            return Err(Defect::Lack(format!("{name} is paused")));
        }
        Ok(())
    };
    all("contract pause", "neither is paused".to_owned(), contracts.map(of)).await
}

/// A relayer's account may relay, and nothing else.
async fn roles(provider: &DynProvider, deployment: &Deployment, relayers: &[Address]) -> Finding {
    let contracts = [("IntentSettler", deployment.settler), ("Payouts", deployment.payouts)];
    let pairs = relayers.iter().flat_map(|account| contracts.map(|contract| (*account, contract)));
    let of = async |(account, (name, contract)): (Address, (&str, Address))| {
        let has = async |role: B256| {
            view_now(provider, contract, &IntentSettler::hasRoleCall { role, account }).await
        };
        let relayer = view_now(provider, contract, &IntentSettler::RELAYER_ROLECall {}).await?;
        if has(B256::ZERO).await? {
            let said = format!("the relayer's account {account} is the administrator of {name}");
            return Err(Defect::Contradiction(said));
        }
        if contract == deployment.settler {
            let operator = view_now(provider, contract, &IntentSettler::OPERATOR_ROLECall {}).await?;
            if has(operator).await? {
                let said = format!("the relayer's account {account} is an operator of {name}");
                return Err(Defect::Contradiction(said));
            }
        }
        if !has(relayer).await? {
            return Err(Defect::Lack(format!("{account} is no relayer of {name}")));
        }
        Ok(())
    };
    let well = format!("{} accounts may relay", relayers.len());
    all("contract roles", well, pairs.map(of)).await
}

/// The settler releases funds to no wallet that is not on its list.
async fn receivers(provider: &DynProvider, deployment: &Deployment, wallets: &[Address]) -> Finding {
    let of = async |receiver: Address| {
        let call = IntentSettler::allowedReceiversCall { receiver };
        if view_now(provider, deployment.settler, &call).await? {
            return Ok(());
        }
        Err(Defect::Lack(format!("{receiver} is not on the settler's list of receivers")))
    };
    let well = format!("{} wallets may receive", wallets.len());
    all("receivers", well, wallets.iter().copied().map(of)).await
}
