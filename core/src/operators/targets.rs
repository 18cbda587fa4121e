//! The subjects of operators' controls. A pause, a limit or a band of something that does not exist would stop nothing, in
//! silence, so each name is compared with what there is.

use dvp_domain::asset::{Asset, Registry};
use dvp_domain::ledger::Owner;
use dvp_domain::names::suggestion;
use dvp_domain::pause::Scope;
use dvp_domain::settlement::leg::LegKind;
use dvp_store::ledger::balances;
use dvp_store::partners::registry::{self, PartnerRow};
use dvp_store::{PgConnection, StoreError};

/// So many partners' names are compared with a mistyped one.
const COMPARED_MAX: i64 = 10_000;

/// The configured names. Partners, and providers that were configured once, are in the database.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// With the chain of each that is on one.
    assets: Vec<(String, Option<String>)>,
    /// `INPUT/OUTPUT`
    pairs: Vec<String>,
    providers: Vec<String>,
    chains: Vec<String>,
}

/// Why a name is refused.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("there is no {what} {given}{suggestion}")]
    Unknown { what: &'static str, given: String, suggestion: String },
    #[error("{asset} is no token of {chain}")]
    NotOfChain { asset: String, chain: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn unknown<'a>(
    what: &'static str,
    given: &str,
    there: impl IntoIterator<Item = &'a String> + Clone,
) -> TargetError {
    let names: Vec<&str> = there.into_iter().map(String::as_str).collect();
    let suggestion = suggestion(given, names.iter().copied());
    TargetError::Unknown { what, given: given.to_owned(), suggestion }
}

fn is_among(what: &'static str, given: &str, there: &[String]) -> Result<(), TargetError> {
    if there.iter().any(|name| name == given) { Ok(()) } else { Err(unknown(what, given, there)) }
}

impl Targets {
    /// Of a registry, with the names of the chains and of the providers' accounts.
    pub fn new(
        registry: &Registry,
        chains: impl IntoIterator<Item = String>,
        providers: impl IntoIterator<Item = String>,
    ) -> Self {
        let asset = |asset: &Asset| (asset.symbol.clone(), asset.chain().map(str::to_owned));
        Self {
            assets: registry.assets.iter().map(asset).collect(),
            pairs: registry.pairs.iter().map(|pair| format!("{}/{}", pair.base, pair.quote)).collect(),
            providers: providers.into_iter().collect(),
            chains: chains.into_iter().collect(),
        }
    }

    /// Of the names themselves; a pair is `INPUT/OUTPUT`.
    pub const fn of_names(
        assets: Vec<(String, Option<String>)>,
        pairs: Vec<String>,
        providers: Vec<String>,
        chains: Vec<String>,
    ) -> Self {
        Self { assets, pairs, providers, chains }
    }

    /// `INPUT/OUTPUT`
    pub fn pairs(&self) -> &[String] {
        &self.pairs
    }

    pub fn providers(&self) -> &[String] {
        &self.providers
    }

    pub fn chains(&self) -> &[String] {
        &self.chains
    }

    /// The target of a control as it is stored: a partner, which is given by its name or its id, by its id.
    pub async fn find(
        &self,
        conn: &mut PgConnection,
        scope: Scope,
        given: &str,
    ) -> Result<String, TargetError> {
        match scope {
            Scope::Everything => {}
            Scope::Partner => return Ok(partner(conn, given).await?.id),
            Scope::Pair => is_among("pair", given, &self.pairs)?,
            Scope::Provider => self.check_provider(conn, given).await?,
            Scope::Chain => is_among("chain", given, &self.chains)?,
            Scope::Rail => is_among("rail", given, &LegKind::ALL.map(|leg| leg.as_str().to_owned()))?,
        }
        Ok(given.to_owned())
    }

    /// Refuses a provider that neither the configuration nor the ledger knows.
    pub async fn check_provider(&self, conn: &mut PgConnection, given: &str) -> Result<(), TargetError> {
        if self.providers.iter().any(|known| known == given) {
            return Ok(());
        }
        let in_books = balances::list_providers(conn).await?;
        if in_books.iter().any(|known| known == given) {
            return Ok(());
        }
        Err(unknown("provider", given, self.providers.iter().chain(&in_books)))
    }

    /// Refuses an asset that neither the configuration nor the ledger knows.
    pub async fn check_asset(&self, conn: &mut PgConnection, given: &str) -> Result<(), TargetError> {
        let is_listed = self.assets.iter().any(|(symbol, _)| symbol == given);
        if is_listed || balances::is_known(conn, None::<&Owner>, Some(given)).await? {
            return Ok(());
        }
        Err(unknown("asset", given, self.assets.iter().map(|(symbol, _)| symbol)))
    }

    /// Refuses a configured asset that is not on the chain.
    pub(crate) fn check_on_chain(&self, asset: &str, chain: &str) -> Result<(), TargetError> {
        match self.assets.iter().find(|(symbol, _)| symbol == asset) {
            Some((_, on)) if on.as_deref() != Some(chain) => {
                Err(TargetError::NotOfChain { asset: asset.to_owned(), chain: chain.to_owned() })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A partner by its name, or by its id as lists show it.
pub async fn partner(conn: &mut PgConnection, given: &str) -> Result<PartnerRow, TargetError> {
    if let Some(partner) = registry::find_partner(conn, given).await? {
        return Ok(partner);
    }
    let all = registry::list_partners(conn, "", COMPARED_MAX).await?;
    let names: Vec<String> = all.iter().map(|partner| partner.name.clone()).collect();
    all.into_iter().find(|partner| partner.id == given).ok_or_else(|| unknown("partner", given, &names))
}
