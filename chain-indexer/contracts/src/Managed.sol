// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {
    AccessControlDefaultAdminRules
} from "@openzeppelin/contracts/access/extensions/AccessControlDefaultAdminRules.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Sequenced} from "./Sequenced.sol";

/// @title Roles, a pause and batches
/// @notice The administrator is one account, handed over in two steps with a delay. It grants and revokes the other
/// roles. A pauser may pause, only the administrator ends a pause. What a pause stops is the inheriting contract's
/// to say; it never stops a way out.
abstract contract Managed is AccessControlDefaultAdminRules, ReentrancyGuardTransient, Sequenced {
    bytes32 public constant RELAYER_ROLE = keccak256("RELAYER_ROLE");
    bytes32 public constant PAUSER_ROLE = keccak256("PAUSER_ROLE");

    /// @notice What became of an item of a batch.
    enum Outcome {
        NotTried, // the gas was short, and it changed nothing
        Failed, // it was undone
        Done
    }

    /// @dev Gas that must be left beside an item's own: to note its failure and to return.
    uint256 private constant ITEM_RESERVE = 40_000;
    /// @dev What the return of one item's outcome and reason costs.
    uint256 private constant RETURN_RESERVE = 700;
    /// @dev Bytes of an item's revert reason that are kept. A token can return megabytes, and copying costs the batch.
    uint256 private constant REASON_MAX = 132;

    /// @notice Whether new obligations are refused.
    bool public paused;

    /// @notice A role was granted or revoked. None is emitted while the contract is being created.
    event RoleSet(bytes32 indexed role, address indexed account, bool granted, uint64 seq);
    event PauseSet(bool paused, address indexed by, uint64 seq);
    /// @notice An item of a batch was tried and undone. `reason` is the first bytes of its revert data, empty when it
    /// gave none or ran out of gas.
    event ItemFailed(bytes32 indexed id, bytes4 indexed call, bytes reason, uint64 seq);

    error PausedNow();
    error OnlyItself(address caller);
    error BatchOutOfGas(bytes32 id, uint256 needed, uint256 left);

    modifier whenNotPaused() {
        if (paused) revert PausedNow();
        _;
    }

    /// @dev For the items of a batch, whose caller was checked.
    modifier onlySelf() {
        if (msg.sender != address(this)) revert OnlyItself(msg.sender);
        _;
    }

    constructor(address admin, uint48 adminDelay) AccessControlDefaultAdminRules(adminDelay, admin) {}

    /// @notice For a pauser or the administrator.
    function pause() external {
        if (!hasRole(DEFAULT_ADMIN_ROLE, msg.sender)) _checkRole(PAUSER_ROLE);
        _setPaused(true);
    }

    /// @notice For the administrator alone: whoever can pause in a hurry need not be trusted to resume.
    function unpause() external onlyRole(DEFAULT_ADMIN_ROLE) {
        _setPaused(false);
    }

    /// @dev The gas that must be left to try an item of a batch: its own with the 1/64 that EIP-150 keeps back at every
    /// call, what notes its failure, and what returns the outcomes of all.
    function _gasFor(uint256 itemGas, uint256 items) internal pure returns (uint256) {
        return itemGas + itemGas / 63 + ITEM_RESERVE + items * RETURN_RESERVE;
    }

    /// @dev Runs an item as a call of this contract to itself, so that whatever makes it fail undoes it alone.
    /// The item gets exactly `itemGas`: with less than `needed` left it is not tried, so that no item fails because
    /// another one, or a caller who is short of gas, used its share. One that must be tried reverts the batch instead.
    function _attempt(bytes32 id, bytes memory item, uint256 itemGas, uint256 needed, bool must)
        internal
        returns (Outcome outcome, bytes memory reason)
    {
        uint256 left = gasleft();
        if (left < needed) {
            if (must) revert BatchOutOfGas(id, needed, left);
            return (Outcome.NotTried, reason);
        }
        bool done;
        assembly ("memory-safe") {
            done := call(itemGas, address(), 0, add(item, 0x20), mload(item), 0, 0)
            if iszero(done) {
                let size := returndatasize()
                if gt(size, REASON_MAX) { size := REASON_MAX }
                reason := mload(0x40)
                mstore(reason, size)
                returndatacopy(add(reason, 0x20), 0, size)
                mstore(0x40, and(add(add(reason, size), 0x3f), not(0x1f)))
            }
        }
        if (done) return (Outcome.Done, reason);
        emit ItemFailed(id, bytes4(item), reason, _nextSeq());
        return (Outcome.Failed, reason);
    }

    function _setPaused(bool to) private {
        paused = to;
        emit PauseSet(to, msg.sender, _nextSeq());
    }

    function _grantRole(bytes32 role, address account) internal override returns (bool granted) {
        granted = super._grantRole(role, account);
        if (granted) _tellRole(role, account, true);
    }

    function _revokeRole(bytes32 role, address account) internal override returns (bool revoked) {
        revoked = super._revokeRole(role, account);
        if (revoked) _tellRole(role, account, false);
    }

    /// @dev A contract has no code while it is created: numbers begin when all contracts are there.
    function _tellRole(bytes32 role, address account, bool granted) private {
        if (address(this).code.length > 0) emit RoleSet(role, account, granted, _nextSeq());
    }
}
