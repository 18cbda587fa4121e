//! The terms of an accepted order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::beneficiary::MaskedBeneficiary;
use crate::ids::{PartnerId, Reference};
use crate::intent::IntentRequest;
use crate::money::Minor;
use crate::plan::Plan;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// The agreement at acceptance; never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    pub reference: Reference,
    pub partner_id: PartnerId,
    pub livemode: bool,
    pub request: IntentRequest,
    pub plan: Plan,
    pub input: AssetAmount,
    pub output: AssetAmount,
    pub accepted_at: Timestamp,
    /// The settlement's id on the chain.
    pub entity: String,
    /// SHA-256 of the preimage that releases the funds.
    pub hashlock: String,
    /// When the lock is sent; later than acceptance only when a rail requires it.
    pub lock_at: Timestamp,
    /// The order counts as open from its acceptance to its end. False while it rests: it counts from its fill on.
    pub counts_as_open: bool,
    /// The escrows of the contracts that took the order, by the ids of its chains: it ends in these, whichever take new
    /// orders by then.
    #[serde(default)]
    pub escrows: BTreeMap<i64, String>,
    /// The registered recipient that the request names, as events show it; `None`: it names no registered one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<MaskedBeneficiary>,
    /// The request that placed the order, if it belongs to a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetAmount {
    pub asset: String,
    pub amount: Minor,
    pub exponent: u8,
    pub chain: Option<String>,
}

/// The legs of an order.
impl Terms {
    /// The input is a token, pulled from the user's wallet; otherwise it is prefunded.
    pub const fn locks(&self) -> bool {
        self.plan.kind.locks_input()
    }

    /// The output is a token, paid on the chain.
    pub const fn pays_on_chain(&self) -> bool {
        self.plan.kind.pays_on_chain()
    }

    /// Both are tokens of one chain, exchanged in one transaction.
    pub fn swaps(&self) -> bool {
        self.locks() && self.pays_on_chain() && !self.crosses()
    }

    /// Both are tokens, of two chains: the input is locked on the one, the output paid on the other.
    pub fn crosses(&self) -> bool {
        let chains = self.input.chain.as_deref().zip(self.output.chain.as_deref());
        self.locks() && self.pays_on_chain() && chains.is_some_and(|(input, output)| input != output)
    }

    /// There is an offramp leg: not for money against money.
    pub const fn converts(&self) -> bool {
        self.locks() || self.pays_on_chain()
    }
}
