// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.37;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";

/// @title A price feed in the shape of an aggregator, for sandboxes and tests: its owner says the price
contract PriceFeed is Ownable {
    uint8 public immutable decimals;
    string public description;
    uint80 private _round;
    int256 private _answer;
    uint256 private _updatedAt;

    event AnswerUpdated(int256 indexed current, uint256 indexed roundId, uint256 updatedAt);

    constructor(string memory description_, uint8 decimals_, address owner_) Ownable(owner_) {
        description = description_;
        decimals = decimals_;
    }

    function submit(int256 answer) external onlyOwner {
        _round += 1;
        _answer = answer;
        _updatedAt = block.timestamp;
        emit AnswerUpdated(answer, _round, block.timestamp);
    }

    function latestRoundData()
        external
        view
        returns (uint80 roundId, int256 answer, uint256 startedAt, uint256 updatedAt, uint80 answeredInRound)
    {
        return (_round, _answer, _updatedAt, _updatedAt, _round);
    }
}
