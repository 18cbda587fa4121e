//! Checks one command at one block: whether its goal is reached, and whether its own transaction would succeed.

use super::action::ContractCall;
use super::outlook::{self, IntentState, Outlook};
use super::{RelayError, Relayer};
use crate::contracts::{payouts::Payouts, settler::IntentSettler};
use crate::rpc::{self, BlockHead, Simulated};
use alloy::eips::BlockId;
use alloy::transports::RpcError;
use dvp_domain::chain::ChainCommand;
use dvp_store::chain::{self as store, CommandRow};

impl Relayer {
    /// The outlook at the newest block; a final one must also hold at the confirmation depth.
    pub(super) async fn outlook(
        &self,
        row: &CommandRow,
        command: &ChainCommand,
        action: &ContractCall,
        head: &BlockHead,
    ) -> Result<Outlook, RelayError> {
        let now = self.outlook_at(row, command, action, head, BlockId::hash(head.hash)).await?;
        if !matches!(now, Outlook::Never { .. }) {
            return Ok(now);
        }
        if let (ChainCommand::Transfer(transfer), true) = (command, row.is_locked_elsewhere) {
            return self.never_paid(row, transfer.not_after, now).await;
        }
        if self.config.confirmations <= 1 {
            return Ok(now);
        }
        let deep = BlockId::number((head.number + 1).saturating_sub(self.config.confirmations).0);
        match self.outlook_at(row, command, action, head, deep).await? {
            Outlook::Never { .. } => Ok(now),
            Outlook::Reached
            | Outlook::Possible
            | Outlook::NotYet(_)
            | Outlook::Undeposited(_)
            | Outlook::Blocked(_) => Ok(Outlook::NotYet("a refusal that is not confirmed yet".to_owned())),
        }
    }

    /// Whether a refused payment for a lock on another chain can never be made: the lock is returned then. It is proved
    /// by a final block after its last second, at which it was not made.
    async fn never_paid(
        &self,
        row: &CommandRow,
        not_after: u64,
        refused: Outlook,
    ) -> Result<Outlook, RelayError> {
        let not_yet = || Ok(Outlook::NotYet("a refusal that is not final yet".to_owned()));
        let chain_id = self.config.chain_id;
        let mut conn = self.pool.acquire().await?;
        let Some(cursor) = store::find_cursor(&mut conn, chain_id).await? else { return not_yet() };
        let ours = store::find_known_hash(&mut conn, chain_id, cursor.final_number).await?;
        drop(conn);
        let provider = self.provider();
        let block = rpc::block(provider, BlockId::number(cursor.final_number.0)).await?;
        let Some(block) = block.filter(|block| Some(block.hash) == ours) else { return not_yet() };
        if block.timestamp <= not_after {
            return not_yet();
        }
        let call = Payouts::paidAtCall { id: row.entity };
        let paid_at =
            rpc::view(provider, self.config.deployment.payouts, &call, BlockId::hash(block.hash)).await?;
        Ok(if paid_at == 0 { refused } else { Outlook::Reached })
    }

    async fn outlook_at(
        &self,
        row: &CommandRow,
        command: &ChainCommand,
        action: &ContractCall,
        head: &BlockHead,
        at: BlockId,
    ) -> Result<Outlook, RelayError> {
        let by_state = self.outlook_by_state(row, command, at).await?;
        // An anchor is never refused.
        if by_state != Outlook::Possible || matches!(command, ChainCommand::Anchor { .. }) {
            return Ok(by_state);
        }
        let (from, gas) = (self.account.address(), super::plan::ceiling(head.gas_limit));
        match rpc::simulate(self.provider(), from, action.to, action.input.clone(), gas, at).await {
            Ok(Simulated::Succeeds(_)) => Ok(Outlook::Possible),
            Ok(Simulated::Reverts { data, message }) => {
                Ok(outlook::judge(command, self.config.deployment.permit, &data, &message))
            }
            // The node answered with an error for this one call: the others need not wait for it.
            Err(RpcError::ErrorResp(payload)) => Ok(Outlook::Blocked(payload.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn outlook_by_state(
        &self,
        row: &CommandRow,
        command: &ChainCommand,
        at: BlockId,
    ) -> Result<Outlook, RelayError> {
        let provider = self.provider();
        Ok(match command {
            // The contract stores no anchors: the indexer completes the command when it sees the event, and a second
            // event has no effect.
            ChainCommand::Anchor { .. } => Outlook::Possible,
            ChainCommand::Transfer(_) => {
                let call = Payouts::paidAtCall { id: row.entity };
                let payouts = self.config.deployment.payouts;
                outlook::paid_outlook(rpc::view(provider, payouts, &call, at).await?)
            }
            ChainCommand::Create(_)
            | ChainCommand::Fill { .. }
            | ChainCommand::Settle { .. }
            | ChainCommand::Swap(_)
            | ChainCommand::Cancel { .. }
            | ChainCommand::ReturnFilled { .. }
            | ChainCommand::Refund { .. } => {
                let call = IntentSettler::stateOfCall { intentId: row.entity };
                let settler = self.config.deployment.settler;
                let state = rpc::view(provider, settler, &call, at).await?;
                let state = IntentState::from_contract(state).ok_or(RelayError::UnknownState(state))?;
                outlook::settler_outlook(command, state, row.lock_given_up)
            }
        })
    }
}
