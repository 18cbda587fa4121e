//! What a command means on the chain: the call, the state it aims at, and what a refusal says about its future.
//! Pure.

use crate::contracts::{
    anchor::ReceiptAnchor, escrow::Escrow, payouts::Payouts, permit::Permit, settler, token::TestToken,
};
use crate::deploy::Deployment;
use crate::rpc::parse_amount;
use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolCall, SolError, SolInterface, decode_revert_reason};
use dvp_core::chain::{ChainCommand, CreateCommand, TransferCommand};
use settler::{Escrow as SettlerEscrow, IntentSettler};

/// A call to one of our contracts.
#[derive(Debug, Clone)]
pub(super) struct Action {
    pub(super) to: Address,
    pub(super) input: Bytes,
    /// Fixed and generous: what is not used is not paid.
    pub(super) gas_limit: u64,
}

/// A field of a command that is not what its name says.
#[derive(Debug, thiserror::Error)]
#[error("command's {field} is malformed")]
pub(super) struct Malformed {
    field: &'static str,
}

/// Whether a command's time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outlook {
    /// The chain is where the command wants it, whoever brought it there.
    Reached,
    Possible,
    NotYet(String),
    /// It cannot succeed any more. The code is stable, see `ChainFact::CommandFailed`.
    Never {
        code: &'static str,
        message: String,
    },
    /// An operator has to put something right first.
    Blocked(String),
}

/// `IntentSettler.State`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IntentState {
    None,
    Created,
    Filled,
    Settled,
    Cancelled,
}

impl IntentState {
    pub(super) const fn from_contract(state: u8) -> Option<Self> {
        match state {
            0 => Some(Self::None),
            1 => Some(Self::Created),
            2 => Some(Self::Filled),
            3 => Some(Self::Settled),
            4 => Some(Self::Cancelled),
            _ => None,
        }
    }
}

/// The stable code of a command that was refused for no reason with a code of its own.
pub(super) const fn rejected(command: &ChainCommand) -> &'static str {
    match command {
        ChainCommand::Create(_) => "lock_rejected",
        ChainCommand::Fill { .. } => "fill_rejected",
        ChainCommand::Settle { .. } => "settle_rejected",
        ChainCommand::Anchor { .. } => "anchor_rejected",
        ChainCommand::Transfer(_) => "transfer_rejected",
    }
}

pub(super) fn action(deployment: &Deployment, command: &ChainCommand) -> Result<Action, Malformed> {
    let settler = deployment.settler;
    Ok(match command {
        ChainCommand::Create(create) => {
            Action { to: settler, input: create_call(create)?.abi_encode().into(), gas_limit: 700_000 }
        }
        ChainCommand::Fill { entity, payout_ref } => {
            let call = IntentSettler::fillCall {
                intentId: word("entity", entity)?,
                payoutRef: word("payout_ref", payout_ref)?,
            };
            Action { to: settler, input: call.abi_encode().into(), gas_limit: 150_000 }
        }
        ChainCommand::Settle { entity, preimage } => {
            let call = IntentSettler::settleCall {
                intentId: word("entity", entity)?,
                preimage: word("preimage", preimage)?,
            };
            Action { to: settler, input: call.abi_encode().into(), gas_limit: 300_000 }
        }
        ChainCommand::Anchor { content_hash } => {
            let call = ReceiptAnchor::anchorCall { contentHash: word("content_hash", content_hash)? };
            Action { to: deployment.anchor, input: call.abi_encode().into(), gas_limit: 120_000 }
        }
        ChainCommand::Transfer(transfer) => Action {
            to: deployment.payouts,
            input: pay_call(transfer)?.abi_encode().into(),
            gas_limit: 300_000,
        },
    })
}

fn pay_call(transfer: &TransferCommand) -> Result<Payouts::payCall, Malformed> {
    Ok(Payouts::payCall {
        id: word("entity", &transfer.entity)?,
        payer: address("payer", &transfer.payer)?,
        receiver: address("receiver", &transfer.receiver)?,
        token: address("token", &transfer.token)?,
        amount: amount("amount", &transfer.amount)?,
    })
}

fn create_call(create: &CreateCommand) -> Result<IntentSettler::createCall, Malformed> {
    Ok(IntentSettler::createCall {
        params: IntentSettler::CreateParams {
            intentId: word("entity", &create.entity)?,
            maker: address("maker", &create.maker)?,
            solver: address("solver", &create.solver)?,
            token: address("token", &create.token)?,
            amountIn: amount("amount", &create.amount)?,
            fillDeadline: create.fill_deadline,
            timelock: create.timelock,
            hashlock: word("hashlock", &create.hashlock)?,
            terms: word("terms", &create.terms)?,
            permit: SettlerEscrow::PermitInput {
                amount: amount("permit.amount", &create.permit.amount)?,
                nonce: amount("permit.nonce", &create.permit.nonce)?,
                deadline: U256::from(create.permit.deadline),
                signature: create
                    .permit
                    .signature
                    .parse()
                    .map_err(|_| Malformed { field: "permit.signature" })?,
            },
        },
    })
}

pub(super) fn word(field: &'static str, hex: &str) -> Result<B256, Malformed> {
    hex.parse().map_err(|_| Malformed { field })
}

fn address(field: &'static str, hex: &str) -> Result<Address, Malformed> {
    hex.parse().map_err(|_| Malformed { field })
}

fn amount(field: &'static str, decimal: &str) -> Result<U256, Malformed> {
    parse_amount(decimal).ok_or(Malformed { field })
}

/// What the settlement's state says. Anchors and payouts have none: see [`once_outlook`].
pub(super) fn settler_outlook(command: &ChainCommand, state: IntentState) -> Outlook {
    use IntentState as S;
    let cancelled = || Outlook::Never {
        code: rejected(command),
        message: "the settlement was cancelled on the chain".to_owned(),
    };
    match (command, state) {
        (ChainCommand::Create(_), S::None)
        | (ChainCommand::Fill { .. }, S::Created)
        | (ChainCommand::Settle { .. }, S::Filled)
        | (ChainCommand::Anchor { .. } | ChainCommand::Transfer(_), _) => Outlook::Possible,
        (ChainCommand::Create(_), S::Created | S::Filled | S::Settled | S::Cancelled)
        | (ChainCommand::Fill { .. }, S::Filled | S::Settled)
        | (ChainCommand::Settle { .. }, S::Settled) => Outlook::Reached,
        (ChainCommand::Fill { .. } | ChainCommand::Settle { .. }, S::None) => {
            Outlook::NotYet("the settlement is not created yet".to_owned())
        }
        (ChainCommand::Settle { .. }, S::Created) => {
            Outlook::NotYet("the settlement is not filled yet".to_owned())
        }
        (ChainCommand::Fill { .. } | ChainCommand::Settle { .. }, S::Cancelled) => cancelled(),
    }
}

/// `done_at`: `ReceiptAnchor.anchors` or `Payouts.paidAt`, zero when it was not done.
pub(super) const fn once_outlook(done_at: u64) -> Outlook {
    if done_at == 0 { Outlook::Possible } else { Outlook::Reached }
}

/// What a revert says, given that the goal was not reached at the same block.
pub(super) fn judge(command: &ChainCommand, data: &[u8], node_message: &str) -> Outlook {
    if let Ok(error) = Permit::PermitErrors::abi_decode(data) {
        return judge_permit(command, error);
    }
    if let Ok(error) = TestToken::ERC20InsufficientBalance::abi_decode(data) {
        return insufficient(format!("the wallet holds {} and {} are needed", error.balance, error.needed));
    }
    if let Ok(error) = TestToken::ERC20InsufficientAllowance::abi_decode(data) {
        let (allowed, needed) = (error.allowance, error.needed);
        return insufficient(format!("{} may move {allowed} and {needed} are needed", error.spender));
    }
    if let Ok(error) = IntentSettler::IntentSettlerErrors::abi_decode(data) {
        return judge_settler(command, &error);
    }
    if let Ok(error) = Payouts::PayoutsErrors::abi_decode(data) {
        return judge_payout(command, &error);
    }
    if let Ok(error) = Escrow::EscrowErrors::abi_decode(data) {
        return Outlook::Never { code: rejected(command), message: format!("{error:?}") };
    }
    let reason = decode_revert_reason(data).unwrap_or_else(|| node_message.to_owned());
    let lower = reason.to_ascii_lowercase();
    if lower.contains("balance") || lower.contains("allowance") {
        return insufficient(reason);
    }
    Outlook::Never { code: rejected(command), message: reason }
}

const fn insufficient(message: String) -> Outlook {
    Outlook::Never { code: "insufficient_funds", message }
}

fn judge_permit(command: &ChainCommand, error: Permit::PermitErrors) -> Outlook {
    use Permit::PermitErrors as E;
    match error {
        E::PermitExpired(_) => Outlook::Never {
            code: "permit_expired",
            message: "the permit deadline has already expired".to_owned(),
        },
        E::InvalidNonce(e) if e.given > e.expected => {
            Outlook::NotYet(format!("permit nonce {} comes after {}, the wallet's next", e.given, e.expected))
        }
        E::InvalidNonce(e) => Outlook::Never {
            code: "permit_nonce_used",
            message: format!("permit nonce {} is used, the wallet's next is {}", e.given, e.expected),
        },
        E::SafeERC20FailedOperation(_) => insufficient("the token refused the transfer".to_owned()),
        error @ (E::AmountAbovePermit(_)
        | E::ECDSAInvalidSignature(_)
        | E::ECDSAInvalidSignatureLength(_)
        | E::ECDSAInvalidSignatureS(_)
        | E::InvalidShortString(_)
        | E::InvalidSigner(_)
        | E::NotSpender(_)
        | E::StringTooLong(_)) => {
            Outlook::Never { code: rejected(command), message: format!("the permit was refused: {error:?}") }
        }
    }
}

fn judge_settler(command: &ChainCommand, error: &IntentSettler::IntentSettlerErrors) -> Outlook {
    use IntentSettler::IntentSettlerErrors as E;
    match error {
        E::AccessControlUnauthorizedAccount(e) => {
            Outlook::Blocked(format!("account {} has no role {} on the contract", e.account, e.neededRole))
        }
        // The state was right at this very block: the view and the call disagree, so look again.
        E::WrongState(_) => Outlook::NotYet("the settlement's state is changing".to_owned()),
        E::AccessControlBadConfirmation(_)
        | E::FillDeadlineNotPassed(_)
        | E::FillDeadlinePassed(_)
        | E::FundsReleased(_)
        | E::TimelockBeforeDeadline(_) => {
            Outlook::Never { code: rejected(command), message: format!("{error:?}") }
        }
    }
}

fn judge_payout(command: &ChainCommand, error: &Payouts::PayoutsErrors) -> Outlook {
    use Payouts::PayoutsErrors as E;
    match error {
        E::AccessControlUnauthorizedAccount(e) => {
            Outlook::Blocked(format!("account {} has no role {} on the contract", e.account, e.neededRole))
        }
        // It was not paid at this very block: the view and the call disagree, so look again.
        E::AlreadyPaid(_) => Outlook::NotYet("the payout is being made".to_owned()),
        E::SafeERC20FailedOperation(_) => insufficient("the token refused the transfer".to_owned()),
        E::AccessControlBadConfirmation(_)
        | E::AmountNotReceived(_)
        | E::ReentrancyGuardReentrantCall(_)
        | E::ZeroAmount(_) => Outlook::Never { code: rejected(command), message: format!("{error:?}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill() -> ChainCommand {
        let word = B256::ZERO.to_string();
        ChainCommand::Fill { entity: word.clone(), payout_ref: word }
    }

    fn code(outlook: Outlook) -> &'static str {
        match outlook {
            Outlook::Never { code, .. } => code,
            Outlook::NotYet(_) => "not yet",
            Outlook::Blocked(_) => "blocked",
            Outlook::Reached | Outlook::Possible => "go",
        }
    }

    #[test]
    fn every_refusal_has_its_stable_code() {
        let nonce = |expected, given| Permit::InvalidNonce {
            expected: U256::from(expected),
            given: U256::from(given),
        };
        let expired = Permit::PermitExpired { deadline: U256::ZERO, timestamp: U256::ZERO };
        assert_eq!(code(judge(&fill(), &expired.abi_encode(), "")), "permit_expired");
        assert_eq!(code(judge(&fill(), &nonce(5, 4).abi_encode(), "")), "permit_nonce_used");
        assert_eq!(code(judge(&fill(), &nonce(5, 6).abi_encode(), "")), "not yet");
        let poor = TestToken::ERC20InsufficientBalance {
            sender: Address::ZERO,
            balance: U256::ZERO,
            needed: U256::from(1),
        };
        assert_eq!(code(judge(&fill(), &poor.abi_encode(), "")), "insufficient_funds");
        let old_token = alloy::sol_types::Revert::from("ERC20: transfer amount exceeds balance");
        assert_eq!(code(judge(&fill(), &old_token.abi_encode(), "")), "insufficient_funds");
        let role = IntentSettler::AccessControlUnauthorizedAccount {
            account: Address::ZERO,
            neededRole: B256::ZERO,
        };
        assert_eq!(code(judge(&fill(), &role.abi_encode(), "")), "blocked");
        assert_eq!(code(judge(&fill(), &[], "execution reverted")), "fill_rejected");
    }

    #[test]
    fn a_goal_that_somebody_else_reached_is_reached() {
        let word = B256::ZERO.to_string();
        let settle = ChainCommand::Settle { entity: word.clone(), preimage: word };
        assert_eq!(settler_outlook(&fill(), IntentState::Settled), Outlook::Reached);
        assert_eq!(settler_outlook(&settle, IntentState::Settled), Outlook::Reached);
        assert_eq!(code(settler_outlook(&settle, IntentState::Created)), "not yet");
        assert_eq!(code(settler_outlook(&settle, IntentState::Cancelled)), "settle_rejected");
        assert_eq!(once_outlook(7), Outlook::Reached);
    }
}
