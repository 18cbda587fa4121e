"""Compares statement.camt053 and statement.mt940 of a directory, as others read them, with its statement.json."""

import json
import sys
from decimal import Decimal

import mt940
from pycamt.parser import Camt053Parser

folder = sys.argv[1]
MONEY = ("USD", "EUR")


def exact(minor, decimals):
    return Decimal(minor).scaleb(-decimals)


wanted = []
for one in json.load(open(f"{folder}/statement.json"))["statements"]:
    amounts = [one["openingMinor"], one["closingMinor"], *(entry["amountMinor"] for entry in one["entries"])]
    if one["asset"] in MONEY and all("." not in amount for amount in amounts):
        opening, closing, *entries = (exact(amount, one["decimals"]) for amount in amounts)
        wanted.append((one["asset"], opening, closing, entries))
assert wanted and any(entries for *_, entries in wanted), "the sandbox has no statement of money with an entry"

camt = Camt053Parser.from_file(f"{folder}/statement.camt053")
balances = [
    (one["Currency"], Decimal(one["OpeningBalance"]), Decimal(one["ClosingBalance"]))
    for one in camt.get_statement_info()
]
assert balances == [one[:3] for one in wanted], (balances, wanted)
signs = {"CRDT": 1, "DBIT": -1}
entries = [signs[one["CreditDebitIndicator"]] * Decimal(one["Amount"]) for one in camt.get_transactions()]
assert entries == [entry for one in wanted for entry in one[3]], entries

read = []
for block in open(f"{folder}/statement.mt940", newline="").read().split("\r\n-\r\n"):
    if block.strip():
        statement = mt940.parse(block)
        opening, closing = (statement.data[f"final_{name}_balance"].amount for name in ("opening", "closing"))
        entries = [entry.data["amount"].amount for entry in statement]
        read.append((opening.currency, opening.amount, closing.amount, entries))
assert read == wanted, (read, wanted)
print(f"mt-940 and pycamt read {len(wanted)} statements to the balances of the ledger")
