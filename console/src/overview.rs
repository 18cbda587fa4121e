//! The rows of the home page, read once for all operators who look at it.

use dvp_store::chain::{self, ChainFees, StatusRow};
use dvp_store::ledger::balances::{self, BalanceRow};
use dvp_store::operators::approvals::{self, Approval, Filter};
use dvp_store::operators::overview::{
    self, BankCounts, InFlight, Lately, SessionCounts, Waiting, WebhookCounts,
};
use dvp_store::orders::listing::{self, OrderFilter, OrderRow, OrderView};
use dvp_store::reconcile::{self, KeptBreak};
use dvp_store::workers::processes::{self, Process};
use dvp_store::{PgConnection, StoreError};

/// The most rows of each list.
const ROWS: i64 = 8;

#[derive(Debug)]
pub(crate) struct Overview {
    pub waiting: Waiting,
    pub in_flight: Vec<InFlight>,
    pub stuck: Vec<OrderRow>,
    pub breaks: Vec<KeptBreak>,
    pub approvals: Vec<Approval>,
    pub chains: Vec<StatusRow>,
    pub sessions: SessionCounts,
    pub webhooks: WebhookCounts,
    /// The last day, then its hours.
    pub lately: Vec<Lately>,
    pub bank: BankCounts,
    /// What providers hold.
    pub inventory: Vec<BalanceRow>,
    pub fees: Vec<(u64, ChainFees)>,
    pub processes: Vec<Process>,
}

impl Overview {
    pub(crate) async fn load(conn: &mut PgConnection) -> Result<Self, StoreError> {
        let stuck = OrderFilter { view: OrderView::Stuck, limit: ROWS, ..OrderFilter::default() };
        let pending = Filter { state: Some("pending"), limit: ROWS, ..Filter::default() };
        let mut breaks = reconcile::list_open_breaks(conn).await?;
        breaks.truncate(usize::try_from(ROWS).unwrap_or_default());
        Ok(Self {
            waiting: overview::load_waiting(conn).await?,
            in_flight: overview::list_in_flight(conn).await?,
            stuck: listing::list(conn, &stuck).await?,
            breaks,
            approvals: approvals::list(conn, &pending).await?,
            chains: chain::list_statuses(conn).await?,
            sessions: overview::load_session_counts(conn).await?,
            webhooks: overview::load_webhook_counts(conn).await?,
            lately: overview::list_lately(conn).await?,
            bank: overview::load_bank_counts(conn).await?,
            inventory: balances::list_held_by_providers(conn, ROWS).await?,
            processes: processes::list(conn).await?,
            fees: chain::list_fees(conn).await?.into_iter().map(|(chain, fees, _)| (chain, fees)).collect(),
        })
    }
}
