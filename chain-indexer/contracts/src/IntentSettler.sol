// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {Escrow} from "./Escrow.sol";
import {Managed} from "./Managed.sol";
import {Orders} from "./Orders.sol";
import {Payouts} from "./Payouts.sol";

/// @title Delivery versus payment, one intent at a time
/// @notice Created (funds locked) -> Filled (committed: a payment may begin) -> Settled (preimage shown, solver paid),
/// or Created -> Cancelled (maker paid back). `fill` is possible strictly before the fill deadline and `cancel` by
/// anyone from it on, so that no moment lets a payment and a cancellation both begin. An order whose output is a token
/// of this chain moves with its input in one transaction: `swap`.
/// @dev Funds and states are in `Escrow`. Its `release` and `refund` are open to anyone; `settle` follows a release
/// that somebody else made (with the preimage of a copied `settle`, for instance).
contract IntentSettler is Managed, EIP712 {
    using Orders for Orders.Output;

    enum State {
        None,
        Created,
        Filled,
        Settled,
        Cancelled
    }

    /// @param lockBy Unix seconds, the last at which the order may be created.
    struct CreateParams {
        bytes32 intentId;
        Orders.Order order;
        uint64 lockBy;
        Escrow.PermitInput permit;
    }

    struct FillParams {
        bytes32 intentId;
        Orders.Order order;
        bytes32 payoutRef;
    }

    struct SettleParams {
        bytes32 intentId;
        Orders.Order order;
        bytes32 preimage;
    }

    /// @param lockBy Unix seconds, the last at which the order may be swapped.
    struct SwapParams {
        bytes32 intentId;
        address maker;
        address solver;
        address token;
        uint256 amount;
        uint64 lockBy;
        Orders.Output output;
        Escrow.PermitInput permit;
    }

    bytes32 public constant OPERATOR_ROLE = keccak256("OPERATOR_ROLE");
    bytes32 public constant RETURN_TYPEHASH = keccak256("ReturnFunds(bytes32 intentId,uint256 deadline)");

    /// @notice A relayer cannot keep an unfilled order's funds for longer.
    uint256 public constant FILL_WINDOW_MAX = 7 days;
    /// @notice A relayer cannot keep a filled order's funds for longer.
    uint256 public constant LOCK_WINDOW_MAX = 60 days;

    /// @notice Where the funds are.
    Escrow public immutable escrow;
    /// @notice Through which solvers deliver tokens.
    Payouts public immutable payouts;

    /// @notice Wallets to which locked funds may be released.
    mapping(address receiver => bool) public allowedReceivers;

    event Created(
        bytes32 indexed intentId,
        address indexed maker,
        address indexed solver,
        address tokenIn,
        uint256 amountIn,
        uint64 fillDeadline,
        bytes32 terms,
        uint64 seq
    );
    event Filled(bytes32 indexed intentId, address indexed solver, bytes32 payoutRef, uint64 seq);
    event Settled(bytes32 indexed intentId, address indexed solver, uint256 amountIn, uint64 seq);
    event Cancelled(bytes32 indexed intentId, address indexed maker, uint256 amountIn, uint64 seq);
    /// @notice Two operators had a filled order's funds returned.
    event ReturnApproved(bytes32 indexed intentId, address first, address second, uint64 seq);
    event ReceiverSet(address indexed receiver, bool allowed, uint64 seq);

    error NotWiredTo(address settler);
    error LockByPassed(uint64 lockBy, uint256 timestamp);
    error FillDeadlinePassed(uint64 fillDeadline, uint256 timestamp);
    error FillDeadlineNotPassed(uint64 fillDeadline, uint256 timestamp);
    error TimelockBeforeDeadline(uint64 timelock, uint64 fillDeadline);
    error WindowTooLong(uint256 end, uint256 latest);
    error ReceiverNotAllowed(address receiver);
    error ApprovalExpired(uint256 deadline, uint256 timestamp);
    error NotTwoOperators(address first, address second);

    constructor(Escrow escrow_, Payouts payouts_, address admin, uint48 adminDelay)
        Managed(admin, adminDelay)
        EIP712("IntentSettler", "1")
    {
        if (escrow_.settler() != address(this)) revert NotWiredTo(escrow_.settler());
        escrow = escrow_;
        payouts = payouts_;
    }

    /// @notice Puts a receiver on the allow-list or takes it off; what is locked keeps its receiver.
    function setReceiver(address receiver, bool allowed) external onlyRole(DEFAULT_ADMIN_ROLE) {
        allowedReceivers[receiver] = allowed;
        emit ReceiverSet(receiver, allowed, _nextSeq());
    }

    /// @notice Pulls the maker's funds with the permit and locks them for the solver.
    function create(CreateParams calldata params) external onlyRole(RELAYER_ROLE) nonReentrant {
        _create(params);
    }

    /// @notice Commits to paying the maker's beneficiary, strictly before the fill deadline.
    function fill(bytes32 intentId, Orders.Order calldata order, bytes32 payoutRef)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
    {
        _fill(intentId, order, payoutRef);
    }

    /// @notice Reveals the preimage and releases the funds to the solver, strictly before the timelock.
    function settle(bytes32 intentId, Orders.Order calldata order, bytes32 preimage)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
    {
        _settle(intentId, order, preimage);
    }

    /// @notice Moves the maker's input to the solver and the solver's output to the receiver, or neither.
    function swap(SwapParams calldata params) external onlyRole(RELAYER_ROLE) nonReentrant {
        _swap(params);
    }

    /// @notice Returns the funds of an unfilled order: a relayer at any time, anyone from the fill deadline on.
    function cancel(bytes32 intentId, Orders.Order calldata order) external nonReentrant {
        if (block.timestamp < order.fillDeadline && !hasRole(RELAYER_ROLE, msg.sender)) {
            revert FillDeadlineNotPassed(order.fillDeadline, block.timestamp);
        }
        emit Cancelled(intentId, order.maker, order.amount, _nextSeq());
        escrow.giveBack(intentId, order, false);
    }

    /// @notice Returns the funds of a filled order before its timelock, when two operators have signed for it
    /// (EIP-712 `ReturnFunds`): the payment was stopped provably. Anyone may bring the signatures.
    /// @dev The signers are two accounts with the role of an operator and without that of a relayer, in ascending
    /// order of their addresses. An order is returned once, so a signature cannot be used again.
    function returnFilled(
        bytes32 intentId,
        Orders.Order calldata order,
        uint256 deadline,
        bytes calldata first,
        bytes calldata second
    ) external nonReentrant {
        if (block.timestamp > deadline) revert ApprovalExpired(deadline, block.timestamp);
        bytes32 digest = _hashTypedDataV4(keccak256(abi.encode(RETURN_TYPEHASH, intentId, deadline)));
        (address one, address two) = (ECDSA.recover(digest, first), ECDSA.recover(digest, second));
        if (one >= two || !_decides(one) || !_decides(two)) revert NotTwoOperators(one, two);
        emit ReturnApproved(intentId, one, two, _nextSeq());
        emit Cancelled(intentId, order.maker, order.amount, _nextSeq());
        escrow.giveBack(intentId, order, true);
    }

    /// @notice `create` for each; one that fails changes nothing, and `reasons` has its revert data. The rest is not tried
    /// once the gas may not suffice for the next one.
    /// @param itemGas What each may use at most.
    /// @param atLeast The number of items that must be tried: with gas for fewer the batch reverts.
    function createMany(CreateParams[] calldata items, uint256 itemGas, uint256 atLeast)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
        returns (Outcome[] memory outcomes, bytes[] memory reasons)
    {
        (outcomes, reasons) = (new Outcome[](items.length), new bytes[](items.length));
        uint256 needed = _gasFor(itemGas, items.length);
        for (uint256 i = 0; i < items.length; ++i) {
            bytes memory item = abi.encodeCall(this.createItem, (items[i]));
            (outcomes[i], reasons[i]) = _attempt(items[i].intentId, item, itemGas, needed, i < atLeast);
            if (outcomes[i] == Outcome.NotTried) break;
        }
    }

    /// @notice `fill` for each, as `createMany`.
    function fillMany(FillParams[] calldata items, uint256 itemGas, uint256 atLeast)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
        returns (Outcome[] memory outcomes, bytes[] memory reasons)
    {
        (outcomes, reasons) = (new Outcome[](items.length), new bytes[](items.length));
        uint256 needed = _gasFor(itemGas, items.length);
        for (uint256 i = 0; i < items.length; ++i) {
            bytes memory item = abi.encodeCall(this.fillItem, (items[i]));
            (outcomes[i], reasons[i]) = _attempt(items[i].intentId, item, itemGas, needed, i < atLeast);
            if (outcomes[i] == Outcome.NotTried) break;
        }
    }

    /// @notice `settle` for each, as `createMany`.
    function settleMany(SettleParams[] calldata items, uint256 itemGas, uint256 atLeast)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
        returns (Outcome[] memory outcomes, bytes[] memory reasons)
    {
        (outcomes, reasons) = (new Outcome[](items.length), new bytes[](items.length));
        uint256 needed = _gasFor(itemGas, items.length);
        for (uint256 i = 0; i < items.length; ++i) {
            bytes memory item = abi.encodeCall(this.settleItem, (items[i]));
            (outcomes[i], reasons[i]) = _attempt(items[i].intentId, item, itemGas, needed, i < atLeast);
            if (outcomes[i] == Outcome.NotTried) break;
        }
    }

    /// @notice `swap` for each, as `createMany`.
    function swapMany(SwapParams[] calldata items, uint256 itemGas, uint256 atLeast)
        external
        onlyRole(RELAYER_ROLE)
        nonReentrant
        returns (Outcome[] memory outcomes, bytes[] memory reasons)
    {
        (outcomes, reasons) = (new Outcome[](items.length), new bytes[](items.length));
        uint256 needed = _gasFor(itemGas, items.length);
        for (uint256 i = 0; i < items.length; ++i) {
            bytes memory item = abi.encodeCall(this.swapItem, (items[i]));
            (outcomes[i], reasons[i]) = _attempt(items[i].intentId, item, itemGas, needed, i < atLeast);
            if (outcomes[i] == Outcome.NotTried) break;
        }
    }

    function createItem(CreateParams calldata params) external onlySelf {
        _create(params);
    }

    function fillItem(FillParams calldata params) external onlySelf {
        _fill(params.intentId, params.order, params.payoutRef);
    }

    function settleItem(SettleParams calldata params) external onlySelf {
        _settle(params.intentId, params.order, params.preimage);
    }

    function swapItem(SwapParams calldata params) external onlySelf {
        _swap(params);
    }

    /// @notice Where an intent stands. Cancelled: the funds went back, in whatever way.
    function stateOf(bytes32 intentId) external view returns (State) {
        (Escrow.Slot slot,) = escrow.slotOf(intentId);
        if (slot == Escrow.Slot.None) return State.None;
        if (slot == Escrow.Slot.Locked) return State.Created;
        if (slot == Escrow.Slot.Filled || slot == Escrow.Slot.Released) return State.Filled;
        if (slot == Escrow.Slot.Settled || slot == Escrow.Slot.Swapped) return State.Settled;
        return State.Cancelled;
    }

    function _create(CreateParams calldata params) private whenNotPaused {
        Orders.Order calldata order = params.order;
        if (block.timestamp > params.lockBy) revert LockByPassed(params.lockBy, block.timestamp);
        if (block.timestamp >= order.fillDeadline) revert FillDeadlinePassed(order.fillDeadline, block.timestamp);
        if (order.timelock <= order.fillDeadline) revert TimelockBeforeDeadline(order.timelock, order.fillDeadline);
        _withinWindow(order.fillDeadline, FILL_WINDOW_MAX);
        _withinWindow(order.timelock, LOCK_WINDOW_MAX);
        _allowed(order.solver);
        emit Created(
            params.intentId,
            order.maker,
            order.solver,
            order.token,
            order.amount,
            order.fillDeadline,
            order.terms,
            _nextSeq()
        );
        escrow.lock(params.intentId, order, params.permit);
    }

    function _fill(bytes32 intentId, Orders.Order calldata order, bytes32 payoutRef) private {
        if (block.timestamp >= order.fillDeadline) revert FillDeadlinePassed(order.fillDeadline, block.timestamp);
        emit Filled(intentId, order.solver, payoutRef, _nextSeq());
        escrow.fill(intentId, order);
    }

    function _settle(bytes32 intentId, Orders.Order calldata order, bytes32 preimage) private {
        emit Settled(intentId, order.solver, order.amount, _nextSeq());
        escrow.settle(intentId, order, preimage);
    }

    function _swap(SwapParams calldata params) private whenNotPaused {
        if (block.timestamp > params.lockBy) revert LockByPassed(params.lockBy, block.timestamp);
        _allowed(params.solver);
        bytes32 terms = params.output.binding();
        (bytes32 id, address solver, uint256 amount) = (params.intentId, params.solver, params.amount);
        emit Created(id, params.maker, solver, params.token, amount, params.lockBy, terms, _nextSeq());
        emit Filled(id, solver, terms, _nextSeq());
        emit Settled(id, solver, amount, _nextSeq());
        escrow.swap(id, params.maker, solver, params.token, amount, terms, params.permit);
        payouts.deliver(id, solver, params.output.receiver, params.output.token, params.output.amount);
    }

    function _withinWindow(uint256 end, uint256 window) private view {
        if (end > block.timestamp + window) revert WindowTooLong(end, block.timestamp + window);
    }

    function _allowed(address receiver) private view {
        if (!allowedReceivers[receiver]) revert ReceiverNotAllowed(receiver);
    }

    function _decides(address account) private view returns (bool) {
        return hasRole(OPERATOR_ROLE, account) && !hasRole(RELAYER_ROLE, account);
    }
}
