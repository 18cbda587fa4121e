// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {AccessControl} from "@openzeppelin/contracts/access/AccessControl.sol";
import {Escrow} from "./Escrow.sol";
import {Sequenced} from "./Sequenced.sol";

/// @title Delivery versus payment, one intent at a time
/// @notice Created (funds locked) -> Filled (the payout's reference recorded) -> Settled (preimage shown, solver
/// paid), or Created -> Cancelled (maker paid back) once the fill deadline has passed without a fill.
/// @dev Funds move in `Escrow` only. Its `release` and `refund` are open to anyone, so a slot may be decided there
/// first (a copied `settle` transaction, for instance): `settle` and `cancel` then only follow.
contract IntentSettler is AccessControl, Sequenced {
    enum State {
        None,
        Created,
        Filled,
        Settled,
        Cancelled
    }

    struct Intent {
        address maker;
        uint64 fillDeadline;
        State state;
        address solver;
        uint256 amountIn;
        bytes32 terms;
        bytes32 payoutRef;
    }

    /// @param fillDeadline Unix seconds: from then on anyone may cancel an unfilled intent.
    /// @param timelock Unix seconds, later than the fill deadline: the escrow's.
    /// @param hashlock SHA-256 of the 32-byte preimage that `settle` reveals.
    /// @param terms SHA-256 of the terms agreed off-chain.
    struct CreateParams {
        bytes32 intentId;
        address maker;
        address solver;
        address token;
        uint256 amountIn;
        uint64 fillDeadline;
        uint64 timelock;
        bytes32 hashlock;
        bytes32 terms;
        Escrow.PermitInput permit;
    }

    bytes32 public constant RELAYER_ROLE = keccak256("RELAYER_ROLE");

    /// @notice Where the funds are.
    Escrow public immutable escrow;

    mapping(bytes32 intentId => Intent) private _intents;

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

    error WrongState(bytes32 intentId, State state);
    error FillDeadlinePassed(uint64 fillDeadline, uint256 timestamp);
    error FillDeadlineNotPassed(uint64 fillDeadline, uint256 timestamp);
    error TimelockBeforeDeadline(uint64 timelock, uint64 fillDeadline);
    error FundsReleased(bytes32 intentId);

    constructor(Escrow escrow_, address admin) {
        escrow = escrow_;
        _grantRole(DEFAULT_ADMIN_ROLE, admin);
    }

    /// @notice Pulls the maker's funds with the permit, locks them for the solver and records the intent.
    function create(CreateParams calldata params) external onlyRole(RELAYER_ROLE) {
        Intent storage intent = _intents[params.intentId];
        if (intent.state != State.None) revert WrongState(params.intentId, intent.state);
        if (block.timestamp >= params.fillDeadline) {
            revert FillDeadlinePassed(params.fillDeadline, block.timestamp);
        }
        if (params.timelock <= params.fillDeadline) {
            revert TimelockBeforeDeadline(params.timelock, params.fillDeadline);
        }
        intent.maker = params.maker;
        intent.fillDeadline = params.fillDeadline;
        intent.state = State.Created;
        intent.solver = params.solver;
        intent.amountIn = params.amountIn;
        intent.terms = params.terms;
        emit Created(
            params.intentId,
            params.maker,
            params.solver,
            params.token,
            params.amountIn,
            params.fillDeadline,
            params.terms,
            _nextSeq()
        );
        escrow.lock(
            Escrow.LockParams({
                id: params.intentId,
                sender: params.maker,
                receiver: params.solver,
                token: params.token,
                amount: params.amountIn,
                hashlock: params.hashlock,
                timelock: params.timelock,
                permit: params.permit
            })
        );
    }

    /// @notice Records that the maker's beneficiary was paid.
    /// @dev Open after the fill deadline too, as long as nobody cancelled: the payment it records is a fact, and
    /// refusing it would only let the maker be paid twice.
    function fill(bytes32 intentId, bytes32 payoutRef) external onlyRole(RELAYER_ROLE) {
        Intent storage intent = _inState(intentId, State.Created);
        intent.state = State.Filled;
        intent.payoutRef = payoutRef;
        emit Filled(intentId, intent.solver, payoutRef, _nextSeq());
    }

    /// @notice Reveals the preimage and releases the funds to the solver; strictly before the timelock.
    function settle(bytes32 intentId, bytes32 preimage) external onlyRole(RELAYER_ROLE) {
        Intent storage intent = _inState(intentId, State.Filled);
        intent.state = State.Settled;
        emit Settled(intentId, intent.solver, intent.amountIn, _nextSeq());
        if (escrow.slots(intentId).state != Escrow.SlotState.Released) {
            escrow.release(intentId, preimage);
        }
    }

    /// @notice Returns the funds of an intent that was not filled in time; anyone may call it.
    function cancel(bytes32 intentId) external {
        Intent storage intent = _inState(intentId, State.Created);
        if (block.timestamp < intent.fillDeadline) {
            revert FillDeadlineNotPassed(intent.fillDeadline, block.timestamp);
        }
        intent.state = State.Cancelled;
        emit Cancelled(intentId, intent.maker, intent.amountIn, _nextSeq());
        Escrow.SlotState slot = escrow.slots(intentId).state;
        if (slot == Escrow.SlotState.Released) revert FundsReleased(intentId);
        if (slot == Escrow.SlotState.Locked) escrow.cancel(intentId);
    }

    /// @notice Where an intent stands.
    function stateOf(bytes32 intentId) external view returns (State) {
        return _intents[intentId].state;
    }

    /// @notice All that is recorded of an intent.
    function intents(bytes32 intentId) external view returns (Intent memory) {
        return _intents[intentId];
    }

    function _inState(bytes32 intentId, State wanted) private view returns (Intent storage intent) {
        intent = _intents[intentId];
        if (intent.state != wanted) revert WrongState(intentId, intent.state);
    }
}
