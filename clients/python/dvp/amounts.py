"""Amounts are texts of minor units; nothing here is ever a float."""
from __future__ import annotations

import re

from .api import AssetDescriptor


def to_minor(decimal: str, exponent: int) -> str:
    """`"12.5"` with the exponent 2 is `"1250"`. Digits beyond the exponent are refused: nothing is rounded."""
    _check(exponent)
    if not isinstance(decimal, str):
        raise TypeError('an amount is a text such as "12.50", never a number')
    parts = re.fullmatch(r"([0-9]+)(?:\.([0-9]+))?", decimal)
    if parts is None:
        raise ValueError(f'{decimal!r} is not an amount such as "12.50"')
    fraction = parts[2] or ""
    if len(fraction) > exponent:
        raise ValueError(f"{decimal} has more than {exponent} decimal places")
    return str(int(parts[1] + fraction.ljust(exponent, "0")))


def from_minor(minor: str | int, exponent: int) -> str:
    """`"1250"` with the exponent 2 is `"12.50"`."""
    _check(exponent)
    if not isinstance(minor, (str, int)) or not re.fullmatch("[0-9]+", str(minor)):
        raise ValueError("minor units are an int or a text of digits")
    digits = str(int(minor)).rjust(exponent + 1, "0")
    return f"{digits[:-exponent]}.{digits[-exponent:]}" if exponent else digits


def _check(exponent: int) -> None:
    if type(exponent) is not int or not 0 <= exponent <= 38:
        raise ValueError("an exponent is a whole number from 0 to 38")


def fiat(currency: str) -> AssetDescriptor:
    """Money: `fiat("USD")`."""
    return {"type": "fiat", "symbol": currency}


def erc20(symbol: str, *, address: str | None = None, chain: str | None = None) -> AssetDescriptor:
    """A token: `erc20("USDC", chain="base")`."""
    return {"type": "erc20", "symbol": symbol, "address": address, "chain": chain}


def native(symbol: str, *, chain: str | None = None) -> AssetDescriptor:
    """A chain's coin: `native("ETH", chain="base")`."""
    return {"type": "native", "symbol": symbol, "chain": chain}
