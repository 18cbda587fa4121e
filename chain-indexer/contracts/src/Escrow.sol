// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {CoinGate} from "./CoinGate.sol";
import {Orders} from "./Orders.sol";
import {Permit} from "./Permit.sol";
import {Sequenced} from "./Sequenced.sol";

/// @title Hash-time-locked escrow
/// @notice Holds the maker's tokens until the preimage is shown (to the solver, strictly before the timelock) or the
/// timelock is reached (back to the maker). Both payees are fixed when the funds are locked, therefore anyone may
/// call `release` and `refund`.
/// @dev Nobody administers this contract: the settler is the only other caller, for ever, and it cannot name a payee
/// after the lock. What is trusted: a permit names neither the id nor the solver, so whoever the settler lets create
/// chooses them, within the settler's list of receivers.
contract Escrow is ReentrancyGuardTransient, Sequenced {
    using Orders for Orders.Order;

    /// @notice Where an id stands, here and in the settler.
    enum Slot {
        None,
        Locked, // created
        Filled, // filled, still locked
        Released, // filled, then released by whoever had the preimage
        Settled, // filled and settled, the solver paid
        Refunded, // created, then refunded at the timelock
        FilledRefunded, // filled, then refunded at the timelock
        Cancelled, // cancelled, the maker paid back
        Swapped // created, filled and settled at once, nothing was held
    }

    /// @notice The parts of a permit that do not follow from the order: the token is the order's, the spender this
    /// contract. Without a signature the order's input is the coin that the maker has deposited under its id.
    struct PermitInput {
        uint256 amount;
        uint256 nonce;
        uint256 deadline;
        bytes signature;
    }

    /// @dev What a token may use to pay out and to say its balances when an order ends; `withdraw` has no such limit.
    uint256 private constant PUSH_GAS = 260_000;
    /// @dev What notes a debt.
    uint256 private constant DEBT_GAS = 40_000;
    uint256 private constant SLOT_MASK = 0xff;

    /// @notice Where permits are used up.
    Permit public immutable permit;
    /// @notice The only caller of what is not open to anyone.
    address public immutable settler;
    /// @notice Where makers deposit the chain's coin; zero on a chain whose coin is not dealt in.
    CoinGate public immutable gate;

    /// @dev The first 248 bits of the commitment to the order's terms, then the slot. Never empty again.
    mapping(bytes32 id => uint256 word) private _words;
    /// @notice What was not paid when an order ended, because the token moved less at that moment, or nothing.
    mapping(address account => mapping(address token => uint256)) public owed;

    event Locked(
        bytes32 indexed id,
        address indexed sender,
        address indexed receiver,
        address token,
        uint256 amount,
        bytes32 hashlock,
        uint64 timelock,
        uint64 seq
    );
    event Released(bytes32 indexed id, bytes32 preimage, uint64 seq);
    event Refunded(bytes32 indexed id, uint64 seq);
    /// @notice The order ended, the token did not pay this amount, and `withdraw` pays once it does.
    event Owed(bytes32 indexed id, address indexed account, address token, uint256 amount, uint64 seq);
    event Withdrawn(address indexed account, address token, uint256 amount, uint64 seq);

    error OnlySettler(address caller);
    error OnlyItself(address caller);
    error WrongState(bytes32 id, Slot slot);
    error WrongTerms(bytes32 id);
    error ZeroAmount();
    error TimelockReached(uint64 timelock, uint256 timestamp);
    error TimelockNotReached(uint64 timelock, uint256 timestamp);
    error WrongPreimage(bytes32 id);
    error AmountNotReceived(uint256 expected, uint256 received);
    error AmountNotPaid(uint256 expected, uint256 paid);
    error NothingOwed(address account, address token);
    error PushOutOfGas(uint256 needed, uint256 left);
    error NoGate();

    modifier onlySettler() {
        if (msg.sender != settler) revert OnlySettler(msg.sender);
        _;
    }

    constructor(Permit permit_, address settler_, CoinGate gate_) {
        permit = permit_;
        settler = settler_;
        gate = gate_;
    }

    /// @notice Pulls the maker's tokens with a permit, or the coin it has deposited, and locks them under `id`, which is
    /// used once only.
    /// @dev A token that delivers another amount than asked (fee on transfer, rebasing) is refused.
    function lock(bytes32 id, Orders.Order calldata order, PermitInput calldata input)
        external
        onlySettler
        nonReentrant
    {
        _claim(id, order.amount);
        if (block.timestamp >= order.timelock) revert TimelockReached(order.timelock, block.timestamp);
        _set(id, order.commitment(), Slot.Locked);
        emit Locked(
            id, order.maker, order.solver, order.token, order.amount, order.hashlock, order.timelock, _nextSeq()
        );
        _pull(id, order.token, order.maker, address(this), order.amount, input);
    }

    /// @notice Moves the maker's tokens to the solver with a permit, or the coin it has deposited, for a settler that delivers in the same call.
    function swap(
        bytes32 id,
        address maker,
        address solver,
        address token,
        uint256 amount,
        bytes32 terms,
        PermitInput calldata input
    ) external onlySettler nonReentrant {
        _claim(id, amount);
        _set(id, keccak256(abi.encode(maker, solver, token, amount, terms)), Slot.Swapped);
        _pull(id, token, maker, solver, amount, input);
    }

    /// @notice The commitment: from here on only the preimage or the timelock ends the lock, or two operators.
    function fill(bytes32 id, Orders.Order calldata order) external onlySettler nonReentrant {
        bytes32 commitment = _expect(id, order, Slot.Locked);
        _set(id, commitment, Slot.Filled);
    }

    /// @notice Releases to the solver, or follows a release that somebody else has made.
    function settle(bytes32 id, Orders.Order calldata order, bytes32 preimage) external onlySettler nonReentrant {
        (Slot slot, bytes32 commitment) = _look(id, order);
        if (slot == Slot.Released) {
            _set(id, commitment, Slot.Settled);
            return;
        }
        if (slot != Slot.Filled) revert WrongState(id, slot);
        _set(id, commitment, Slot.Settled);
        _release(id, order, preimage);
    }

    /// @notice Pays the maker back before the timelock: unfilled for the settler's own reasons, filled when two
    /// operators said so.
    function giveBack(bytes32 id, Orders.Order calldata order, bool filled) external onlySettler nonReentrant {
        bytes32 commitment = _expect(id, order, filled ? Slot.Filled : Slot.Locked);
        _set(id, commitment, Slot.Cancelled);
        emit Refunded(id, _nextSeq());
        _push(id, order.token, order.maker, order.amount);
    }

    /// @notice Releases to the solver of a filled order whoever shows the preimage strictly before the timelock.
    function release(bytes32 id, Orders.Order calldata order, bytes32 preimage) external nonReentrant {
        bytes32 commitment = _expect(id, order, Slot.Filled);
        _set(id, commitment, Slot.Released);
        _release(id, order, preimage);
    }

    /// @notice Pays the maker back, at or after the timelock; anyone may call it.
    function refund(bytes32 id, Orders.Order calldata order) external nonReentrant {
        (Slot slot, bytes32 commitment) = _look(id, order);
        if (slot != Slot.Locked && slot != Slot.Filled) revert WrongState(id, slot);
        if (block.timestamp < order.timelock) revert TimelockNotReached(order.timelock, block.timestamp);
        _set(id, commitment, slot == Slot.Locked ? Slot.Refunded : Slot.FilledRefunded);
        emit Refunded(id, _nextSeq());
        _push(id, order.token, order.maker, order.amount);
    }

    /// @notice Pays what an account is owed, to that account; anyone may call it. What the token does not move is owed
    /// still.
    function withdraw(address account, address token) external nonReentrant {
        uint256 amount = owed[account][token];
        if (amount == 0) revert NothingOwed(account, token);
        owed[account][token] = 0;
        uint256 paid = this.pay(token, account, amount);
        if (paid == 0) revert AmountNotPaid(amount, 0);
        if (paid < amount) owed[account][token] = amount - paid;
        emit Withdrawn(account, token, paid, _nextSeq());
    }

    /// @notice For this contract alone: a call to itself, so that a token that takes too much is undone by itself.
    /// @dev What counts is what left this contract, not what the token returns: a rebasing token moves a little less, a
    /// changed one may return anything. More than was owed would be other orders' funds. What the payee got of it is
    /// between the payee and the token.
    function pay(address token, address to, uint256 amount) external returns (uint256 paid) {
        if (msg.sender != address(this)) revert OnlyItself(msg.sender);
        uint256 before = IERC20(token).balanceOf(address(this));
        bytes memory call_ = abi.encodeCall(IERC20.transfer, (to, amount));
        assembly ("memory-safe") {
            pop(call(gas(), token, 0, add(call_, 0x20), mload(call_), 0, 0))
        }
        uint256 left = IERC20(token).balanceOf(address(this));
        paid = before > left ? before - left : 0;
        if (paid > amount) revert AmountNotPaid(amount, paid);
    }

    /// @notice Where an id stands, and the first 248 bits of the commitment to its terms.
    function slotOf(bytes32 id) external view returns (Slot slot, bytes31 commitment) {
        uint256 word = _words[id];
        return (_slot(word), bytes31(bytes32(word)));
    }

    function _claim(bytes32 id, uint256 amount) private view {
        Slot slot = _slot(_words[id]);
        if (slot != Slot.None) revert WrongState(id, slot);
        if (amount == 0) revert ZeroAmount();
    }

    function _look(bytes32 id, Orders.Order calldata order) private view returns (Slot slot, bytes32 commitment) {
        uint256 word = _words[id];
        slot = _slot(word);
        if (slot == Slot.None) revert WrongState(id, slot);
        commitment = order.commitment();
        if ((word ^ uint256(commitment)) > SLOT_MASK) revert WrongTerms(id);
    }

    function _expect(bytes32 id, Orders.Order calldata order, Slot wanted) private view returns (bytes32) {
        (Slot slot, bytes32 commitment) = _look(id, order);
        if (slot != wanted) revert WrongState(id, slot);
        return commitment;
    }

    function _set(bytes32 id, bytes32 commitment, Slot slot) private {
        _words[id] = (uint256(commitment) & ~SLOT_MASK) | uint256(slot);
    }

    function _slot(uint256 word) private pure returns (Slot) {
        return Slot(word & SLOT_MASK);
    }

    function _release(bytes32 id, Orders.Order calldata order, bytes32 preimage) private {
        if (block.timestamp >= order.timelock) revert TimelockReached(order.timelock, block.timestamp);
        if (sha256(abi.encodePacked(preimage)) != order.hashlock) revert WrongPreimage(id);
        emit Released(id, preimage, _nextSeq());
        _push(id, order.token, order.solver, order.amount);
    }

    /// @dev Coin is pulled as wrapped coin, which the gate refuses for an order in another token.
    function _pull(
        bytes32 id,
        address token,
        address maker,
        address to,
        uint256 amount,
        PermitInput calldata input
    ) private {
        uint256 before = IERC20(token).balanceOf(to);
        if (input.signature.length == 0) {
            if (address(gate) == address(0)) revert NoGate();
            gate.claim(id, maker, token, to, amount);
        } else {
            permit.pull(
                maker,
                to,
                amount,
                Permit.PermitSingle({
                    token: token,
                    amount: input.amount,
                    spender: address(this),
                    nonce: input.nonce,
                    deadline: input.deadline
                }),
                input.signature
            );
        }
        uint256 received = IERC20(token).balanceOf(to) - before;
        if (received != amount) revert AmountNotReceived(amount, received);
    }

    /// @dev Pays, and notes as a debt what the token does not: a payee that its token has frozen, or a token that is
    /// paused, takes too much or hides its balances, must not keep an order from ending, for at the timelock the other
    /// side would be paid. A caller short of gas cannot make the token refuse.
    function _push(bytes32 id, address token, address to, uint256 amount) private {
        uint256 needed = PUSH_GAS + PUSH_GAS / 63 + DEBT_GAS;
        if (gasleft() < needed) revert PushOutOfGas(needed, gasleft());
        uint256 unpaid = amount;
        try this.pay{gas: PUSH_GAS}(token, to, amount) returns (uint256 paid) {
            unpaid -= paid;
        } catch {}
        if (unpaid == 0) return;
        owed[to][token] += unpaid;
        emit Owed(id, to, token, unpaid, _nextSeq());
    }
}
