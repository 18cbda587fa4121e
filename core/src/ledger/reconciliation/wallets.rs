//! Compares the balances of wallets and of the escrow with the ledger, from any source of balances.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use dvp_domain::reconcile::wallets::{BalanceCheck, Moved, TokenHolder, WalletBalance, moved};
use dvp_domain::reconcile::{Break, OnChain};
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use dvp_store::reconcile::wallets::{self as store, NewWalletBalance};
use dvp_store::{PgConnection, StoreError};

/// How long a balance may differ: a transfer that no order asked for is posted within it.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The balances of tokens at one block.
pub trait TokenBalances {
    type Error: From<StoreError> + std::fmt::Display;

    fn chain_id(&self) -> i64;

    /// The escrow of each set of contracts.
    fn escrows(&self) -> BTreeSet<String>;

    /// What an address holds of a token. Addresses are lowercase hex with `0x`.
    fn balance(&self, token: &str, address: &str) -> impl Future<Output = Result<i128, Self::Error>>;
}

/// What settlements in flight have moved on the chain by the block, less what they have moved in the ledger.
#[derive(Debug, Default)]
pub struct InFlight(BTreeMap<(TokenHolder, String), i128>);

impl InFlight {
    /// Adds settlements, each with its state on the chain at the block.
    pub async fn add(
        &mut self,
        conn: &mut PgConnection,
        settlements: impl IntoIterator<Item = (&Terms, OnChain)>,
    ) -> Result<(), StoreError> {
        let mut references = Vec::new();
        for (terms, at_block) in settlements {
            references.push(terms.reference.to_string());
            for Moved { holder, asset, amount } in moved(terms, at_block) {
                self.move_by(holder, asset, amount);
            }
        }
        for Moved { holder, asset, amount } in store::list_posted(conn, &references).await? {
            self.move_by(holder, asset, amount.saturating_neg());
        }
        Ok(())
    }

    fn move_by(&mut self, holder: TokenHolder, asset: String, amount: i128) {
        let sum = self.0.entry((holder, asset)).or_default();
        *sum = sum.saturating_add(amount);
    }

    fn of(&self, holder: &TokenHolder, asset: &str) -> i128 {
        self.0.get(&(holder.clone(), asset.to_owned())).copied().unwrap_or_default()
    }
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct WalletReport {
    pub breaks: Vec<Break>,
    /// What was read, for `wallet_balance`.
    pub balances: Vec<NewWalletBalance>,
    /// Tokens in wallets that could not be read, and why.
    pub unread: Vec<(String, String)>,
}

/// Wallets, and the holders whose funds are in them: a provider may have several wallets, and providers may share one.
struct Custody {
    account: String,
    whose: String,
    holders: BTreeSet<TokenHolder>,
    addresses: BTreeSet<String>,
}

/// Providers and wallets that are connected are one place.
fn places(escrows: BTreeSet<String>, wallets: Vec<(String, String)>) -> Vec<Custody> {
    let mut groups: Vec<(BTreeSet<String>, BTreeSet<String>)> = Vec::new();
    for (provider, address) in wallets {
        let (mut providers, mut addresses) = (BTreeSet::from([provider]), BTreeSet::from([address]));
        groups.retain(|(of, at)| {
            let is_apart = of.is_disjoint(&providers) && at.is_disjoint(&addresses);
            if !is_apart {
                providers.extend(of.iter().cloned());
                addresses.extend(at.iter().cloned());
            }
            is_apart
        });
        groups.push((providers, addresses));
    }
    let text = |all: &BTreeSet<String>, between| all.iter().cloned().collect::<Vec<_>>().join(between);
    let wallet = |(providers, addresses): (BTreeSet<String>, BTreeSet<String>)| Custody {
        account: format!("wallet:{}", text(&addresses, "+")),
        whose: format!("the wallet of {}", text(&providers, ", ")),
        holders: providers.into_iter().map(TokenHolder::Provider).collect(),
        addresses,
    };
    let escrow = Custody {
        account: "escrow".to_owned(),
        whose: "the escrow".to_owned(),
        holders: BTreeSet::from([TokenHolder::Escrow]),
        addresses: escrows,
    };
    std::iter::once(escrow).chain(groups.into_iter().map(wallet)).collect()
}

/// Compares every known token in the escrow and in every known wallet.
pub async fn compare_wallets<B: TokenBalances>(
    conn: &mut PgConnection,
    at: &B,
    in_flight: &InFlight,
    now: Timestamp,
) -> Result<WalletReport, B::Error> {
    let tokens = store::list_tokens(conn, at.chain_id()).await?;
    let places = places(at.escrows(), store::list_wallets(conn).await?);
    let differing = store::list_differing(conn, at.chain_id()).await?;
    let patience_ms = i64::try_from(PATIENCE.as_millis()).unwrap_or(i64::MAX);
    let mut report = WalletReport::default();
    for place in &places {
        for (asset, token) in &tokens {
            let (mut ledger, mut unposted, mut gifts) = (0_i128, 0_i128, 0_i128);
            for holder in &place.holders {
                if *holder == TokenHolder::Escrow {
                    gifts = store::load_gifts(conn, asset).await?;
                }
                ledger = ledger.saturating_add(store::load_position(conn, holder, asset).await?);
                unposted = unposted.saturating_add(in_flight.of(holder, asset));
            }
            let mut held = Ok(0_i128);
            for address in &place.addresses {
                held = match (held, at.balance(token, address).await) {
                    (Ok(sum), Ok(balance)) => Ok(sum.saturating_add(balance)),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
            }
            let held = match held {
                Ok(held) => held,
                Err(error) => {
                    report.unread.push((format!("{asset} in {}", place.account), error.to_string()));
                    continue;
                }
            };
            let since = differing.get(&(place.account.clone(), asset.clone()));
            let balance = WalletBalance {
                whose: place.whose.clone(),
                account: place.account.clone(),
                asset: asset.clone(),
                ledger,
                in_flight: unposted,
                held,
                differs_since: since.map(|since| Timestamp::from(*since)),
            };
            let differs_since = match balance.judge(now, patience_ms) {
                BalanceCheck::Agrees => None,
                BalanceCheck::InTransit { since } => Some(since),
                BalanceCheck::Differs { since, found } => {
                    report.breaks.push(found);
                    Some(since)
                }
            };
            let WalletBalance { account, asset, .. } = balance;
            report.balances.push(NewWalletBalance {
                account,
                asset,
                held,
                ledger,
                in_flight: unposted,
                gifts,
                differs_since: differs_since.map(Timestamp::to_utc),
            });
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(wallets: &[(&str, &str)]) -> Vec<String> {
        let wallets = wallets.iter().map(|(id, address)| ((*id).to_owned(), (*address).to_owned()));
        let places = places(BTreeSet::from(["0x0".to_owned()]), wallets.collect());
        places.iter().skip(1).map(|place| format!("{} in {}", place.whose, place.account)).collect()
    }

    #[test]
    fn providers_that_share_a_wallet_are_compared_together() {
        let apart = pairs(&[("a", "0x1"), ("b", "0x2")]);
        assert_eq!(apart, ["the wallet of a in wallet:0x1", "the wallet of b in wallet:0x2"]);
        let shared = pairs(&[("a", "0x1"), ("b", "0x2"), ("c", "0x1"), ("c", "0x2")]);
        assert_eq!(shared, ["the wallet of a, b, c in wallet:0x1+0x2"]);
    }
}
