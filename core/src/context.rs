//! The configuration that every part of the core reads and that never changes while the process runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy::primitives::Address;
use dvp_domain::abandonment::CoolDownRules;
use dvp_domain::address::{self, OwnContracts};
use dvp_domain::asset::{Asset, Registry};
use dvp_domain::cell::CellId;
use dvp_domain::ids::Reference;
use dvp_domain::intent::IntentRequest;
use dvp_domain::terms::Terms;
pub use dvp_domain::windows::{PayoutTime, Windows, WindowsError};
use dvp_rails::CheckPayout;
use dvp_store::StoreError;

use crate::chain::backlog::Backlog;
use crate::chain::halts::{Halt, Halts};
use crate::chain::permit::PermitDomain;
pub use crate::clock::{Clock, now, system};
use crate::liquidity::Liquidity;
use crate::screening::Screening;
use crate::secrets::Vault;

/// A set of the service's contracts, as far as orders name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractSet {
    pub escrow: String,
    pub anchor: String,
    /// The contract that takes deposits of the chain's coin, if the contracts deal in it.
    pub gate: Option<String>,
}

/// A chain that tokens settle on.
#[derive(Debug, Clone)]
pub struct ChainConfig {
    /// The name that assets refer to.
    pub name: String,
    pub chain_id: i64,
    /// The contracts that take new orders.
    pub taking: ContractSet,
    /// Those before them, in which their orders end.
    pub ending: Vec<ContractSet>,
    pub permit: PermitDomain,
    /// The contracts of the service, by their names.
    pub contracts: Vec<(String, address::Address)>,
    /// The backlog of accepted orders on the chain.
    pub backlog: Backlog,
    pub halt: Halt,
}

impl ChainConfig {
    /// `permit_name` is the permit contract's EIP-712 name. `None` when an address does not parse.
    pub fn new(
        name: &str,
        chain_id: u64,
        escrow: &str,
        anchor: &str,
        permit: &str,
        permit_name: &str,
    ) -> Option<Self> {
        let contract: Address = permit.parse().ok()?;
        let named = [("escrow", escrow), ("anchor", anchor), ("permit contract", permit)];
        let contracts = named.map(|(name, text)| Some((name.to_owned(), text.parse().ok()?)));
        Some(Self {
            name: name.to_owned(),
            chain_id: i64::try_from(chain_id).ok()?,
            taking: ContractSet { escrow: escrow.to_owned(), anchor: anchor.to_owned(), gate: None },
            ending: Vec::new(),
            permit: PermitDomain::new(permit_name, chain_id, contract),
            contracts: contracts.into_iter().collect::<Option<_>>()?,
            backlog: Backlog::default(),
            halt: Halt::default(),
        })
    }

    pub fn contract_sets(&self) -> impl Iterator<Item = &ContractSet> {
        std::iter::once(&self.taking).chain(&self.ending)
    }

    /// The escrow of the contracts that an order ends in: of those that took it.
    pub fn escrow_of<'a>(&'a self, terms: &'a Terms) -> &'a str {
        terms.escrows.get(&self.chain_id).unwrap_or(&self.taking.escrow)
    }

    /// The contracts that an order ends in.
    pub fn contracts_of(&self, terms: &Terms) -> Result<&ContractSet, StoreError> {
        let escrow = self.escrow_of(terms);
        let unknown = || {
            let chain = &self.name;
            StoreError::corrupt(
                "execution",
                format_args!(
                    "the deployment's record of {chain} names no contracts with the escrow {escrow}"
                ),
            )
        };
        self.contract_sets().find(|set| set.escrow.eq_ignore_ascii_case(escrow)).ok_or_else(unknown)
    }
}

/// The chains of the configuration. What belongs to no token, such as the anchors of orders of money for money, goes to
/// the home chain.
#[derive(Debug, Clone)]
pub struct Chains {
    home: ChainConfig,
    further: Vec<ChainConfig>,
    contracts: OwnContracts,
}

impl Chains {
    pub fn new(home: ChainConfig, further: Vec<ChainConfig>, registry: &Registry) -> Self {
        let mut contracts = OwnContracts::default();
        for asset in &registry.assets {
            if let Some(token) = asset.held_as().and_then(|token| token.parse().ok()) {
                contracts.insert(token, format!("the token contract of {}", asset.symbol));
            }
        }
        for chain in std::iter::once(&home).chain(&further) {
            for (name, contract) in &chain.contracts {
                contracts.insert(*contract, format!("the {name} of {}", chain.name));
            }
        }
        Self { home, further, contracts }
    }

    /// The contracts that no wallet of an order may be.
    pub const fn contracts(&self) -> &OwnContracts {
        &self.contracts
    }

    pub const fn home(&self) -> &ChainConfig {
        &self.home
    }

    pub fn iter(&self) -> impl Iterator<Item = &ChainConfig> {
        std::iter::once(&self.home).chain(&self.further)
    }

    pub fn halts(&self) -> Halts {
        Halts(self.iter().map(|one| (one.chain_id, one.name.clone(), one.halt.clone())).collect())
    }

    /// The chain that an asset names. With a single chain it is that one: orders from before it was renamed are still
    /// its own.
    pub fn of(&self, name: Option<&str>) -> Option<&ChainConfig> {
        match name {
            Some(name) if !self.further.is_empty() => self.iter().find(|chain| chain.name == name),
            Some(_) | None => Some(&self.home),
        }
    }
}

#[derive(Debug)]
pub struct Context {
    /// Carried by the identifiers that are issued.
    pub cell: Option<CellId>,
    pub registry: Registry,
    /// The sources of prices. Their offers change all the time.
    pub liquidity: Arc<Liquidity>,
    /// The payout provider's name on paths and receipts.
    pub payout_provider: String,
    pub chains: Chains,
    pub windows: Windows,
    pub vault: Vault,
    pub clock: Clock,
    /// The delay before an order's lock, by its beneficiary's account: zero except for a simulated rail.
    pub rest_millis: fn(account: &str) -> i64,
    /// Orders that the payout rail cannot pay are not accepted.
    pub check_payout: CheckPayout,
    /// How orders are screened before they settle.
    pub screening: Screening,
    /// When a taker cools down that lets its orders and quotes go.
    pub cool_down: CoolDownRules,
    /// The places of order entry in the writer's queue ([`crate::writer::ORDER_PLACES`]).
    pub order_places: usize,
}

impl Context {
    /// The settlement's id on the chain.
    pub fn entity(reference: &Reference) -> [u8; 32] {
        dvp_domain::canonical::sha256(reference.as_str())
    }

    /// The chain of an order's commands: its token's, with two tokens the input's. The payment of an output of another
    /// chain is on [`Self::payout_chain_of`].
    pub fn chain_of(&self, terms: &Terms) -> Result<&ChainConfig, StoreError> {
        let name = terms.input.chain.as_deref().or(terms.output.chain.as_deref());
        let unknown = || {
            let name = name.unwrap_or_default();
            StoreError::corrupt("execution", format_args!("no chain {name} is configured"))
        };
        self.chains.of(name).ok_or_else(unknown)
    }

    /// The chain of an order's payment in tokens: the output's, or the only one.
    pub fn payout_chain_of(&self, terms: &Terms) -> Result<&ChainConfig, StoreError> {
        match terms.output.chain.as_deref() {
            Some(name) if terms.crosses() => self.chains.of(Some(name)).ok_or_else(|| {
                StoreError::corrupt("execution", format_args!("no chain {name} is configured"))
            }),
            Some(_) | None => self.chain_of(terms),
        }
    }

    /// The escrows of the contracts that take an order of these terms, by chain.
    pub fn escrows_for(&self, terms: &Terms) -> Result<BTreeMap<i64, String>, StoreError> {
        let chains = [self.chain_of(terms)?, self.payout_chain_of(terms)?];
        Ok(chains.into_iter().map(|chain| (chain.chain_id, chain.taking.escrow.clone())).collect())
    }

    /// Whether a chain of the order is halted: no leg of it begins.
    pub fn is_held(&self, terms: &Terms) -> Result<bool, StoreError> {
        Ok(self.chain_of(terms)?.halt.is_halted() || self.payout_chain_of(terms)?.halt.is_halted())
    }

    /// Whether the chain of one of these assets is halted.
    pub fn is_halted(&self, assets: [&Asset; 2]) -> bool {
        let on_halted = |chain| self.chains.of(Some(chain)).is_some_and(|chain| chain.halt.is_halted());
        assets.into_iter().filter_map(Asset::chain).any(on_halted)
    }

    /// The chain that a request's output would be paid on, if it is another one than that of its input.
    pub fn other_chain_of_output(&self, request: &IntentRequest) -> Option<&ChainConfig> {
        let chain_of = |descriptor| self.registry.resolve(descriptor).and_then(Asset::chain);
        let (input, output) = (chain_of(&request.input_asset)?, chain_of(&request.output_asset)?);
        self.chains.of(Some(output)).filter(|_| input != output)
    }

    /// The chain that a request's input would be locked on. An unknown asset has none of its own.
    pub fn chain_of_input(&self, request: &IntentRequest) -> &ChainConfig {
        let asset = self.registry.resolve(&request.input_asset);
        self.chains.of(asset.and_then(Asset::chain)).unwrap_or(&self.chains.home)
    }
}
