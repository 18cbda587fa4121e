//! A token that violates the standard in a way that the test chooses.

use super::{Order, Scene};
use alloy::primitives::{Address, Bytes, TxKind, U256};

alloy::sol!(
    #[derive(Debug)]
    OddToken,
    "contracts/artifacts/OddToken.json"
);

/// `OddToken.oddity`.
pub(crate) const NONE: u8 = 0;
pub(crate) const SAYS_NOTHING: u8 = 1;
pub(crate) const REFUSES: u8 = 2;
pub(crate) const ONLY_SAYS_SO: u8 = 3;
pub(crate) const REENTERS: u8 = 4;
pub(crate) const PAUSED: u8 = 5;
pub(crate) const KEEPS_A_FEE: u8 = 6;
pub(crate) const TAKES_MORE: u8 = 7;
pub(crate) const BURNS_GAS: u8 = 8;
pub(crate) const REVERTS_WITH_MEGABYTES: u8 = 9;
pub(crate) const IS_INVALID: u8 = 10;
pub(crate) const REVERTS_WITH_NOTHING: u8 = 11;
pub(crate) const RETURNS_MEGABYTES: u8 = 12;
pub(crate) const ROUNDS_DOWN: u8 = 13;
pub(crate) const HIDES_BALANCES: u8 = 14;

impl Scene {
    /// A new odd token (0 decimals) that behaves well, of which the maker has 1000 and has approved the permit contract.
    pub(crate) async fn odd_token(&self) -> Address {
        let receipt = self.send(&self.admin, TxKind::Create, OddToken::BYTECODE.clone()).await;
        let token = receipt.contract_address.unwrap();
        let mint = OddToken::mintCall { to: self.maker.address(), value: U256::from(1_000) };
        assert!(self.succeeds(&self.admin, token, &mint).await);
        let approve = OddToken::approveCall { spender: self.deployment.permit, value: U256::MAX };
        assert!(self.succeeds(&self.maker, token, &approve).await);
        token
    }

    pub(crate) async fn odd_order(&self, id: u8) -> Order {
        Order { token: self.odd_token().await, ..self.order(id).await }
    }

    /// From now on the token behaves like this.
    pub(crate) async fn turn(&self, token: Address, oddity: u8) {
        self.turn_to_call(token, oddity, Address::ZERO, Bytes::new()).await;
    }

    /// The same, with the call that it makes while it is transferred.
    pub(crate) async fn turn_to_call(
        &self,
        token: Address,
        oddity: u8,
        target: Address,
        call: impl Into<Bytes>,
    ) {
        let turn = OddToken::turnCall { to: oddity, target, call: call.into() };
        assert!(self.succeeds(&self.admin, token, &turn).await);
    }
}
