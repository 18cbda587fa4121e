//! The configuration that every part of the core reads and that never changes while the process runs.

use std::sync::Arc;

use alloy::primitives::Address;
use dvp_domain::asset::Registry;
use dvp_domain::ids::Reference;
pub use dvp_domain::windows::{PayoutTime, Windows, WindowsError};
use dvp_rails::CheckPayout;

use crate::backlog::Backlog;
pub use crate::clock::{Clock, now};
use crate::liquidity::Liquidity;
use crate::permit::PermitDomain;
use crate::screening::Screening;
use crate::secrets::Vault;

/// The chain that token inputs are locked on.
#[derive(Debug, Clone)]
pub struct ChainConfig {
    pub chain_id: i64,
    pub escrow: String,
    pub anchor: String,
    pub permit: PermitDomain,
    /// The backlog of accepted orders on the chain.
    pub backlog: Backlog,
}

impl ChainConfig {
    /// `permit_name` is the permit contract's EIP-712 name. `None` when an address does not parse.
    pub fn new(chain_id: u64, escrow: &str, anchor: &str, permit: &str, permit_name: &str) -> Option<Self> {
        let contract: Address = permit.parse().ok()?;
        Some(Self {
            chain_id: i64::try_from(chain_id).ok()?,
            escrow: escrow.to_owned(),
            anchor: anchor.to_owned(),
            permit: PermitDomain::new(permit_name, chain_id, contract),
            backlog: Backlog::default(),
        })
    }
}

#[derive(Debug)]
pub struct Context {
    pub registry: Registry,
    /// The sources of prices. Their offers change all the time.
    pub liquidity: Arc<Liquidity>,
    /// The payout provider's name on paths and receipts.
    pub payout_provider: String,
    pub chain: ChainConfig,
    pub windows: Windows,
    pub vault: Vault,
    pub clock: Clock,
    /// The delay before an order's lock, by its beneficiary's account: zero except for a simulated rail.
    pub rest_millis: fn(account: &str) -> i64,
    /// Orders that the payout rail cannot pay are not accepted.
    pub check_payout: CheckPayout,
    /// How orders are screened before they settle.
    pub screening: Screening,
}

impl Context {
    /// The settlement's id on the chain.
    pub fn entity(reference: &Reference) -> [u8; 32] {
        dvp_domain::canonical::sha256(reference.as_str())
    }
}
