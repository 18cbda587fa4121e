//! Tokens, and the funds and allowances behind payouts and gas.

use alloy::primitives::{Address, U256};
use alloy::providers::{DynProvider, Provider};

use super::{Defect, Expected, ExpectedToken, Finding, Payer, all};
use crate::ChainConfig;
use crate::contracts::{payouts::Payouts, token::TestToken};
use crate::rpc::view_now;

pub(super) async fn check(provider: &DynProvider, config: &ChainConfig, expected: &Expected) -> Vec<Finding> {
    let payouts: Vec<Address> = expected.called(&config.deployment).map(|set| set.payouts).collect();
    let (tokens, payers, gas) = tokio::join!(
        tokens(provider, &expected.tokens),
        payers(provider, &payouts, &expected.payers),
        gas(provider, config, &expected.relayers),
    );
    let mut findings = Vec::new();
    findings.extend((!expected.tokens.is_empty()).then_some(tokens));
    findings.extend((!expected.payers.is_empty()).then_some(payers));
    findings.extend((!expected.relayers.is_empty()).then_some(gas));
    findings
}

/// A token that counts in other decimals than the service would be paid by the wrong power of ten.
async fn tokens(provider: &DynProvider, tokens: &[ExpectedToken]) -> Finding {
    let of = async |token: &ExpectedToken| {
        let (symbol, address) = (&token.symbol, token.address);
        if provider.get_code_at(address).await?.is_empty() {
            return Err(Defect::Contradiction(format!("{symbol}: there is no contract at {address}")));
        }
        let decimals = view_now(provider, address, &TestToken::decimalsCall {}).await?;
        if decimals != token.decimals {
            let said = format!("{symbol} has {decimals} decimals, the configuration says {}", token.decimals);
            return Err(Defect::Contradiction(said));
        }
        Ok(())
    };
    let symbols: Vec<&str> = tokens.iter().map(|token| token.symbol.as_str()).collect();
    all("tokens", format!("decimals of {}", symbols.join(", ")), tokens.iter().map(of)).await
}

/// A payer pays up to its balance, its allowance and its cap of the day, of each contract that pays.
async fn payers(provider: &DynProvider, contracts: &[Address], payers: &[Payer]) -> Finding {
    let of = async |(payer, contract): (&Payer, Address)| {
        let (owner, token, symbol) = (payer.wallet, payer.token.address, &payer.token.symbol);
        let cap = view_now(provider, contract, &Payouts::capsCall { payer: owner, token }).await?;
        if cap.perDay.is_zero() {
            return Err(Defect::Lack(format!("{owner} has no daily cap of {symbol} at {contract}")));
        }
        let allowance = TestToken::allowanceCall { owner, spender: contract };
        if view_now(provider, token, &allowance).await?.is_zero() {
            return Err(Defect::Lack(format!("{owner} allows the payouts contract {contract} no {symbol}")));
        }
        let balance = TestToken::balanceOfCall { account: owner };
        if view_now(provider, token, &balance).await?.is_zero() {
            return Err(Defect::Lack(format!("{owner} has no {symbol}")));
        }
        Ok(())
    };
    let well = format!("caps, allowances and balances: {}", payers.len());
    let pairs = payers.iter().flat_map(|payer| contracts.iter().map(move |contract| (payer, *contract)));
    all("payers", well, pairs.map(of)).await
}

async fn gas(provider: &DynProvider, config: &ChainConfig, relayers: &[Address]) -> Finding {
    let least = U256::from(config.balance_low_wei);
    let of = async |account: Address| {
        let balance = provider.get_balance(account).await?;
        if balance < least {
            return Err(Defect::Lack(format!("{account} has {balance} wei, less than {least}")));
        }
        Ok(())
    };
    let well = format!("each of {} accounts has {least} wei or more", relayers.len());
    all("gas", well, relayers.iter().copied().map(of)).await
}
