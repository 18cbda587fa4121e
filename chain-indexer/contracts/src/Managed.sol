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

    /// @dev Gas that must be left beside an item's own: to note its failure and to return.
    uint256 private constant ITEM_RESERVE = 40_000;
    /// @dev Bytes of an item's revert reason that are kept. A token can return megabytes, and copying costs the batch.
    uint256 private constant REASON_MAX = 132;

    /// @notice Whether new obligations are refused.
    bool public paused;

    /// @notice A role was granted or revoked. None is emitted while the contract is being created.
    event RoleSet(bytes32 indexed role, address indexed account, bool granted, uint64 seq);
    event PauseSet(bool paused, address indexed by, uint64 seq);
    /// @notice An item of a batch changed nothing. `reason` is the first bytes of its revert data, empty when it ran
    /// out of gas.
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

    /// @dev Runs an item as a call of this contract to itself, so that whatever makes it fail undoes it alone.
    /// The item gets exactly `itemGas`: when less is left the whole batch reverts, so that no item fails because
    /// another one, or a caller who is short of gas, used its share (EIP-150 keeps 1/64 back at every call).
    function _attempt(bytes32 id, bytes memory item, uint256 itemGas) internal returns (bytes memory reason) {
        uint256 left = gasleft();
        uint256 needed = itemGas + itemGas / 63 + ITEM_RESERVE;
        if (left < needed) revert BatchOutOfGas(id, needed, left);
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
        // An item without a reason has failed too: the caller tells the two apart by the events alone, as anyone does.
        if (!done) emit ItemFailed(id, bytes4(item), reason, _nextSeq());
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
