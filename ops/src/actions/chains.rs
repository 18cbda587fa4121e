//! Halted chains, and the transactions that wait for them.

use anyhow::{bail, ensure};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use dvp_domain::chain::BlockNumber;
use dvp_store::Acquire as _;
use dvp_store::chain::{self as store, Retried};
use serde_json::json;

use crate::actions::Reason;
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum ChainAction {
    /// Follow a halted chain again, from its newest block that was read before.
    ///
    /// Blocks read after that one are reverted. First query several independent nodes for the real branch.
    #[command(
        after_help = "Example:\n  dvp chain resume --chain-id 1 --shared-block 21000000 --reason 'three nodes agree' --config dvp.toml"
    )]
    Resume(Resume),
    /// The transactions that the service wants on a chain.
    #[command(subcommand)]
    Command(ChainCommandAction),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChainCommandAction {
    /// Look at a waiting command now, or try one again that was given up while its order still waits for it.
    #[command(
        after_help = "Example:\n  dvp chain command retry --id 17 --reason 'the role is back' --config dvp.toml"
    )]
    Retry(Retry),
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The halted chain.
    #[arg(long, value_name = "ID")]
    chain_id: u64,
    /// The newest block that both have; it counts as final from then on.
    #[arg(long, value_name = "NUMBER")]
    shared_block: u64,
    /// Only if it was halted then and not again since (RFC 3339).
    #[arg(long, value_name = "TIME")]
    halted_at: Option<DateTime<Utc>>,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct Retry {
    /// The command's number, as `dvp chain command list` prints it.
    #[arg(long, value_name = "ID")]
    id: i64,
    #[command(flatten)]
    why: Reason,
}

impl ChainAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Resume(args) => resume(desk, &args).await,
            Self::Command(ChainCommandAction::Retry(args)) => retry(desk, &args).await,
        }
    }
}

async fn resume(desk: &mut Desk<'_>, args: &Resume) -> anyhow::Result<Outcome> {
    let Resume { chain_id: chain, shared_block: block, halted_at, why } = args;
    why.given()?;
    let mut tx = desk.conn.begin().await?;
    let resumed = store::resume(&mut tx, *chain, BlockNumber(*block), *halted_at).await?;
    ensure!(
        resumed,
        "chain {chain} is not halted, or was halted again since you looked, or block {block} was not read"
    );
    tx.commit().await?;
    let line = format!("chain {chain} is followed again, from block {block}");
    Ok(Outcome::done(json!({"chainId": chain, "sharedBlock": block}), line))
}

async fn retry(desk: &mut Desk<'_>, args: &Retry) -> anyhow::Result<Outcome> {
    let (id, reason) = (args.id, args.why.given()?);
    let mut tx = desk.conn.begin().await?;
    match store::retry_command(&mut tx, id, &desk.by.name, reason).await? {
        Retried::Now => tx.commit().await?,
        Retried::Unknown => bail!("there is no chain command {id}"),
        Retried::Sent => bail!("chain command {id} is in a transaction: nothing to do"),
        Retried::Done => bail!("chain command {id} is done"),
        Retried::OrderGoneOn => bail!(
            "chain command {id} was given up, and its order has ended or gone on without it: nothing was changed"
        ),
    }
    Ok(Outcome::done(json!({"id": id, "retried": true}), format!("chain command {id} is tried again")))
}
