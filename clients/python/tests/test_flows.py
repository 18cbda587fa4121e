"""The feed and the chain, without any input and output: a flow is told what its requests are answered with."""

from __future__ import annotations

import json
import unittest
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import dvp
from dvp._events import follow
from dvp._transport import Item, NoReply, Pause, Reply, Request, Transport
from dvp.permit import sign_permit
from dvp.receipt import ANCHORED, verify

Asked = list[Any]


def drive(flow: Any, answer: Callable[[Request], Any], count: int = 0) -> tuple[list[Any], Any]:
    """The first results of a stream, or the result of a flow."""
    items: list[Any] = []
    told: Any = None
    try:
        while True:
            effect = flow.send(told)
            told = None
            if isinstance(effect, Item):
                items.append(effect.value)
                if len(items) == count:
                    return items, None
            elif isinstance(effect, Request):
                value = answer(effect)
                told = (
                    value
                    if isinstance(value, NoReply)
                    else Reply(200, {"content-type": "application/json"}, json.dumps(value).encode())
                )
            else:
                assert isinstance(effect, Pause)
    except StopIteration as end:
        return items, end.value


def event(intent: str, sequence: int, terminal: bool = False) -> dict[str, object]:
    return {
        "object": "event",
        "id": f"{intent}_{sequence}",
        "intentId": intent,
        "sequence": sequence,
        "isTerminal": terminal,
    }


def page(cursor: str, *data: dict[str, object]) -> dict[str, object]:
    return {"data": list(data), "hasMore": False, "nextCursor": cursor}


class Feed(unittest.TestCase):
    def first(
        self, count: int, *pages: Any, since: str | None = None, type: Any = None, grace: float = 5.0
    ) -> tuple[list[tuple[str, str | None]], list[dict[str, str]]]:
        asked: list[dict[str, str]] = []

        def answer(request: Request) -> Any:
            asked.append(dict(parse_qsl(urlsplit(request.url).query)))
            return pages[min(len(asked), len(pages)) - 1]

        transport = Transport("http://service", "k", None, 0.1)
        items, _ = drive(follow(transport, since, type, None, grace), answer, count)
        return [(followed.event["id"], followed.cursor) for followed in items], asked

    def test_it_goes_from_page_to_page_and_its_cursor_leaves_nothing_out(self) -> None:
        events, asked = self.first(3, page("c1", event("a", 1), event("b", 1)), page("c2", event("a", 2)), since="c0")
        self.assertEqual(events, [("a_1", "c0"), ("b_1", "c1"), ("a_2", "c2")])
        self.assertEqual(asked, [{"since": since, "limit": "100", "wait": "8"} for since in ("c0", "c1")])

    def test_it_goes_on_after_any_outage(self) -> None:
        outage = [NoReply("ConnectError")] * 200
        with self.assertLogs("dvp"):
            self.assertEqual(self.first(1, *outage, page("c1", event("a", 1)))[0], [("a_1", "c1")])

    def test_missing_events_come_before_the_ones_that_follow_them(self) -> None:
        events, asked = self.first(
            6,
            page("c1", event("a", 1), event("b", 7), event("a", 4)),
            page("r1", event("a", 1), event("a", 3)),
            page("r2", event("a", 1), event("a", 2), event("a", 3), event("a", 4)),
            # A late one that was given already is left out.
            page("c2", event("a", 3), event("a", 5)),
        )
        self.assertEqual([name for name, _ in events], ["a_1", "b_7", "a_2", "a_3", "a_4", "a_5"])
        self.assertEqual(asked[1], {"intentId": "a", "limit": "100"})

    def test_it_says_which_events_it_cannot_get_and_goes_on(self) -> None:
        pages = page("c1", event("a", 1)), page("c2", event("a", 4)), page("r1", event("a", 3))
        transport = Transport("http://service", "k", None, 0.1)
        answers = iter(pages)
        items, _ = drive(follow(transport, None, None, None, -1.0), lambda _: next(answers), 3)
        self.assertEqual(
            [(followed.event["id"], followed.cursor, followed.missing) for followed in items],
            [("a_1", "c1", []), ("a_3", "c1", []), ("a_4", "c2", [2])],
        )

    def test_there_is_no_gap_in_one_type_and_in_made_up_events(self) -> None:
        pages = page("c1", event("sample_a", 1), event("sample_a", 5), event("a", 5, True), event("a", 8))
        self.assertEqual(len(self.first(4, pages)[1]), 1)
        some = page("c1", event("a", 1), event("a", 5))
        self.assertEqual(len(self.first(2, some, type="payout.completed")[1]), 1)

    def test_a_page_that_leads_nowhere_is_not_taken(self) -> None:
        wrong: Any
        for wrong in (page("c0", event("a", 1)), {"data": {}, "nextCursor": "c1"}, {"data": []}):
            with self.assertRaises(dvp.UnexpectedAnswerError):
                self.first(2, wrong, since="c0")


ANCHOR, SUBMITTER = "0x" + "22" * 20, "0x" + "33" * 20
CHAIN: dvp.api.Chain = {
    "name": "test",
    "chainId": 5,
    "contracts": {"anchor": ANCHOR, "escrow": "0x" + "66" * 20},
    "anchorSubmitters": [SUBMITTER],
    "permitDomain": {"name": "Permit", "version": "1", "chainId": 5, "verifyingContract": "0x" + "55" * 20},
}
RECEIPT: dvp.api.Receipt = {
    "_schemaVersion": "svc-receipt-1",
    "clientReference": "o-1",
    "provider": "p",
    "offramp": None,
    "fees": [],
    "payout": {
        "amountMinor": "5",
        "currency": "EUR",
        "exponent": 2,
        "bankRef": None,
        "occurredAt": "2026-11-29T16:50:02Z",
    },
    "issuedAt": "2026-11-29T16:50:03.000Z",
}


def word(address: str) -> str:
    return "0x" + address[2:].rjust(64, "0")


LOG: dict[str, Any] = {
    "address": ANCHOR,
    "removed": False,
    "blockNumber": "0x10",
    "transactionHash": "0xaa",
    "topics": [ANCHORED, dvp.content_hash(RECEIPT), word(SUBMITTER)],
}
GOOD: dict[str, Any] = {
    "eth_chainId": "0x5",
    "eth_getLogs": [LOG],
    "eth_getBlockByNumber": {"number": "0x10"},
    "eth_getTransactionReceipt": {"blockNumber": "0x10"},
    "eth_blockNumber": "0x14",
    "eth_call": word("0x07"),
}


def node(results: Mapping[str, Any], asked: Asked) -> Callable[[Request], Any]:
    def answer(request: Request) -> Any:
        call = json.loads(request.content)
        asked.append((call["method"], call["params"]))
        result = results.get(call["method"])
        result = result() if callable(result) else result
        return {"error": {"code": -32601}} if result == "none" else {"result": result}

    return answer


class Chain(unittest.TestCase):
    def verified(
        self,
        receipt: dvp.api.Receipt = RECEIPT,
        depth: int | None = None,
        wait: float = 0.0,
        chain: dvp.api.Chain = CHAIN,
        **results: Any,
    ) -> tuple[Any, Asked]:
        asked: Asked = []
        flow = verify(receipt, [chain], {"test": "http://node/hidden"}, depth, wait)
        return drive(flow, node(GOOD | results, asked))[1], asked

    def test_a_final_anchor_of_an_account_that_counts_verifies(self) -> None:
        found, asked = self.verified()
        self.assertIsInstance(found, dvp.Verified)
        self.assertEqual((found.contract, found.submitter, found.block_number), (ANCHOR, SUBMITTER, 16))
        query = {
            "fromBlock": "0x0",
            "toBlock": "latest",
            "address": [ANCHOR],
            "topics": [*LOG["topics"][:2], [LOG["topics"][2]]],
        }
        self.assertEqual(dict(asked)["eth_getLogs"], [query])
        anchored = cast(
            dvp.api.Receipt,
            {**RECEIPT, "txHash": "0x11", "finality": {"txHash": "0x11", "contractAddress": ANCHOR, "chainId": 5}},
        )
        found, asked = self.verified(anchored)
        self.assertTrue(found.verified)
        self.assertEqual(dict(asked)["eth_getLogs"][0]["fromBlock"], "0x10")

    def test_other_logs_prove_nothing(self) -> None:
        topics = LOG["topics"]
        lies = [
            LOG | {"topics": [*topics[:2], word("0x" + "44" * 20)]},
            LOG | {"topics": [topics[0], "0x00", topics[2]]},
            LOG | {"address": SUBMITTER},
            LOG | {"removed": True},
            LOG | {"topics": []},
            None,
            "x",
        ]
        self.assertEqual(self.verified(eth_getLogs=lies)[0].problem, "not_anchored")
        nobody = cast(dvp.api.Chain, {**CHAIN, "anchorSubmitters": []})
        self.assertEqual(self.verified(chain=nobody)[0].problem, "not_anchored")

    def test_an_anchor_that_is_not_final_is_waited_for(self) -> None:
        for block in ({"number": "0xf"}, None):
            self.assertEqual(self.verified(eth_getBlockByNumber=block)[0].problem, "not_final")
        numbers = iter(("0xe", "0xf", "0x10"))
        self.assertTrue(self.verified(wait=60.0, eth_getBlockByNumber=lambda: {"number": next(numbers)})[0].verified)
        self.assertTrue(self.verified(depth=4)[0].verified)
        self.assertFalse(self.verified(depth=5)[0].verified)

    def test_an_erased_receipt_is_not_verified(self) -> None:
        erased = cast(dvp.api.Receipt, {**RECEIPT, "erased": {"fields": ["clientReference"], "contentHash": "0x00"}})
        self.assertEqual(self.verified(erased)[0].problem, "erased")

    def test_a_node_of_another_chain_is_not_believed_and_no_message_has_its_address(self) -> None:
        wrong: dict[str, Any]
        for wrong in ({"eth_chainId": "0x6"}, {"eth_getLogs": {}}, {"eth_chainId": "x"}, {"eth_getLogs": "none"}):
            with self.assertRaises(dvp.ChainError) as failed:
                self.verified(**wrong)
            self.assertNotIn("hidden", str(failed.exception))
        with self.assertRaisesRegex(dvp.ChainError, "no node"):
            drive(verify(RECEIPT, [CHAIN], {}, None, 0.0), node(GOOD, []))
        with self.assertRaisesRegex(dvp.ChainError, "ConnectError"):
            drive(
                verify(RECEIPT, [CHAIN], {"test": "http://node/hidden"}, None, 0.0), lambda _: NoReply("ConnectError")
            )

    def test_a_permit_is_what_the_wallet_signs(self) -> None:
        token = dvp.erc20("USDC", address="0x" + "77" * 20)

        def permit(sign: dvp.Signer) -> dvp.api.Permit:
            return sign_permit(CHAIN, 1000.0, token, "5", sign, "9", None)

        made = permit(lambda _: b"\xab" * 65)
        self.assertEqual(
            (made["nonce"], made["spender"], made["deadline"], made["signature"]),
            ("9", "0x" + "66" * 20, 1000 + 6 * 3600, "0x" + "ab" * 65),
        )
        with self.assertRaisesRegex(dvp.DvpError, "65 bytes"):
            permit(lambda _: "0x")
