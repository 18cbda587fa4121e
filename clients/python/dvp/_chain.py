"""Calls of a chain's node."""
from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ._transport import Flow, NoReply, Reply, Request, Secret, parse
from .api import Chain
from .errors import ChainError


class Node:
    """A node of a chain."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._url = Secret(url)  # It often contains a key.

    def call(self, method: str, *params: object) -> Flow[Any]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        reply = yield Request("POST", self._url, {"Content-Type": "application/json"}, body)
        why = reply.why if isinstance(reply, NoReply) else "it gives no result"
        if isinstance(reply, Reply):
            answer = parse(reply)
            if not isinstance(answer, str) and "result" in answer:
                return answer["result"]
            error = {} if isinstance(answer, str) else answer.get("error")
            if isinstance(error, dict) and isinstance(error.get("code"), int):
                why = f"error {error['code']}"
        raise ChainError(f"the node of {self.name} fails at {method}: {why}")


def node_of(chain: Chain, rpc_urls: Mapping[str, str]) -> Flow[Node]:
    """The node of a chain, once it is known to be one of that chain."""
    if chain["name"] not in rpc_urls:
        raise ChainError(f"no node of the chain {chain['name']} is given")
    node = Node(chain["name"], rpc_urls[chain["name"]])
    chain_id = quantity((yield from node.call("eth_chainId")))
    if chain_id != chain["chainId"]:
        raise ChainError(f"the node of {chain['name']} is one of the chain {chain_id}")
    return node


def quantity(value: object) -> int:
    if not isinstance(value, str) or not re.fullmatch("0x[0-9a-fA-F]+", value):
        raise ChainError("a node gives no number")
    return int(value, 16)


def word(address: str) -> str:
    """An address as 32 bytes."""
    if not re.fullmatch("0x[0-9a-fA-F]{40}", address):
        raise ChainError("an address has 40 hex digits")
    return address[2:].lower().rjust(64, "0")
