// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {Coin} from "./Coin.sol";

/// @title A wrapped coin for sandboxes and tests, with the functions of WETH9
/// @notice Anyone may mint. Minted coin is unwrapped only as far as this contract holds coin: a private node gives it some.
contract TestCoin is ERC20("Wrapped Ether", "WETH") {
    event Deposit(address indexed account, uint256 amount);
    event Withdrawal(address indexed account, uint256 amount);

    error CoinRefused(address account);

    receive() external payable {
        deposit();
    }

    function deposit() public payable {
        _mint(msg.sender, msg.value);
        emit Deposit(msg.sender, msg.value);
    }

    function withdraw(uint256 amount) external {
        _burn(msg.sender, amount);
        emit Withdrawal(msg.sender, amount);
        // WETH9 uses `transfer`, which leaves the receiver 2300 gas.
        if (!Coin.send(msg.sender, amount, 0)) revert CoinRefused(msg.sender);
    }

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }
}
