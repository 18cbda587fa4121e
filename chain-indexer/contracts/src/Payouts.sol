// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {Coin, IWrappedCoin} from "./Coin.sol";
import {CoinGate} from "./CoinGate.sol";
import {IntentSettler} from "./IntentSettler.sol";
import {Managed} from "./Managed.sol";

/// @title Payouts in tokens and in the chain's coin, each at most once
/// @notice Moves a payer's tokens to a receiver under an intent's id, once, in time and within the payer's cap of the
/// day. The payer consents by its allowance to this contract. A payment in the coin takes the payer's wrapped coin and
/// unwraps it.
/// @dev The settler alone pays the output of a swap, and moves its input in the same transaction; `pay` is for intents
/// that have neither a lock nor a swap here. What is trusted: whoever holds RELAYER_ROLE chooses receiver and amount of
/// those, within the caps, unless the payer has named an authorizer, who signs each.
contract Payouts is Managed, EIP712 {
    using SafeERC20 for IERC20;

    /// @param notAfter Unix seconds, the last at which it may be paid.
    struct Payment {
        bytes32 id;
        address payer;
        address receiver;
        address token;
        uint256 amount;
        uint64 notAfter;
    }

    /// @param authorization The authorizer's signature; empty when the payer has named none.
    struct PayParams {
        Payment payment;
        bytes authorization;
    }

    /// @dev One word. `day` counts days since 1970 (UTC), `spent` is of that day.
    struct Cap {
        uint112 perDay;
        uint112 spent;
        uint32 day;
    }

    bytes32 public constant PAYMENT_TYPEHASH = keccak256(
        "Payment(bytes32 id,address payer,address receiver,address token,uint256 amount,uint64 notAfter)"
    );

    /// @notice Named as the token of a payment, it stands for the chain's coin.
    address public constant COIN = Coin.AS_TOKEN;
    /// @dev What a receiver of the coin may use.
    uint256 private constant COIN_GAS = 100_000;

    /// @notice The contract that knows what is locked on this chain.
    IntentSettler public immutable settler;
    /// @notice What payments in the coin are made from; zero on a chain whose coin is not dealt in.
    IWrappedCoin public immutable wrapped;

    /// @notice When an id was paid by `pay`, in Unix seconds; zero if it was not.
    mapping(bytes32 id => uint64) public paidAt;
    /// @notice What a payer's allowance pays a day and token. Nothing, unless the administrator has said how much.
    mapping(address payer => mapping(address token => Cap)) public caps;
    /// @notice Who signs a payer's payments beside the relayer; nobody, if zero.
    mapping(address payer => address) public authorizers;

    event Paid(
        bytes32 indexed id,
        address indexed payer,
        address indexed receiver,
        address token,
        uint256 amount,
        uint64 seq
    );
    event CapSet(address indexed payer, address indexed token, uint112 perDay, uint64 seq);
    event AuthorizerSet(address indexed payer, address authorizer, uint64 seq);

    error NotWiredTo(address payouts);
    error OnlySettler(address caller);
    error AlreadyPaid(bytes32 id);
    error LockedHere(bytes32 id, IntentSettler.State state);
    error TooLate(uint64 notAfter, uint256 timestamp);
    error ZeroAmount();
    error CapExceeded(address payer, address token, uint256 left, uint256 amount);
    error NotAuthorized(address expected, address recovered);
    error AmountNotReceived(uint256 expected, uint256 received);
    error NoCoinHere();
    error OnlyWrappedCoin(address caller);
    error CoinRefused(address receiver);

    constructor(IntentSettler settler_, address admin, uint48 adminDelay)
        Managed(admin, adminDelay)
        EIP712("Payouts", "1")
    {
        if (address(settler_.payouts()) != address(this)) revert NotWiredTo(address(settler_.payouts()));
        settler = settler_;
        CoinGate gate = settler_.escrow().gate();
        wrapped = address(gate) == address(0) ? IWrappedCoin(address(0)) : gate.wrapped();
    }

    /// @dev The wrapped coin pays here what it unwraps, within a payment.
    receive() external payable {
        if (msg.sender != address(wrapped)) revert OnlyWrappedCoin(msg.sender);
    }

    /// @notice Sets what a payer's allowance pays a day of a token; what it has paid today counts. Payments in the coin
    /// count as the wrapped coin.
    function setCap(address payer, address token, uint112 perDay) external onlyRole(DEFAULT_ADMIN_ROLE) {
        caps[payer][token].perDay = perDay;
        emit CapSet(payer, token, perDay, _nextSeq());
    }

    /// @notice A payer names who must sign each of its payments that no lock on this chain secures; zero: nobody.
    function setAuthorizer(address authorizer) external {
        authorizers[msg.sender] = authorizer;
        emit AuthorizerSet(msg.sender, authorizer, _nextSeq());
    }

    /// @notice Pays an intent that has no lock on this chain, once.
    function pay(Payment calldata payment, bytes calldata authorization)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
    {
        _pay(payment, authorization);
    }

    /// @notice `pay` for each; one that fails changes nothing, and `reasons` has its revert data. The rest is not tried
    /// once the gas may not suffice for the next one.
    /// @param itemGas What each may use at most.
    /// @param atLeast The number of items that must be tried: with gas for fewer the batch reverts.
    function payMany(PayParams[] calldata items, uint256 itemGas, uint256 atLeast)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
        returns (Outcome[] memory outcomes, bytes[] memory reasons)
    {
        (outcomes, reasons) = (new Outcome[](items.length), new bytes[](items.length));
        uint256 needed = _gasFor(itemGas, items.length);
        for (uint256 i = 0; i < items.length; ++i) {
            bytes memory item = abi.encodeCall(this.payItem, (items[i]));
            (outcomes[i], reasons[i]) = _attempt(items[i].payment.id, item, itemGas, needed, i < atLeast);
            if (outcomes[i] == Outcome.NotTried) break;
        }
    }

    function payItem(PayParams calldata params) external onlySelf {
        _pay(params.payment, params.authorization);
    }

    /// @notice Pays the output of an intent whose input the settler moves in the same call.
    function deliver(bytes32 id, address payer, address receiver, address token, uint256 amount)
        external
        nonReentrant
    {
        if (msg.sender != address(settler)) revert OnlySettler(msg.sender);
        if (paidAt[id] != 0) revert AlreadyPaid(id);
        _move(id, payer, receiver, token, amount);
    }

    function _pay(Payment calldata payment, bytes calldata authorization) private {
        (bytes32 id, address payer) = (payment.id, payment.payer);
        if (paidAt[id] != 0) revert AlreadyPaid(id);
        if (block.timestamp > payment.notAfter) revert TooLate(payment.notAfter, block.timestamp);
        IntentSettler.State state = settler.stateOf(id);
        if (state != IntentSettler.State.None) revert LockedHere(id, state);
        address authorizer = authorizers[payer];
        if (authorizer != address(0)) {
            bytes32 digest = _hashTypedDataV4(keccak256(abi.encode(PAYMENT_TYPEHASH, payment)));
            address recovered = ECDSA.recover(digest, authorization);
            if (recovered != authorizer) revert NotAuthorized(authorizer, recovered);
        }
        paidAt[id] = uint64(block.timestamp);
        _move(id, payer, payment.receiver, payment.token, payment.amount);
    }

    /// @dev A token that delivers another amount than asked (fee on transfer, rebasing) is refused, and so is a
    /// payer that pays itself: nothing would be delivered.
    function _move(bytes32 id, address payer, address receiver, address token, uint256 amount)
        private
        whenNotPaused
    {
        if (amount == 0) revert ZeroAmount();
        if (token == COIN) {
            _moveCoin(id, payer, receiver, amount);
            return;
        }
        _spend(payer, token, amount);
        emit Paid(id, payer, receiver, token, amount, _nextSeq());
        uint256 before = IERC20(token).balanceOf(receiver);
        IERC20(token).safeTransferFrom(payer, receiver, amount);
        uint256 received = IERC20(token).balanceOf(receiver) - before;
        if (received != amount) revert AmountNotReceived(amount, received);
    }

    /// @dev A receiver that refuses makes the payment fail: nothing was delivered. What it does with the coin is not
    /// looked at, and the guard is held while it runs. The wrapped coin's contract would take the coin as a deposit.
    function _moveCoin(bytes32 id, address payer, address receiver, uint256 amount) private {
        if (address(wrapped) == address(0)) revert NoCoinHere();
        _spend(payer, address(wrapped), amount);
        emit Paid(id, payer, receiver, COIN, amount, _nextSeq());
        uint256 before = address(this).balance;
        IERC20(address(wrapped)).safeTransferFrom(payer, address(this), amount);
        wrapped.withdraw(amount);
        uint256 received = address(this).balance - before;
        if (received != amount) revert AmountNotReceived(amount, received);
        if (receiver == address(wrapped) || !Coin.send(receiver, amount, COIN_GAS)) revert CoinRefused(receiver);
    }

    function _spend(address payer, address token, uint256 amount) private {
        Cap storage cap = caps[payer][token];
        uint32 today = uint32(block.timestamp / 1 days);
        (uint256 perDay, uint256 spent) = (cap.perDay, cap.day == today ? cap.spent : 0);
        uint256 left = perDay > spent ? perDay - spent : 0;
        if (amount > left) revert CapExceeded(payer, token, left, amount);
        cap.spent = uint112(spent + amount);
        cap.day = today;
    }
}
