"""Receipts, verified by their own numbers and by their anchor on the chain."""
from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ._chain import Node, node_of, quantity, word
from ._transport import Flow, Pause
from .api import Chain, Receipt
from .errors import ChainError

# keccak256 of Anchored(bytes32,address,uint64)
ANCHORED = "0x0733e5a0823eaea6686da77c223c685bd0c96ab61f1323c5ab21d5ecc786f53a"
EXPONENT_MAX = 38


@dataclass(frozen=True)
class Verified:
    content_hash: str
    chain_id: int
    contract: str
    submitter: str
    tx_hash: str
    block_number: int
    verified: Literal[True] = field(default=True, init=False)


@dataclass(frozen=True)
class NotVerified:
    content_hash: str
    problem: Literal["does_not_add_up", "erased", "not_anchored", "not_final"]
    detail: str
    verified: Literal[False] = field(default=False, init=False)


def canonical(value: object) -> bytes:
    """Canonical JSON: keys sorted, no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def content_hash(receipt: Receipt) -> str:
    """The hash that is anchored; an erased receipt states that of the whole one."""
    if "erased" in receipt:
        return receipt["erased"]["contentHash"]
    body = {name: value for name, value in receipt.items() if name not in ("txHash", "finality")}
    return "0x" + hashlib.sha256(canonical(body)).hexdigest()


def contradiction(receipt: Receipt) -> str | None:
    """How the receipt's own numbers contradict each other; None when they add up."""
    offramp, payout, fees = receipt["offramp"], receipt["payout"], receipt["fees"]
    # Money for money has no conversion.
    if offramp is None:
        return None
    rate = re.fullmatch(r"([0-9]{1,40})(?:\.([0-9]{1,40}))?", offramp["fxRate"])
    amounts = [offramp["fromAmountMinor"], offramp["toAmountMinor"], payout["amountMinor"]]
    exponents = [payout["exponent"], *(fee["exponent"] for fee in fees)]
    if (
        rate is None
        or not all(re.fullmatch("[0-9]{1,39}", text) for text in amounts + [fee["amountMinor"] for fee in fees])
        or not all(type(each) is int and 0 <= each <= EXPONENT_MAX for each in exponents)
    ):
        return "an amount, an exponent or the rate cannot be read"
    taken, stated, paid = map(int, amounts)
    scaled = taken * int(rate[1] + (rate[2] or "")) * 10 ** payout["exponent"]
    known = [fee["exponent"] for fee in fees if fee["currency"] == offramp["fromAsset"]]
    # Without a fee in the input asset the receipt does not say its exponent.
    tried = known[:1] or range(EXPONENT_MAX + 1)
    if all(scaled // 10 ** (len(rate[2] or "") + exponent) != stated for exponent in tried):
        return "offramp.toAmountMinor is not fromAmountMinor times fxRate, rounded down"
    deducted = sum(int(fee["amountMinor"]) for fee in fees
                   if fee["collection"] == "deducted" and fee["currency"] == offramp["toAsset"])
    if stated - deducted != paid:
        return "payout.amountMinor is not toAmountMinor less the fees deducted from it"
    return None


def verify(receipt: Receipt, chains: Sequence[Chain], rpc_urls: Mapping[str, str], finality_depth: int | None,
           wait: float) -> Flow[Verified | NotVerified]:
    digest = content_hash(receipt)
    if "erased" in receipt:
        return NotVerified(digest, "erased", f"erased: {', '.join(receipt['erased']['fields'])}")
    wrong = contradiction(receipt)
    if wrong is not None:
        return NotVerified(digest, "does_not_add_up", wrong)
    chain_id = receipt["finality"]["chainId"] if "finality" in receipt else None
    candidates = [chain for chain in chains if chain["name"] in rpc_urls and chain_id in (None, chain["chainId"])]
    if not candidates:
        raise ChainError("no node of the receipt's chain is given")
    end, pause = time.monotonic() + wait, 1.0
    while True:
        seen = None
        for chain in candidates:
            node = yield from node_of(chain, rpc_urls)
            anchor = yield from _find_anchor(node, chain, digest, receipt.get("txHash"))
            if anchor is None:
                continue
            if anchor.block_number <= (yield from _final_block(node, finality_depth)):
                return anchor
            seen = anchor
        if seen is None:
            return NotVerified(digest, "not_anchored", "no account whose anchors count has anchored this hash")
        if time.monotonic() + pause > end:
            detail = f"anchored in the block {seen.block_number}, which is not final yet"
            return NotVerified(digest, "not_final", detail)
        yield Pause(pause)
        pause = min(2 * pause, 30.0)


def _find_anchor(node: Node, chain: Chain, digest: str, tx_hash: str | None) -> Flow[Verified | None]:
    sets = [chain["contracts"], *chain.get("earlierContracts", [])]
    contracts = [each["anchor"].lower() for each in sets]
    submitters = ["0x" + word(account) for account in chain["anchorSubmitters"]]
    blocks = {"fromBlock": "0x0", "toBlock": "latest"}
    if tx_hash is not None:
        # Nodes of large chains refuse to search all blocks.
        mined = yield from node.call("eth_getTransactionReceipt", tx_hash)
        if not isinstance(mined, dict):
            return None
        at = hex(quantity(mined.get("blockNumber")))
        blocks = {"fromBlock": at, "toBlock": at}
    logs = yield from node.call(
        "eth_getLogs", {**blocks, "address": contracts, "topics": [ANCHORED, digest, submitters]})
    if not isinstance(logs, list):
        raise ChainError(f"the node of {chain['name']} gives no logs")
    for log in logs:
        topics = [str(topic).lower() for topic in log.get("topics", [])] if isinstance(log, dict) else []
        if len(topics) != 3 or log.get("removed") is True or str(log.get("address")).lower() not in contracts:
            continue
        if topics[:2] == [ANCHORED, digest] and topics[2] in submitters:
            return Verified(digest, chain["chainId"], str(log["address"]).lower(), "0x" + topics[2][26:],
                            str(log.get("transactionHash")), quantity(log.get("blockNumber")))
    return None


def _final_block(node: Node, depth: int | None) -> Flow[int]:
    if depth is not None:
        return quantity((yield from node.call("eth_blockNumber"))) - depth
    block = yield from node.call("eth_getBlockByNumber", "finalized", False)
    return quantity(block.get("number")) if isinstance(block, dict) else -1
