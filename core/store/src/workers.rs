//! The worker loops of the service: their names, the guard of their items, and the supervision of the loops themselves.
//!
//! A loop works through items (an order's due work, a file, a table), and an item that fails never ends a pass:
//!
//! ```text
//! item ──guard: time limit, panics──> done ──> its row in `set_aside` is deleted
//!                       └──> failed: set aside with a growing delay (row), the loop goes on with the next item
//! ```
//!
//! A loop that itself ends is started again ([`supervise`]). Tests make an item fail at a named [`Step`].
//!
//! Kept by `core/tests/it/failing_items.rs::every_loop_is_tried_at_every_step` and
//! `core/store/src/workers/supervision.rs::a_loop_that_panics_or_returns_is_started_again_until_it_is_stopped`.

use std::time::Duration;

mod guard;
mod items;
pub mod processes;
pub mod set_aside;
mod step;
mod supervision;

pub use self::guard::{ItemError, guarded};
pub use self::items::{Apart, Attended, Items, set_aside_for};
#[cfg(feature = "inject")]
pub use self::step::inject;
pub use self::step::{Step, at, foreign, in_database};
pub use self::supervision::{pause, supervise, supervise_until};

/// How long a loop waits for one item, before it goes on beside it.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// The first and the longest delay of an item that fails.
pub const WAIT_MS: u64 = 1_000;
pub const WAIT_MAX_MS: u64 = 60_000;

macro_rules! workers {
    ($( $(#[$doc:meta])* $worker:ident = $name:literal ),+ $(,)?) => {
        /// A worker loop. Its name is in log lines, metrics and the list of what is set aside.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Worker { $( $(#[$doc])* $worker ),+ }

        impl Worker {
            pub const ALL: &'static [Self] = &[$( Self::$worker ),+];
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$( $name ),+];

            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$worker => $name ),+ }
            }
        }
    };
}

workers! {
    /// Due work of orders: locks, conversions, payouts, reversals, timers.
    Effects = "effects",
    /// Chain facts, applied to their orders.
    Facts = "facts",
    /// Overdue payouts, and refunds of failed orders.
    Lateness = "lateness",
    /// The head of the audit log, anchored every day.
    AuditAnchor = "audit_anchor",
    /// Figures of the database, for metrics.
    Figures = "figures",
    LedgerCheck = "ledger_check",
    LedgerClosings = "ledger_closings",
    /// Resting orders that wait for the market.
    Ranges = "ranges",
    /// Orders of the older interface that are evaluated again and again.
    Legacy = "legacy",
    Retention = "retention",
    /// The bank's statements, compared with the ledger.
    BankComparison = "bank_comparison",
    /// Files from the bank.
    BankFiles = "bank_files",
    /// Recalls that are sent to the bank.
    BankRecalls = "bank_recalls",
    /// Events that become deliveries.
    Dispatcher = "dispatcher",
    /// Ranges of events that are delivered again.
    Replays = "replays",
    /// Deliveries to webhook endpoints.
    Deliveries = "deliveries",
    /// Outcomes of deliveries.
    Outcomes = "outcomes",
    /// Wallets of orders, read from their chains.
    Wallets = "wallets",
    /// Sources of prices and references.
    Liquidity = "liquidity",
    /// Which chains are halted.
    Halts = "halts",
    /// The commands that wait for a chain.
    Backlog = "backlog",
    /// What a process remembers of the database: API keys, new events, statuses.
    Caches = "caches",
    /// FIX sessions of this process.
    FixSessions = "fix_sessions",
    /// Reports to FIX sessions.
    FixFeed = "fix_feed",
    /// Listeners for FIX, and their certificates.
    FixListeners = "fix_listeners",
    /// What operators see of FIX sessions.
    FixStatus = "fix_status",
    /// The archive of FIX messages.
    FixArchive = "fix_archive",
    /// Blocks of a chain.
    Indexer = "indexer",
    /// Commands that are sent to a chain.
    Relayer = "relayer",
    /// The transactions of relayer accounts, and the steps of their turns.
    Transactions = "transactions",
    /// A chain, compared with the ledger.
    ChainComparison = "chain_comparison",
}
