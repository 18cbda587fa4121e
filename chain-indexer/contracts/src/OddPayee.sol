// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// @title A contract that receives the coin badly, for tests
contract OddPayee {
    enum Oddity {
        None,
        Refuses,
        BurnsGas,
        ReturnsMegabytes,
        RevertsWithMegabytes,
        Reenters
    }

    Oddity public oddity;
    /// @notice Calls back that succeeded.
    uint256 public reentered;
    address private _target;
    bytes private _call;

    receive() external payable {
        if (oddity == Oddity.Refuses) revert("refused");
        if (oddity == Oddity.BurnsGas) {
            while (true) {}
        }
        if (oddity == Oddity.ReturnsMegabytes) {
            assembly {
                return(0, 65536)
            }
        }
        if (oddity == Oddity.RevertsWithMegabytes) {
            assembly {
                revert(0, 65536)
            }
        }
        if (oddity == Oddity.Reenters) {
            (bool through,) = _target.call(_call);
            if (through) reentered += 1;
        }
    }

    function turn(Oddity to, address target, bytes calldata call_) external {
        oddity = to;
        _target = target;
        _call = call_;
    }

    /// @notice Makes a call as this contract, with the coin sent along.
    function act(address target, bytes calldata call_) external payable {
        (bool through, bytes memory reason) = target.call{value: msg.value}(call_);
        if (!through) {
            assembly ("memory-safe") {
                revert(add(reason, 0x20), mload(reason))
            }
        }
    }
}
