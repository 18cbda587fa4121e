//! The balances of wallets and of the escrow at a final block against the ledger. Pure.
//!
//! The ledger runs ahead of the final block, and behind its events. What each settlement in flight has moved on the
//! chain by that block, and in the ledger by now, is known from its own events and postings; the rest of both balances
//! is compared. Transfers that follow from no order are seen as balances only: they are in transit for a while.

use super::{Break, BreakKind, Difference, EscrowState, OnChain, SettlerState, SuggestedAction};
use crate::money::Minor;
use crate::plan::InputFunding;
use crate::terms::Terms;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenHolder {
    Escrow,
    Provider(String),
}

/// Tokens that a settlement has brought a holder; negative: has taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub holder: TokenHolder,
    pub asset: String,
    pub amount: i128,
}

/// What a settlement has moved on the chain by a block.
pub fn moved(terms: &Terms, at_block: OnChain) -> Vec<Moved> {
    let mut all = Vec::new();
    let mut add = |holder: TokenHolder, asset: &str, amount: i128| {
        if amount != 0 {
            all.push(Moved { holder, asset: asset.to_owned(), amount });
        }
    };
    let solver = || TokenHolder::Provider(terms.plan.solver_id.clone());
    let (input, output) = (signed(terms.plan.priced.input), signed(terms.plan.priced.output));
    if matches!(terms.plan.funding, InputFunding::Permit | InputFunding::Deposit) {
        match (at_block.escrow, at_block.settler) {
            (EscrowState::Locked, _) => add(TokenHolder::Escrow, &terms.input.asset, input),
            // Exchanged in one transaction: nothing was ever locked.
            (EscrowState::Released, _) | (EscrowState::None, SettlerState::Settled) => {
                add(solver(), &terms.input.asset, input);
            }
            (EscrowState::None | EscrowState::Refunded, _) => {}
        }
    }
    if at_block.paid_out {
        add(solver(), &terms.output.asset, output.saturating_neg());
    }
    all
}

fn signed(amount: Minor) -> i128 {
    i128::try_from(amount.get()).unwrap_or(i128::MAX)
}

/// The balance of one token: in the escrow, or in a wallet with all the holders who share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletBalance {
    /// For operators: `the wallet of north`.
    pub whose: String,
    /// `escrow`, or `wallet:` and the address.
    pub account: String,
    pub asset: String,
    /// What the ledger says is there.
    pub ledger: i128,
    /// What settlements in flight have moved on the chain by the block, less what they have moved in the ledger.
    pub in_flight: i128,
    /// What the token's contract says.
    pub held: i128,
    /// Since when the two have differed without a pause.
    pub differs_since: Option<Timestamp>,
}

/// What a comparison of one balance came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BalanceCheck {
    Agrees,
    /// They differ, not for long: a transfer may be on its way.
    InTransit {
        since: Timestamp,
    },
    Differs {
        since: Timestamp,
        found: Break,
    },
}

impl WalletBalance {
    /// What nothing in flight explains: positive, the wallet has more.
    pub const fn unexplained(&self) -> i128 {
        self.held.saturating_sub(self.ledger.saturating_add(self.in_flight))
    }

    /// A difference is a break once it has lasted. That it changes meanwhile does not begin it anew.
    pub fn judge(&self, now: Timestamp, patience_ms: i64) -> BalanceCheck {
        let minor = self.unexplained();
        if minor == 0 {
            return BalanceCheck::Agrees;
        }
        let since = self.differs_since.unwrap_or(now);
        if now.millis().saturating_sub(since.millis()) <= patience_ms {
            return BalanceCheck::InTransit { since };
        }
        let Self { whose, account, asset, ledger, in_flight, held, .. } = self;
        let detail = format!(
            "{whose} holds {held} of {asset}, the ledger has {ledger}, and {in_flight} is in flight; since {}",
            since.iso8601()
        );
        let found = Break {
            kind: BreakKind::BalanceDiffers,
            reference: None,
            entity: None,
            detail,
            action: SuggestedAction::Page,
            difference: Some(Difference { account: account.clone(), asset: asset.clone(), minor }),
        };
        BalanceCheck::Differs { since, found }
    }
}

#[cfg(test)]
mod tests;
