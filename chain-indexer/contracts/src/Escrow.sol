// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {AccessControl} from "@openzeppelin/contracts/access/AccessControl.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {Permit} from "./Permit.sol";
import {Sequenced} from "./Sequenced.sol";

/// @title Hash-time-locked escrow
/// @notice Holds the sender's tokens until the preimage is shown (to the receiver, strictly before the timelock)
/// or the timelock is reached (back to the sender). Both payees are fixed when the funds are locked, therefore
/// anyone may call `release` and `refund`.
/// @dev What is trusted: a permit names neither the id nor the receiver, so whoever holds SETTLER_ROLE chooses
/// them. The role belongs to `IntentSettler` alone, whose `create` is for the relayer, and receivers come from an
/// allow-list that the admin keeps.
contract Escrow is AccessControl, ReentrancyGuard, Sequenced {
    using SafeERC20 for IERC20;

    enum SlotState {
        None,
        Locked,
        Released,
        Refunded
    }

    /// @param timelock Unix seconds: release strictly before, refund at or after.
    /// @param hashlock SHA-256 of the 32-byte preimage.
    struct Slot {
        address sender;
        uint64 timelock;
        SlotState state;
        address receiver;
        address token;
        uint256 amount;
        bytes32 hashlock;
    }

    struct LockParams {
        bytes32 id;
        address sender;
        address receiver;
        address token;
        uint256 amount;
        bytes32 hashlock;
        uint64 timelock;
        PermitInput permit;
    }

    /// @notice The parts of a permit that do not follow from the lock: the token is the lock's, the spender this
    /// contract.
    struct PermitInput {
        uint256 amount;
        uint256 nonce;
        uint256 deadline;
        bytes signature;
    }

    bytes32 public constant SETTLER_ROLE = keccak256("SETTLER_ROLE");

    /// @notice Where permits are used up.
    Permit public immutable permit;

    /// @notice Wallets to which locked funds may be released.
    mapping(address receiver => bool) public allowedReceivers;

    mapping(bytes32 id => Slot) private _slots;

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

    error IdTaken(bytes32 id);
    error NotLocked(bytes32 id, SlotState state);
    error ReceiverNotAllowed(address receiver);
    error ZeroAmount();
    error TimelockReached(uint64 timelock, uint256 timestamp);
    error TimelockNotReached(uint64 timelock, uint256 timestamp);
    error WrongPreimage(bytes32 id);
    error AmountNotReceived(uint256 expected, uint256 received);

    constructor(Permit permit_, address admin) {
        permit = permit_;
        _grantRole(DEFAULT_ADMIN_ROLE, admin);
    }

    /// @notice Puts a receiver on the allow-list or takes it off; locked slots keep their receiver.
    function setReceiver(address receiver, bool allowed) external onlyRole(DEFAULT_ADMIN_ROLE) {
        allowedReceivers[receiver] = allowed;
    }

    /// @notice Pulls the sender's tokens with a permit and locks them under `params.id`, which is used once only.
    /// @dev A token that delivers another amount than asked (fee on transfer, rebasing) is refused.
    function lock(LockParams calldata params) external onlyRole(SETTLER_ROLE) nonReentrant {
        if (_slots[params.id].state != SlotState.None) revert IdTaken(params.id);
        if (params.amount == 0) revert ZeroAmount();
        if (!allowedReceivers[params.receiver]) revert ReceiverNotAllowed(params.receiver);
        if (block.timestamp >= params.timelock) revert TimelockReached(params.timelock, block.timestamp);
        _slots[params.id] = Slot({
            sender: params.sender,
            timelock: params.timelock,
            state: SlotState.Locked,
            receiver: params.receiver,
            token: params.token,
            amount: params.amount,
            hashlock: params.hashlock
        });
        emit Locked(
            params.id,
            params.sender,
            params.receiver,
            params.token,
            params.amount,
            params.hashlock,
            params.timelock,
            _nextSeq()
        );
        _pull(params);
    }

    /// @notice Shows the preimage and pays the receiver, strictly before the timelock.
    function release(bytes32 id, bytes32 preimage) external nonReentrant {
        Slot storage slot = _locked(id);
        if (block.timestamp >= slot.timelock) revert TimelockReached(slot.timelock, block.timestamp);
        if (sha256(abi.encodePacked(preimage)) != slot.hashlock) revert WrongPreimage(id);
        slot.state = SlotState.Released;
        emit Released(id, preimage, _nextSeq());
        IERC20(slot.token).safeTransfer(slot.receiver, slot.amount);
    }

    /// @notice Pays the sender back, at or after the timelock.
    function refund(bytes32 id) external nonReentrant {
        Slot storage slot = _locked(id);
        if (block.timestamp < slot.timelock) revert TimelockNotReached(slot.timelock, block.timestamp);
        _giveBack(id, slot);
    }

    /// @notice Pays the sender back whatever the time: the settler's word that nothing was delivered.
    function cancel(bytes32 id) external onlyRole(SETTLER_ROLE) nonReentrant {
        _giveBack(id, _locked(id));
    }

    /// @notice What is held under an id, or was.
    function slots(bytes32 id) external view returns (Slot memory) {
        return _slots[id];
    }

    function _locked(bytes32 id) private view returns (Slot storage slot) {
        slot = _slots[id];
        if (slot.state != SlotState.Locked) revert NotLocked(id, slot.state);
    }

    function _giveBack(bytes32 id, Slot storage slot) private {
        slot.state = SlotState.Refunded;
        emit Refunded(id, _nextSeq());
        IERC20(slot.token).safeTransfer(slot.sender, slot.amount);
    }

    function _pull(LockParams calldata params) private {
        IERC20 token = IERC20(params.token);
        uint256 before = token.balanceOf(address(this));
        permit.pull(
            params.sender,
            address(this),
            params.amount,
            Permit.PermitSingle({
                token: params.token,
                amount: params.permit.amount,
                spender: address(this),
                nonce: params.permit.nonce,
                deadline: params.permit.deadline
            }),
            params.permit.signature
        );
        uint256 received = token.balanceOf(address(this)) - before;
        if (received != params.amount) revert AmountNotReceived(params.amount, received);
    }
}
