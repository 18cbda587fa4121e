// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

/// @title A test token that does what tokens must not and some do
contract OddToken {
    enum Oddity {
        None,
        SaysNothing,
        Refuses,
        OnlySaysSo,
        Reenters,
        Paused,
        KeepsAFee,
        TakesMore,
        BurnsGas,
        RevertsWithMegabytes,
        IsInvalid,
        RevertsWithNothing,
        ReturnsMegabytes,
        RoundsDown,
        HidesBalances
    }

    /// @notice What is odd about transfers from now on.
    Oddity public oddity;
    /// @notice Accounts that neither send nor receive.
    mapping(address account => bool) public frozen;
    /// @notice Whether a call made from within a transfer got through.
    bool public reentered;

    mapping(address owner => uint256) private _held;
    mapping(address owner => mapping(address spender => uint256)) public allowance;
    address private _target;
    bytes private _call;

    function mint(address to, uint256 value) external {
        _held[to] += value;
    }

    function approve(address spender, uint256 value) external returns (bool) {
        allowance[msg.sender][spender] = value;
        return true;
    }

    /// @notice Makes transfers odd; `target` and `call` matter to `Reenters` only.
    function turn(Oddity to, address target, bytes calldata call) external {
        oddity = to;
        _target = target;
        _call = call;
    }

    function freeze(address account, bool to) external {
        frozen[account] = to;
    }

    function balanceOf(address owner) external view returns (uint256) {
        require(oddity != Oddity.HidesBalances, "hidden");
        return _held[owner];
    }

    function decimals() external pure returns (uint8) {
        return 0;
    }

    function transfer(address to, uint256 value) external returns (bool) {
        return _move(msg.sender, to, value);
    }

    function transferFrom(address from, address to, uint256 value) external returns (bool) {
        allowance[from][msg.sender] -= value;
        return _move(from, to, value);
    }

    function _move(address from, address to, uint256 value) private returns (bool) {
        if (oddity == Oddity.Refuses) return false;
        if (oddity == Oddity.OnlySaysSo) return true;
        require(oddity != Oddity.Paused, "paused");
        require(!frozen[from] && !frozen[to], "frozen");
        if (oddity == Oddity.BurnsGas) {
            while (true) {}
        }
        if (oddity == Oddity.RevertsWithMegabytes) {
            assembly {
                revert(0, 65536)
            }
        }
        if (oddity == Oddity.IsInvalid) {
            assembly {
                invalid()
            }
        }
        if (oddity == Oddity.RevertsWithNothing) {
            assembly {
                revert(0, 0)
            }
        }
        if (oddity == Oddity.Reenters) {
            (bool through,) = _target.call(_call);
            reentered = reentered || through;
        }
        if (oddity == Oddity.RoundsDown) value -= 1;
        _held[from] -= value;
        _held[to] += oddity == Oddity.KeepsAFee ? value - 1 : value;
        if (oddity == Oddity.TakesMore) _held[from] -= 1;
        if (oddity == Oddity.ReturnsMegabytes) {
            assembly {
                mstore(0, 1)
                return(0, 262144)
            }
        }
        if (oddity == Oddity.SaysNothing) {
            assembly {
                return(0, 0)
            }
        }
        return true;
    }
}
