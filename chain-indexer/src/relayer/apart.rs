//! Does the items of a turn apart: one that fails is set aside with its own back-off, and the others go on.
//!
//! A command has a back-off in its row; transactions and steps of the turn have theirs with the items of
//! [`Worker::Transactions`](dvp_store::workers::Worker::Transactions). A failure concerns everybody only when the node or
//! the database cannot be reached, or the lease is lost. Where the error does not tell, they are asked something that
//! always has an answer.
//!
//! Kept by `chain-indexer/tests/it/apart.rs::a_failing_command_holds_up_no_other` and
//! `chain-indexer/tests/it/apart.rs::one_failing_transaction_holds_up_no_other`.

use super::{RelayError, Relayer};
use crate::rpc;
use alloy::primitives::Address;
use alloy::transports::RpcError;
use dvp_store::chain::CommandRow;
use dvp_store::workers::{Attended, ItemError, guarded};
use dvp_store::{Fault, StoreError};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use metrics::counter;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;

/// The time limit of one item's work, and of a transaction: the commands that come meanwhile wait for it.
const ITEM_WITHIN: Duration = Duration::from_secs(8);
const SLOT_WITHIN: Duration = Duration::from_secs(5);
/// Of a step of the turn whose items have their own limits.
const STEP_WITHIN: Duration = Duration::from_secs(120);
/// The time limit of the question whether the node or the database answers at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// The shortest and the longest back-off of a command with a reason of its own.
pub(super) const REST: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
/// Of one that fails for a reason that may be the node's and pass with it.
const SHORT_REST: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(5);
/// Of one that has used all of its time: its trials cost the others that time.
const LONG_REST: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(60);
/// The longest back-off of a transaction or a step: many commands wait for it.
pub(super) const PART_REST_MAX: Duration = Duration::from_secs(10);

/// A part of the turn that has no row of its own for a back-off.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'a> {
    /// An account's nonce, and the first of its commands.
    Slot(Address, u64, &'a str),
    /// The transactions of an account that no process uses.
    Account(Address),
    Step(&'static str),
    /// A step whose items have their own limits.
    Items(&'static str),
}

pub(super) struct Failed {
    pub(super) reason: String,
    rest: RangeInclusive<Duration>,
}

impl Failed {
    pub(super) const fn of(reason: String) -> Self {
        Self { reason, rest: REST }
    }
}

pub(super) trait Work<T>: Future<Output = Result<T, RelayError>> + Send {}

impl<T, W: Future<Output = Result<T, RelayError>> + Send> Work<T> for W {}

impl Relayer {
    /// The result of an item's work, or why it failed. An error concerns everybody.
    pub(super) fn apart<'a, T: Send + 'a>(
        &'a self,
        work: impl Work<T> + 'a,
    ) -> BoxFuture<'a, Result<Result<T, Failed>, RelayError>> {
        self.apart_within(ITEM_WITHIN, work)
    }

    /// Boxed: one future of everything that a turn does is larger than a thread's stack.
    pub(super) fn apart_within<'a, T: Send + 'a>(
        &'a self,
        limit: Duration,
        work: impl Work<T> + 'a,
    ) -> BoxFuture<'a, Result<Result<T, Failed>, RelayError>> {
        let limited = guarded(limit, work.boxed()).boxed();
        Box::pin(async move {
            match limited.await {
                Ok(done) => Ok(Ok(done)),
                Err(error) => self.concerning(error).await.map(Err),
            }
        })
    }

    /// Why an item failed. An error concerns everybody.
    async fn concerning(&self, error: ItemError<RelayError>) -> Result<Failed, RelayError> {
        let reason = error.to_string();
        let (is_of_node, is_of_database) = match &error {
            ItemError::TimedOut(_) => (true, true),
            ItemError::Panicked(_) => (false, false),
            ItemError::Failed(RelayError::Rpc(error)) => (matches!(error, RpcError::Transport(_)), false),
            ItemError::Failed(RelayError::Store(error)) => (false, error.fault() == Fault::Unavailable),
            ItemError::Failed(_) => (false, false),
        };
        let is_everybodys = matches!(
            error,
            ItemError::Failed(
                RelayError::Store(StoreError::Stale { what: "lease" })
                    | RelayError::WrongChain { .. }
                    | RelayError::NoEndpoint
            )
        );
        if is_everybodys
            || is_of_node && !self.has_node().await
            || is_of_database && !self.has_database().await
        {
            return Err(error.into());
        }
        let rest = match error {
            ItemError::TimedOut(_) => LONG_REST,
            ItemError::Failed(RelayError::Rpc(_)) => SHORT_REST,
            ItemError::Failed(_) | ItemError::Panicked(_) => return Ok(Failed { reason, rest: REST }),
        };
        self.is_suspect.store(true, Ordering::Relaxed);
        Ok(Failed { reason, rest })
    }

    async fn has_node(&self) -> bool {
        matches!(timeout(ANSWER_WITHIN, rpc::head(self.provider())).await, Ok(Ok(_)))
    }

    async fn has_database(&self) -> bool {
        matches!(timeout(ANSWER_WITHIN, self.cursor()).await, Ok(Ok(_)))
    }

    /// Does something about a command; `None`: it failed, and was set aside.
    pub(super) fn with_command<'a, T: Send + 'a>(
        &'a self,
        row: &'a CommandRow,
        work: impl Work<T> + 'a,
    ) -> BoxFuture<'a, Result<Option<T>, RelayError>> {
        let done = self.apart(work);
        Box::pin(async move {
            match done.await? {
                Ok(done) => Ok(Some(done)),
                Err(failed) => self.set_aside(row, &failed).await.map(|()| None),
            }
        })
    }

    /// Records the failure in the command's row. A row that cannot be written is set aside beside it.
    pub(super) async fn set_aside(&self, row: &CommandRow, failed: &Failed) -> Result<(), RelayError> {
        let noted = self.apart(self.note_trouble(row, &failed.reason, &failed.rest)).await?;
        let unwritten = noted.map_err(|unwritten| format!("{}; {}", failed.reason, unwritten.reason));
        self.items.note(&self.command(row), &row.reference, unwritten).await;
        Ok(())
    }

    /// What identifies a command whose row cannot be written.
    pub(super) fn command(&self, row: &CommandRow) -> String {
        format!("{} command {}", self.config.name, row.id)
    }

    /// Does a part of the turn; `None`: it is set aside, or has failed.
    pub(super) fn with_part<'a, T: Send + 'a>(
        &'a self,
        part: Part<'a>,
        work: impl Work<T> + 'a,
    ) -> BoxFuture<'a, Result<Option<T>, RelayError>> {
        let (chain, own) = (&self.config.name, self.account.address());
        let (item, about, limit) = match part {
            Part::Slot(signer, nonce, about) => (format!("{chain} {signer} {nonce}"), about, SLOT_WITHIN),
            Part::Account(signer) => (format!("{chain} {signer}"), "retired account", STEP_WITHIN),
            Part::Step(step) => (format!("{chain} {own} {step}"), step, ITEM_WITHIN),
            Part::Items(step) => (format!("{chain} {own} {step}"), step, STEP_WITHIN),
        };
        let work = self.apart_within(limit, work);
        Box::pin(async move {
            // What concerns everybody is no failure of the part.
            let apart = async {
                match work.await {
                    Ok(done) => done.map(Ok).map_err(|failed| failed.reason),
                    Err(everybodys) => Ok(Err(everybodys)),
                }
            };
            match self.items.attend(&item, about, apart).await {
                Attended::Done(done) => done.map(Some),
                Attended::Failed => {
                    counter!("dvp_relayer_failures_total", "chain" => chain.clone()).increment(1);
                    Ok(None)
                }
                Attended::SetAside | Attended::InProgress => Ok(None),
            }
        })
    }
}
