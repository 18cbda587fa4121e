//! Orders of a scene: their terms, calls and signatures, and their commands as the engine inserts them.

use super::{FUNDS, Scene, key};
use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolStruct, eip712_domain};
use dvp_chain_indexer::contracts::escrow::{self, Escrow};
use dvp_chain_indexer::contracts::payouts::Payouts;
use dvp_chain_indexer::contracts::settler::{self, IntentSettler, Orders};
use dvp_domain::chain::{ChainCommand, ChainFact, CreateCommand, LockTerms, PermitArgs, TransferCommand};
use sha2::{Digest, Sha256};

alloy::sol! {
    /// The structure that a wallet signs.
    struct PermitSingle {
        address token;
        uint256 amount;
        address spender;
        uint256 nonce;
        uint256 deadline;
    }

    /// The structure that two operators sign.
    struct ReturnFunds {
        bytes32 intentId;
        uint256 deadline;
    }
}

/// The digest of the agreed terms of every test order.
pub(crate) const TERMS: B256 = B256::repeat_byte(0x7e);

#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) id: B256,
    pub(crate) maker: PrivateKeySigner,
    /// The contract that pays, where the maker is its owner.
    pub(crate) wallet: Option<Address>,
    pub(crate) token: Address,
    pub(crate) amount: U256,
    pub(crate) permitted: U256,
    pub(crate) nonce: U256,
    pub(crate) permit_deadline: u64,
    pub(crate) lock_by: u64,
    pub(crate) fill_deadline: u64,
    pub(crate) timelock: u64,
    pub(crate) preimage: B256,
}

impl Order {
    pub(crate) fn hashlock(&self) -> B256 {
        B256::from_slice(&Sha256::digest(self.preimage))
    }

    pub(crate) fn payer(&self) -> Address {
        self.wallet.unwrap_or_else(|| self.maker.address())
    }
}

fn permit_input(order: &Order, signature: Vec<u8>) -> settler::Escrow::PermitInput {
    settler::Escrow::PermitInput {
        amount: order.permitted,
        nonce: order.nonce,
        deadline: U256::from(order.permit_deadline),
        signature: signature.into(),
    }
}

impl Scene {
    /// An order of the maker that the contracts would accept now.
    pub(crate) async fn order(&self, id: u8) -> Order {
        let now = self.now().await;
        Order {
            id: B256::repeat_byte(id),
            maker: self.maker.clone(),
            wallet: None,
            token: self.token,
            amount: U256::from(100),
            permitted: U256::from(100),
            nonce: self.permit_nonce().await,
            permit_deadline: now + 3600,
            lock_by: now + 300,
            fill_deadline: now + 600,
            timelock: now + 1200,
            preimage: B256::repeat_byte(id ^ 0xff),
        }
    }

    /// This amount of the scene's token for a receiver.
    pub(crate) fn output(&self, receiver: Address, amount: u64) -> Orders::Output {
        Orders::Output { token: self.token, receiver, amount: U256::from(amount), agreed: TERMS }
    }

    pub(crate) fn sign(&self, by: &PrivateKeySigner, order: &Order, spender: Address) -> Vec<u8> {
        by.sign_hash_sync(&self.permit_digest(order, spender)).unwrap().as_bytes().to_vec()
    }

    pub(crate) fn permit_digest(&self, order: &Order, spender: Address) -> B256 {
        let domain = eip712_domain! {
            name: "Permit",
            version: "1",
            chain_id: self.deployment.chain_id,
            verifying_contract: self.deployment.permit,
        };
        let message = PermitSingle {
            token: order.token,
            amount: order.permitted,
            spender,
            nonce: order.nonce,
            deadline: U256::from(order.permit_deadline),
        };
        message.eip712_signing_hash(&domain)
    }

    /// The maker's own signature for the escrow.
    pub(crate) fn signed(&self, order: &Order) -> Vec<u8> {
        self.sign(&order.maker, order, self.deployment.escrow)
    }

    pub(crate) fn create_call(&self, order: &Order, signature: Vec<u8>) -> IntentSettler::createCall {
        IntentSettler::createCall { params: self.create_params(order, signature) }
    }

    pub(crate) fn create_params(&self, order: &Order, signature: Vec<u8>) -> IntentSettler::CreateParams {
        IntentSettler::CreateParams {
            intentId: order.id,
            order: self.terms(order),
            lockBy: order.lock_by,
            permit: permit_input(order, signature),
        }
    }

    /// The output of swapping the maker's input: the same amount of the same token, to the receiver.
    pub(crate) fn swap_params(&self, order: &Order, output: Orders::Output) -> IntentSettler::SwapParams {
        IntentSettler::SwapParams {
            intentId: order.id,
            maker: order.payer(),
            solver: self.solver.address(),
            token: order.token,
            amount: order.amount,
            lockBy: order.lock_by,
            output,
            permit: permit_input(order, self.signed(order)),
        }
    }

    /// The terms of every call about the order.
    pub(crate) fn terms(&self, order: &Order) -> Orders::Order {
        Orders::Order {
            maker: order.payer(),
            solver: self.solver.address(),
            token: order.token,
            amount: order.amount,
            fillDeadline: order.fill_deadline,
            timelock: order.timelock,
            hashlock: order.hashlock(),
            terms: TERMS,
        }
    }

    /// The same for the escrow's own calls.
    pub(crate) fn escrow_terms(&self, order: &Order) -> escrow::Orders::Order {
        let Orders::Order { maker, solver, token, amount, fillDeadline, timelock, hashlock, terms } =
            self.terms(order);
        escrow::Orders::Order { maker, solver, token, amount, fillDeadline, timelock, hashlock, terms }
    }

    pub(crate) fn fill_call(&self, order: &Order) -> IntentSettler::fillCall {
        IntentSettler::fillCall { intentId: order.id, order: self.terms(order), payoutRef: order.id }
    }

    pub(crate) fn settle_call(&self, order: &Order) -> IntentSettler::settleCall {
        IntentSettler::settleCall { intentId: order.id, order: self.terms(order), preimage: order.preimage }
    }

    pub(crate) fn cancel_call(&self, order: &Order) -> IntentSettler::cancelCall {
        IntentSettler::cancelCall { intentId: order.id, order: self.terms(order) }
    }

    pub(crate) fn release_call(&self, order: &Order) -> Escrow::releaseCall {
        Escrow::releaseCall { id: order.id, order: self.escrow_terms(order), preimage: order.preimage }
    }

    pub(crate) fn refund_call(&self, order: &Order) -> Escrow::refundCall {
        Escrow::refundCall { id: order.id, order: self.escrow_terms(order) }
    }

    pub(crate) fn payment(&self, id: u8, amount: u64) -> Payouts::Payment {
        Payouts::Payment {
            id: B256::repeat_byte(id),
            payer: self.solver.address(),
            receiver: self.maker.address(),
            token: self.token,
            amount: U256::from(amount),
            notAfter: u64::MAX,
        }
    }

    /// Signed by these two, in the order of their addresses.
    pub(crate) fn return_call(
        &self,
        order: &Order,
        by: [u8; 2],
        deadline: u64,
    ) -> IntentSettler::returnFilledCall {
        let domain = eip712_domain! {
            name: "IntentSettler",
            version: "1",
            chain_id: self.deployment.chain_id,
            verifying_contract: self.deployment.settler,
        };
        let message = ReturnFunds { intentId: order.id, deadline: U256::from(deadline) };
        let hash = message.eip712_signing_hash(&domain);
        let mut signers = by.map(key);
        signers.sort_by_key(PrivateKeySigner::address);
        let [first, second] = signers.map(|signer| signer.sign_hash_sync(&hash).unwrap().as_bytes().to_vec());
        IntentSettler::returnFilledCall {
            intentId: order.id,
            order: self.terms(order),
            deadline: U256::from(deadline),
            first: first.into(),
            second: second.into(),
        }
    }

    /// The order as the engine inserts it. A permit signed for less than the amount is a forgery: it claims more.
    pub(crate) fn create_command(&self, order: &Order) -> ChainCommand {
        self.signed_command(order, self.signed(order))
    }

    pub(crate) fn signed_command(&self, order: &Order, signature: Vec<u8>) -> ChainCommand {
        ChainCommand::Create(Box::new(CreateCommand {
            entity: order.id.to_string(),
            maker: order.payer().to_string(),
            solver: self.solver.address().to_string(),
            token: order.token.to_string(),
            amount: order.amount.to_string(),
            lock_by: order.lock_by,
            fill_deadline: order.fill_deadline,
            timelock: order.timelock,
            hashlock: order.hashlock().to_string(),
            terms: TERMS.to_string(),
            permit: Some(PermitArgs {
                amount: order.amount.max(order.permitted).to_string(),
                nonce: order.nonce.to_string(),
                deadline: order.permit_deadline,
                signature: Bytes::from(signature).to_string(),
            }),
        }))
    }

    pub(crate) fn fill_command(&self, order: &Order) -> ChainCommand {
        let payout_ref = self.fill_call(order).payoutRef.to_string();
        ChainCommand::Fill { entity: order.id.to_string(), payout_ref }
    }

    /// Its release, with its own preimage.
    pub(crate) fn settle_command(&self, order: &Order) -> ChainCommand {
        ChainCommand::Settle { entity: order.id.to_string(), preimage: Some(order.preimage.to_string()) }
    }

    /// A payment of the solver in the scene's token.
    pub(crate) fn transfer(&self, id: B256, receiver: Address, amount: u64) -> TransferCommand {
        TransferCommand {
            entity: id.to_string(),
            payer: self.solver.address().to_string(),
            receiver: receiver.to_string(),
            token: self.token.to_string(),
            amount: amount.to_string(),
            not_after: u64::MAX,
        }
    }

    /// Orders of distinct wallets, with ids from `from` on.
    pub(crate) async fn orders(&self, from: u8, count: u8) -> Vec<Order> {
        let template = self.order(1).await;
        let mut orders = Vec::new();
        for byte in from..from + count {
            let id = B256::repeat_byte(byte);
            let maker = self.wallet(id, FUNDS).await;
            orders.push(Order { id, maker, nonce: U256::ZERO, ..template.clone() });
        }
        orders
    }

    pub(crate) fn created(&self, order: &Order) -> ChainFact {
        let Orders::Order { maker, solver, token, amount, fillDeadline, timelock, hashlock, terms } =
            self.terms(order);
        let lock = LockTerms {
            maker: maker.to_string(),
            solver: solver.to_string(),
            token: token.to_string(),
            fill_deadline: fillDeadline,
            hashlock: hashlock.to_string(),
            terms: terms.to_string(),
        };
        ChainFact::Created { timelock, amount: amount.to_string(), lock: Box::new(lock) }
    }
}
