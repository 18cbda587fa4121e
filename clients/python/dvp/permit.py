"""Permits: the wallet's signature that lets the escrow take an intent's input."""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .api import AssetDescriptor, Chain, Permit
from .errors import DvpError

# Signs EIP-712 typed data. eth-account: `lambda data: Account.sign_typed_data(key, full_message=data).signature`.
Signer = Callable[[dict[str, Any]], str | bytes]


def _fields(*pairs: str) -> list[dict[str, str]]:
    return [dict(zip(("name", "type"), pair.split(" "))) for pair in pairs]


def permit_typed_data(chain: Chain, token: str, amount_minor: str, nonce: str, deadline: int) -> dict[str, Any]:
    """The EIP-712 typed data of a permit."""
    domain = chain["permitDomain"]
    return {
        "domain": {name: domain[name] for name in ("name", "version", "chainId", "verifyingContract")},
        "primaryType": "PermitSingle",
        "types": {
            "EIP712Domain": _fields("name string", "version string", "chainId uint256", "verifyingContract address"),
            "PermitSingle": _fields("token address", "amount uint256", "spender address", "nonce uint256",
                                    "deadline uint256"),
        },
        "message": {"token": token, "amount": amount_minor, "spender": chain["contracts"]["escrow"], "nonce": nonce,
                    "deadline": deadline},
    }


def chain_of(asset: AssetDescriptor, chains: Sequence[Chain]) -> Chain:
    """The chain that an asset is on. A token without one is that of the only chain."""
    name = asset.get("chain")
    found = [chain for chain in chains if name in (None, chain["name"])]
    if len(found) != 1:
        raise DvpError("asset.chain has to name one of the chains")
    return found[0]


def sign_permit(chain: Chain, now: float, asset: AssetDescriptor, amount_minor: str, sign: Signer, nonce: str,
                deadline: int | None) -> Permit:
    token = asset.get("address")
    if token is None:
        raise DvpError("asset.address has to be the token that is paid with")
    until = int(now) + 6 * 3600 if deadline is None else deadline
    data = permit_typed_data(chain, token, str(amount_minor), nonce, until)
    signed = sign(data)
    signature = signed if isinstance(signed, str) else "0x" + bytes(signed).hex()
    if not re.fullmatch("0x([0-9a-fA-F]{2}){65,2048}", signature):
        raise DvpError("the signer gives no signature of 65 bytes or more")
    return {"token": token, "amountMinor": str(amount_minor), "spender": chain["contracts"]["escrow"],
            "nonce": nonce, "deadline": until, "signature": signature}
