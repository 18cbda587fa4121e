//! The steps of worker loops at which a test can make one item fail. In a build without the feature `inject` they cost
//! nothing and do nothing.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use sqlx::PgPool;

use super::Worker;
use crate::StoreError;

macro_rules! steps {
    ($( $worker:ident: $( $(#[$doc:meta])* $step:ident = $name:literal ),+ ;)+) => {
        /// A step of a worker loop, named by its loop and what the loop does there.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Step { $( $( $(#[$doc])* $step ),+ ),+ }

        impl Step {
            pub const ALL: &'static [Self] = &[$( $( Self::$step ),+ ),+];

            pub const fn worker(self) -> Worker {
                match self { $( $( Self::$step )|+ => Worker::$worker ),+ }
            }

            pub const fn as_str(self) -> &'static str {
                match self { $( $( Self::$step => $name ),+ ),+ }
            }
        }
    };
}

steps! {
    Effects:
        /// An order's due work was claimed and its order is read.
        EffectRead = "read",
        /// The step of the order is about to be written.
        EffectWrite = "write";
    Facts:
        /// A fact was claimed and its order is read.
        FactRead = "read",
        /// The step of the order is about to be written.
        FactWrite = "write";
    Figures:
        /// A part is counted.
        FiguresCount = "count";
    Relayer:
        /// A chain command is simulated, alone or in a batch.
        CommandLook = "look",
        /// A transaction with the command is about to be stored.
        CommandSign = "sign";
    Transactions:
        /// The command's transaction is broadcast, or looked for in a block.
        TransactionSend = "send";
    Lateness:
        /// Overdue payouts and contradictions are counted, and funds guarded.
        LatenessCount = "count",
        /// The refund of an order is requested.
        RefundWrite = "refund";
    AuditAnchor:
        /// The head of the audit log is handed to the relayer.
        AuditAnchorWrite = "write";
    LedgerCheck:
        /// The ledger is compared.
        LedgerCompare = "compare";
    LedgerClosings:
        /// An hour is closed.
        LedgerClose = "close";
    Retention:
        /// Expired rows of a table are deleted.
        RetentionTrim = "trim",
        /// The personal data of an order is erased.
        RetentionErase = "erase";
    Liquidity:
        /// A source of prices is refreshed.
        SourceRefresh = "refresh";
    Ranges:
        /// Orders that the market meets are read.
        RangeRead = "read",
        /// The fill of an order is prepared.
        RangePrepare = "prepare";
    Legacy:
        /// An order is evaluated.
        LegacyTurn = "turn";
    Dispatcher:
        /// A delivery is made of an event.
        DispatchEvent = "event";
    Replays:
        /// The next part of a replay is queued.
        ReplayTurn = "turn";
    Deliveries:
        /// An attempt is about to be made.
        DeliverySend = "send",
        /// What the receiver answered.
        DeliveryAnswer = "answer";
    Outcomes:
        /// Outcomes of attempts are written.
        OutcomeWrite = "write";
    FixSessions:
        /// A session is looked at in a sweep.
        FixSessionLook = "look",
        /// The driver of a session begins.
        FixSessionRun = "run";
    FixFeed:
        /// New events are read for all sessions.
        FixFeedRead = "read";
    FixStatus:
        /// The status of sessions is written.
        FixStatusWrite = "write";
    BankComparison:
        /// An account at the bank is compared with the ledger.
        BankAccountCompare = "compare";
    Indexer:
        /// The next step of a chain begins.
        IndexerRead = "read",
        /// What has passed the payout gate is published.
        IndexerGate = "gate";
    Wallets:
        /// A cached wallet is read again.
        WalletRead = "read";
    Halts:
        /// Which chains are halted is read.
        HaltsRead = "read";
    Backlog:
        /// The open commands of a chain are counted.
        BacklogCount = "count";
    ChainComparison:
        /// A token, wallet, order, contract or block is read or judged.
        ChainCompare = "compare";
    BankFiles:
        /// A file is read.
        BankFileRead = "read",
        /// What a file says is about to be written.
        BankFileWrite = "write",
        /// The bank's reason of a refusal.
        BankFileText = "text";
    BankRecalls:
        /// A recall is written, and moved to the bank.
        RecallSend = "send";
}

impl Step {
    /// Whether text of somebody outside comes in at the step.
    pub const fn is_foreign(self) -> bool {
        matches!(self, Self::BankFileText | Self::DeliveryAnswer)
    }
}

/// An item that is known by a name only, within its database: the databases of tests have such an item each.
pub fn in_database<'a>(pool: &'a PgPool, item: &'a str) -> impl Display + 'a {
    struct InDatabase<'a>(&'a PgPool, &'a str);
    impl Display for InDatabase<'_> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            write!(f, "{}/{}", self.0.connect_options().get_database().unwrap_or_default(), self.1)
        }
    }
    InDatabase(pool, item)
}

/// Where an item may fail in a test. Elsewhere it always succeeds.
///
/// # Errors
/// The injected failure.
#[cfg(not(feature = "inject"))]
#[inline(always)]
pub async fn at(_: Step, _: impl Display) -> Result<(), StoreError> {
    Ok(())
}

/// Text from outside, as it came; in a test as an injection has it.
#[cfg(not(feature = "inject"))]
#[inline(always)]
pub fn foreign<'a>(_: Step, _: impl Display, came: &'a str) -> Cow<'a, str> {
    Cow::Borrowed(came)
}

#[cfg(feature = "inject")]
pub use self::inject::{at, foreign};

/// Failures of single items, for tests.
#[cfg(feature = "inject")]
pub mod inject {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use parking_lot::Mutex;

    use super::{Cow, Display, Step, StoreError};

    /// What happens to the item.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FailureKind {
        /// The rows cannot be written or read.
        Data,
        /// The database does not answer.
        Unavailable,
        /// Somebody else is always faster: no attempt ever succeeds.
        NeverSucceeds,
        Panic,
        /// The step never returns.
        Hangs,
        /// Text from outside has everything that a database, a log or a bank refuses, and is long.
        Poison,
        /// Nothing: the item is only counted.
        Counted,
    }

    impl FailureKind {
        /// What fails.
        pub const ALL: [Self; 6] =
            [Self::Data, Self::Unavailable, Self::NeverSucceeds, Self::Panic, Self::Hangs, Self::Poison];

        /// Whether the kind can happen at a step.
        pub const fn is_of(self, step: Step) -> bool {
            match self {
                Self::Poison => step.is_foreign(),
                // The driver of a session and the step of a chain have time limits of their own, and what goes through the ledger may take hours.
                Self::Hangs => {
                    let is_long = matches!(
                        step,
                        Step::FixSessionRun | Step::LedgerCompare | Step::LedgerClose | Step::IndexerRead
                    );
                    !step.is_foreign() && !is_long
                }
                Self::Data | Self::Unavailable | Self::NeverSucceeds | Self::Panic => !step.is_foreign(),
                Self::Counted => false,
            }
        }
    }

    #[derive(Debug)]
    struct Rule {
        step: Step,
        item: String,
        kind: FailureKind,
        hits: AtomicU64,
    }

    static RULES: Mutex<Vec<Arc<Rule>>> = Mutex::new(Vec::new());
    /// The number of rules, so that a step costs nothing while there is none.
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    /// A failure of one item at one step, until this is dropped.
    #[derive(Debug)]
    pub struct InjectedFailure(Arc<Rule>);

    impl InjectedFailure {
        /// `item` identifies the item within the process: other tests run at the same time.
        pub fn new(step: Step, item: impl Into<String>, kind: FailureKind) -> Self {
            let rule = Arc::new(Rule { step, item: item.into(), kind, hits: AtomicU64::new(0) });
            RULES.lock().push(Arc::clone(&rule));
            COUNT.fetch_add(1, Ordering::SeqCst);
            Self(rule)
        }

        /// How often the item has failed by it.
        pub fn hits(&self) -> u64 {
            self.0.hits.load(Ordering::SeqCst)
        }
    }

    impl Drop for InjectedFailure {
        fn drop(&mut self) {
            RULES.lock().retain(|rule| !Arc::ptr_eq(rule, &self.0));
            COUNT.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn find(step: Step, item: impl Display) -> Option<Arc<Rule>> {
        if COUNT.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let item = item.to_string();
        RULES.lock().iter().find(|rule| rule.step == step && rule.item == item).map(Arc::clone)
    }

    /// Fails if a test has said so.
    ///
    /// # Errors
    /// The injected failure.
    ///
    /// # Panics
    /// Where a test injects a panic.
    pub async fn at(step: Step, item: impl Display) -> Result<(), StoreError> {
        let Some(rule) = find(step, item) else { return Ok(()) };
        if rule.kind != FailureKind::Poison {
            rule.hits.fetch_add(1, Ordering::SeqCst);
        }
        match rule.kind {
            FailureKind::Data => Err(StoreError::corrupt("injected", "a test's")),
            FailureKind::Unavailable => Err(sqlx::Error::PoolTimedOut.into()),
            FailureKind::NeverSucceeds => Err(StoreError::Stale { what: "injected" }),
            FailureKind::Panic => panic!("injected"),
            FailureKind::Hangs => std::future::pending().await,
            FailureKind::Poison | FailureKind::Counted => Ok(()),
        }
    }

    /// The text, or a poisoned one if a test has said so.
    pub fn foreign<'a>(step: Step, item: impl Display, came: &'a str) -> Cow<'a, str> {
        match find(step, item) {
            Some(rule) if rule.kind == FailureKind::Poison => {
                rule.hits.fetch_add(1, Ordering::SeqCst);
                Cow::Owned(poison())
            }
            Some(rule) if rule.kind == FailureKind::Counted => {
                rule.hits.fetch_add(1, Ordering::SeqCst);
                Cow::Borrowed(came)
            }
            _ => Cow::Borrowed(came),
        }
    }

    /// A megabyte with NUL, controls, an override of writing direction, a noncharacter, bytes that are no UTF-8, and
    /// what breaks quoted text.
    pub fn poison() -> String {
        let mut bytes =
            b"\0\x01\x1b[31m\r\n\xff\xfe\xed\xa0\x80 '\"\\<>&; \xe2\x80\xae\xef\xbf\xbf ".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', 1 << 20));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[tokio::test]
        async fn only_the_named_item_fails_at_the_named_step_and_until_it_is_lifted() {
            let injected = InjectedFailure::new(Step::EffectRead, "exe_1", FailureKind::Data);
            assert!(at(Step::EffectRead, "exe_2").await.is_ok());
            assert!(at(Step::EffectWrite, "exe_1").await.is_ok());
            assert!(at(Step::EffectRead, "exe_1").await.is_err());
            assert!(at(Step::EffectRead, "exe_1").await.is_err());
            assert_eq!(injected.hits(), 2);
            drop(injected);
            assert!(at(Step::EffectRead, "exe_1").await.is_ok());
        }
    }
}
