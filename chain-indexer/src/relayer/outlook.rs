//! The outlook of a command, from the contracts' state and from a revert. Pure.
//!
//! A command fails only by the contracts' own final state at the confirmation depth; any other rejection is retried
//! and raises an alarm.
//!
//! Kept by `chain-indexer/src/relayer/outlook.rs::no_other_refusal_is_final`.

use super::action::maker_of;
use crate::contracts::{
    coin::CoinGate, escrow::Escrow, payouts::Payouts, permit::Permit, settler::IntentSettler,
    token::TestToken,
};
use alloy::primitives::Address;
use alloy::sol_types::{SolError, SolInterface, decode_revert_reason};
use dvp_domain::chain::ChainCommand;
use dvp_domain::text::{TEXT_MAX, clean};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outlook {
    /// The chain is in the command's goal state, by any account's action.
    Reached,
    Possible,
    NotYet(String),
    /// The maker has deposited too little of the coin so far.
    Undeposited(String),
    /// The contracts' own state proves that it cannot succeed any more. The code is stable, see
    /// `ChainFact::CommandFailed`.
    Never {
        code: &'static str,
        message: String,
    },
    /// It was refused for a reason that may end by an operator's action, or that is unknown. It is retried, and
    /// reported to operators.
    Blocked(String),
}

impl Outlook {
    /// Of a refusal that may end: its reason.
    pub(super) fn refused(&self) -> Option<&str> {
        match self {
            Self::Blocked(why) => Some(why),
            Self::Reached | Self::Possible | Self::NotYet(_) | Self::Undeposited(_) | Self::Never { .. } => {
                None
            }
        }
    }
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

/// The stable code of a command that was refused for a reason without its own code.
pub(super) const fn rejected(command: &ChainCommand) -> &'static str {
    match command {
        ChainCommand::Create(_) => "lock_rejected",
        ChainCommand::Fill { .. } => "fill_rejected",
        ChainCommand::Settle { .. } => "settle_rejected",
        ChainCommand::Anchor { .. } => "anchor_rejected",
        ChainCommand::Transfer(_) => "transfer_rejected",
        ChainCommand::Swap(_) => "swap_rejected",
        ChainCommand::Cancel { .. } => "cancel_rejected",
        ChainCommand::ReturnFilled { .. } => "return_rejected",
        ChainCommand::Refund { .. } => "refund_rejected",
    }
}

/// The outlook from the settlement's state. Anchors and payouts have none. `lock_given_up`: the command that creates
/// the settlement failed permanently.
pub(super) fn settler_outlook(command: &ChainCommand, state: IntentState, lock_given_up: bool) -> Outlook {
    use ChainCommand as C;
    use IntentState as S;
    let never = |message: &str| Outlook::Never { code: rejected(command), message: message.to_owned() };
    let not_yet = |message: &str| Outlook::NotYet(message.to_owned());
    match (command, state) {
        (C::Create(_) | C::Swap(_), S::None)
        | (C::Fill { .. } | C::Cancel { .. }, S::Created)
        | (C::Settle { .. } | C::ReturnFilled { .. }, S::Filled)
        | (C::Refund { .. }, S::Created | S::Filled)
        | (C::Anchor { .. } | C::Transfer(_), _) => Outlook::Possible,
        (C::Create(_), S::Created | S::Filled | S::Settled | S::Cancelled)
        | (C::Fill { .. }, S::Filled | S::Settled)
        | (C::Settle { .. } | C::Swap(_), S::Settled)
        | (C::Cancel { .. } | C::ReturnFilled { .. } | C::Refund { .. }, S::Cancelled) => Outlook::Reached,
        (
            C::Fill { .. } | C::Settle { .. } | C::Cancel { .. } | C::ReturnFilled { .. } | C::Refund { .. },
            S::None,
        ) if lock_given_up => never("the settlement's lock was given up"),
        (
            C::Fill { .. } | C::Settle { .. } | C::Cancel { .. } | C::ReturnFilled { .. } | C::Refund { .. },
            S::None,
        ) => not_yet("the settlement is not created yet"),
        (C::Settle { .. } | C::ReturnFilled { .. }, S::Created) => {
            not_yet("the settlement is not filled yet")
        }
        // A filled lock is returned by two operators.
        (C::Cancel { .. }, S::Filled) => never("the settlement is filled"),
        (C::Cancel { .. } | C::ReturnFilled { .. } | C::Refund { .. }, S::Settled) => {
            never("the settlement is settled")
        }
        (C::Swap(_), S::Created | S::Filled) => never("the settlement's id has a lock"),
        (C::Fill { .. } | C::Settle { .. } | C::Swap(_), S::Cancelled) => {
            never("the settlement was cancelled on the chain")
        }
    }
}

/// `paid_at`: `Payouts.paidAt`, zero when it was not paid.
pub(super) const fn paid_outlook(paid_at: u64) -> Outlook {
    if paid_at == 0 { Outlook::Possible } else { Outlook::Reached }
}

/// The outlook after a revert, given that the goal was not reached at the same block. `permit`: the permit contract,
/// which pulls the maker's tokens.
pub(super) fn judge(command: &ChainCommand, permit: Address, data: &[u8], node_message: &str) -> Outlook {
    cleaned(judge_revert(command, permit, data, node_message))
}

/// What a token or a node says is foreign text.
fn cleaned(outlook: Outlook) -> Outlook {
    let text = |foreign: String| clean(&foreign, TEXT_MAX);
    match outlook {
        Outlook::NotYet(why) => Outlook::NotYet(text(why)),
        Outlook::Undeposited(why) => Outlook::Undeposited(text(why)),
        Outlook::Blocked(why) => Outlook::Blocked(text(why)),
        Outlook::Never { code, message } => Outlook::Never { code, message: text(message) },
        Outlook::Reached | Outlook::Possible => outlook,
    }
}

fn judge_revert(command: &ChainCommand, permit: Address, data: &[u8], node_message: &str) -> Outlook {
    if let Ok(error) = Permit::PermitErrors::abi_decode(data) {
        return judge_permit(command, error);
    }
    if let Ok(error) = TestToken::ERC20InsufficientBalance::abi_decode(data) {
        let lacks = format!("{} holds {} and {} are needed", error.sender, error.balance, error.needed);
        return lacking(is_maker(command, error.sender), lacks);
    }
    if let Ok(error) = TestToken::ERC20InsufficientAllowance::abi_decode(data) {
        let lacks = format!("{} may move {} and {} are needed", error.spender, error.allowance, error.needed);
        return lacking(maker_of(command).is_some() && error.spender == permit, lacks);
    }
    if let Ok(error) = IntentSettler::IntentSettlerErrors::abi_decode(data) {
        return judge_settler(command, &error);
    }
    if let Ok(error) = Payouts::PayoutsErrors::abi_decode(data) {
        return judge_payout(command, &error);
    }
    if let Ok(error) = Escrow::EscrowErrors::abi_decode(data) {
        return judge_escrow(command, &error);
    }
    if let Ok(error) = CoinGate::DepositTooSmall::abi_decode(data) {
        let CoinGate::DepositTooSmall { depositor, held, needed, .. } = error;
        return Outlook::Undeposited(format!(
            "{depositor} has deposited {held} of the coin and {needed} are needed"
        ));
    }
    // The same tokens refuse the order's receiver in every transaction: nobody but the user could change it.
    if pays_out(command)
        && let Ok(error) = TestToken::ERC20InvalidReceiver::abi_decode(data)
    {
        let message = format!("the token does not pay {}", error.receiver);
        return Outlook::Never { code: rejected(command), message };
    }
    let reason = decode_revert_reason(data).unwrap_or_else(|| node_message.to_owned());
    let lower = reason.to_ascii_lowercase();
    // An older token names no account; in a `create` the maker alone pays.
    let funds = lower.contains("balance") || lower.contains("allowance");
    lacking(funds && matches!(command, ChainCommand::Create(_)), reason)
}

/// Whether a permit was refused because it comes after others of the wallet.
pub(super) fn is_early(data: &[u8]) -> bool {
    Permit::InvalidNonce::abi_decode(data).is_ok_and(|error| error.given > error.expected)
}

/// Whether the command pays tokens to the receiver that the order names.
const fn pays_out(command: &ChainCommand) -> bool {
    matches!(command, ChainCommand::Transfer(_) | ChainCommand::Swap(_))
}

fn is_maker(command: &ChainCommand, account: Address) -> bool {
    maker_of(command).is_some_and(|(maker, _)| maker.parse() == Ok(account))
}

/// Missing funds of the maker end the order; those of others are for an operator.
const fn lacking(of_maker: bool, message: String) -> Outlook {
    if of_maker { Outlook::Never { code: "insufficient_funds", message } } else { Outlook::Blocked(message) }
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
        E::SignatureRefused(e) => Outlook::Never {
            code: "permit_refused",
            message: format!("the wallet {} does not confirm the permit's signature", e.owner),
        },
        E::SafeERC20FailedOperation(_) => Outlook::Blocked("the token refused the transfer".to_owned()),
        E::CheckOutOfGas(_) => Outlook::Blocked(format!("{error:?}")),
        // The signed values do not change, so these refusals are permanent.
        error @ (E::AmountAbovePermit(_)
        | E::ECDSAInvalidSignature(_)
        | E::ECDSAInvalidSignatureLength(_)
        | E::ECDSAInvalidSignatureS(_)
        | E::InvalidShortString(_)
        | E::InvalidSigner(_)
        | E::NotSpender(_)
        | E::TooManyInvalidated(_)
        | E::StringTooLong(_)) => {
            Outlook::Never { code: rejected(command), message: format!("the permit was refused: {error:?}") }
        }
    }
}

fn judge_settler(command: &ChainCommand, error: &IntentSettler::IntentSettlerErrors) -> Outlook {
    use IntentSettler::IntentSettlerErrors as E;
    match error {
        // Expired times and contradictory terms are permanent.
        E::ApprovalExpired(_)
        | E::FillDeadlinePassed(_)
        | E::LockByPassed(_)
        | E::TimelockBeforeDeadline(_) => {
            Outlook::Never { code: rejected(command), message: format!("{error:?}") }
        }
        E::AccessControlUnauthorizedAccount(e) => {
            Outlook::Blocked(format!("account {} has no role {} on the contract", e.account, e.neededRole))
        }
        E::PausedNow(_) => Outlook::Blocked("the contract is paused".to_owned()),
        E::AccessControlBadConfirmation(_)
        | E::AccessControlEnforcedDefaultAdminDelay(_)
        | E::AccessControlEnforcedDefaultAdminRules(_)
        | E::AccessControlInvalidDefaultAdmin(_)
        | E::BatchOutOfGas(_)
        | E::ECDSAInvalidSignature(_)
        | E::ECDSAInvalidSignatureLength(_)
        | E::ECDSAInvalidSignatureS(_)
        | E::FillDeadlineNotPassed(_)
        | E::InvalidShortString(_)
        | E::NotTwoOperators(_)
        | E::NotWiredTo(_)
        | E::OnlyItself(_)
        | E::ReceiverNotAllowed(_)
        | E::ReentrancyGuardReentrantCall(_)
        | E::SafeCastOverflowedUintDowncast(_)
        | E::StringTooLong(_)
        | E::WindowTooLong(_) => Outlook::Blocked(format!("{error:?}")),
    }
}

fn judge_escrow(command: &ChainCommand, error: &Escrow::EscrowErrors) -> Outlook {
    use Escrow::EscrowErrors as E;
    match error {
        // The state was right at this very block: the view and the call disagree, so check again.
        E::WrongState(_) => Outlook::NotYet("the settlement's state is changing".to_owned()),
        E::TimelockNotReached(_) => Outlook::NotYet("the timelock is not over yet".to_owned()),
        E::TimelockReached(_) | E::ZeroAmount(_) => {
            Outlook::Never { code: rejected(command), message: format!("{error:?}") }
        }
        E::AmountNotPaid(_)
        | E::AmountNotReceived(_)
        | E::NoGate(_)
        | E::NothingOwed(_)
        | E::OnlyItself(_)
        | E::OnlySettler(_)
        | E::PushOutOfGas(_)
        | E::ReentrancyGuardReentrantCall(_)
        | E::WrongPreimage(_)
        | E::WrongTerms(_) => Outlook::Blocked(format!("{error:?}")),
    }
}

fn judge_payout(command: &ChainCommand, error: &Payouts::PayoutsErrors) -> Outlook {
    use Payouts::PayoutsErrors as E;
    match error {
        E::AccessControlUnauthorizedAccount(e) => {
            Outlook::Blocked(format!("account {} has no role {} on the contract", e.account, e.neededRole))
        }
        E::PausedNow(_) => Outlook::Blocked("the contract is paused".to_owned()),
        E::CapExceeded(e) => Outlook::Blocked(format!(
            "{} may pay {} more of {} today, and {} are needed",
            e.payer, e.left, e.token, e.amount
        )),
        E::NotAuthorized(e) => {
            Outlook::Blocked(format!("the payer's authorizer {} has not signed", e.expected))
        }
        // It was not paid at this very block: the view and the call disagree, so check again.
        E::AlreadyPaid(_) if matches!(command, ChainCommand::Transfer(_)) => {
            Outlook::NotYet("the payout's state is changing".to_owned())
        }
        // What the receiver is, the order says: nobody but the user could change it.
        E::CoinRefused(e) => Outlook::Never {
            code: rejected(command),
            message: format!("{} does not take the coin", e.receiver),
        },
        E::AlreadyPaid(_) | E::LockedHere(_) | E::TooLate(_) | E::ZeroAmount(_) => {
            Outlook::Never { code: rejected(command), message: format!("{error:?}") }
        }
        E::AccessControlBadConfirmation(_)
        | E::AccessControlEnforcedDefaultAdminDelay(_)
        | E::AccessControlEnforcedDefaultAdminRules(_)
        | E::AccessControlInvalidDefaultAdmin(_)
        | E::AmountNotReceived(_)
        | E::BatchOutOfGas(_)
        | E::ECDSAInvalidSignature(_)
        | E::ECDSAInvalidSignatureLength(_)
        | E::ECDSAInvalidSignatureS(_)
        | E::InvalidShortString(_)
        | E::NoCoinHere(_)
        | E::NotWiredTo(_)
        | E::OnlyItself(_)
        | E::OnlySettler(_)
        | E::OnlyWrappedCoin(_)
        | E::ReentrancyGuardReentrantCall(_)
        | E::SafeCastOverflowedUintDowncast(_)
        | E::SafeERC20FailedOperation(_)
        | E::StringTooLong(_) => Outlook::Blocked(format!("{error:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::primitives::{Address, B256, U256};
    use dvp_domain::chain::{CreateCommand, PermitArgs};

    const PERMIT: Address = Address::repeat_byte(0x11);
    const MAKER: Address = Address::repeat_byte(0x22);
    const SOLVER: Address = Address::repeat_byte(0x33);

    fn create() -> ChainCommand {
        let word = B256::ZERO.to_string();
        ChainCommand::Create(Box::new(CreateCommand {
            entity: word.clone(),
            maker: MAKER.to_string(),
            solver: SOLVER.to_string(),
            token: Address::ZERO.to_string(),
            amount: "1".into(),
            lock_by: 0,
            fill_deadline: 0,
            timelock: 0,
            hashlock: word.clone(),
            terms: word,
            permit: Some(PermitArgs {
                amount: "1".into(),
                nonce: "0".into(),
                deadline: 0,
                signature: String::new(),
            }),
        }))
    }

    fn fill() -> ChainCommand {
        let word = B256::ZERO.to_string();
        ChainCommand::Fill { entity: word.clone(), payout_ref: word }
    }

    fn settle() -> ChainCommand {
        let word = B256::ZERO.to_string();
        ChainCommand::Settle { entity: word.clone(), preimage: Some(word) }
    }

    fn code(outlook: Outlook) -> &'static str {
        match outlook {
            Outlook::Never { code, .. } => code,
            Outlook::NotYet(_) | Outlook::Undeposited(_) => "not yet",
            Outlook::Blocked(_) => "blocked",
            Outlook::Reached | Outlook::Possible => "go",
        }
    }

    fn check(command: &ChainCommand, revert: &[u8], expected: &str) {
        assert_eq!(code(judge(command, PERMIT, revert, "execution reverted")), expected, "{command:?}");
    }

    #[test]
    fn a_state_that_forbids_a_command_fails_it_with_a_stable_code() {
        let nonce = |given| Permit::InvalidNonce { expected: U256::from(5), given: U256::from(given) };
        let expired = Permit::PermitExpired { deadline: U256::ZERO, timestamp: U256::ZERO };
        check(&create(), &expired.abi_encode(), "permit_expired");
        check(&create(), &nonce(4).abi_encode(), "permit_nonce_used");
        check(&create(), &nonce(6).abi_encode(), "not yet");
        let late = IntentSettler::FillDeadlinePassed { fillDeadline: 1, timestamp: U256::from(1) };
        check(&fill(), &late.abi_encode(), "fill_rejected");
        let late = IntentSettler::LockByPassed { lockBy: 1, timestamp: U256::from(2) };
        check(&create(), &late.abi_encode(), "lock_rejected");
        let late = Escrow::TimelockReached { timelock: 1, timestamp: U256::from(1) };
        check(&settle(), &late.abi_encode(), "settle_rejected");
    }

    #[test]
    fn missing_funds_of_the_maker_end_the_order_and_others_do_not() {
        let poor = |sender| {
            TestToken::ERC20InsufficientBalance { sender, balance: U256::ZERO, needed: U256::from(1) }
                .abi_encode()
        };
        check(&create(), &poor(MAKER), "insufficient_funds");
        check(&create(), &poor(SOLVER), "blocked");
        check(&settle(), &poor(MAKER), "blocked");
        let old_token = alloy::sol_types::Revert::from("ERC20: transfer amount exceeds balance").abi_encode();
        check(&create(), &old_token, "insufficient_funds");
        check(&settle(), &old_token, "blocked");
    }

    #[test]
    fn no_other_refusal_is_final() {
        let role = IntentSettler::AccessControlUnauthorizedAccount {
            account: Address::ZERO,
            neededRole: B256::ZERO,
        };
        for command in [create(), fill(), settle()] {
            check(&command, &role.abi_encode(), "blocked");
            check(&command, &IntentSettler::PausedNow {}.abi_encode(), "blocked");
            check(&command, &Escrow::WrongTerms { id: B256::ZERO }.abi_encode(), "blocked");
            check(&command, &[], "blocked");
            check(&command, &[1, 2, 3, 4, 5], "blocked");
        }
    }

    #[test]
    fn a_goal_reached_by_another_account_is_reached() {
        let outlook = |command: &ChainCommand, state| settler_outlook(command, state, false);
        assert_eq!(outlook(&fill(), IntentState::Settled), Outlook::Reached);
        assert_eq!(outlook(&settle(), IntentState::Settled), Outlook::Reached);
        assert_eq!(code(outlook(&settle(), IntentState::Created)), "not yet");
        assert_eq!(code(outlook(&settle(), IntentState::Cancelled)), "settle_rejected");
        assert_eq!(paid_outlook(7), Outlook::Reached);
    }

    #[test]
    fn a_command_on_an_abandoned_lock_fails_unless_the_chain_has_the_lock() {
        let outlook = |state, given_up| code(settler_outlook(&fill(), state, given_up));
        assert_eq!(outlook(IntentState::None, false), "not yet");
        assert_eq!(outlook(IntentState::None, true), "fill_rejected");
        assert_eq!(outlook(IntentState::Created, true), "go");
        assert_eq!(code(settler_outlook(&create(), IntentState::None, true)), "go");
    }

    #[test]
    fn only_a_permit_after_others_is_early() {
        let nonce = |given| Permit::InvalidNonce { expected: U256::from(5), given: U256::from(given) };
        assert!(is_early(&nonce(6).abi_encode()));
        assert!(!is_early(&nonce(4).abi_encode()));
        assert!(!is_early(&Escrow::WrongState { id: B256::ZERO, slot: 0 }.abi_encode()));
        assert!(!is_early(&[]));
    }
}
