"""Against a running sandbox: DVP_SANDBOX is its directory."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import ssl
import threading
import time
import unittest
import urllib.request
import uuid
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from unittest.mock import patch

from eth_account import Account

import dvp

from .fake import Answer, Seen, fake

DIRECTORY = os.environ.get("DVP_SANDBOX")


def new() -> str:
    return str(uuid.uuid4())


def intent(**more: Any) -> Any:
    return {
        "intentId": new(),
        "clientReference": new(),
        "user": "me",
        "inputAsset": dvp.fiat("USD"),
        "outputAsset": dvp.fiat("EUR"),
        "inputAmountMinor": dvp.to_minor("100", 2),
        "minOutputAmountMinor": "1",
        "deadline": int(time.time() * 1000) + 3_600_000,
        "settlementType": "offchain",
        "beneficiary": {"account": "bene_straight:dest_10000000", "name": "Jane Doe"},
        **more,
    }


@unittest.skipIf(DIRECTORY is None, "DVP_SANDBOX is not set")
class Sandbox(unittest.TestCase):
    def setUp(self) -> None:
        with open(f"{DIRECTORY}/sandbox.json") as ready:
            self.sandbox = json.load(ready)
        self.client = self.connect(self.sandbox["http"])

    def connect(self, url: str) -> dvp.Client:
        partner, chain = self.sandbox["partner"], self.sandbox["chain"]
        client = dvp.Client(url, partner["apiKey"], partner["signingSecret"], rpc_urls={chain["name"]: chain["rpcUrl"]})
        self.addCleanup(client.close)
        return client

    def test_money_for_money_with_a_firm_quote(self) -> None:
        quote = self.client.firm_quote(
            {
                "requestId": new(),
                "actorId": "me",
                "inputAsset": dvp.fiat("USD"),
                "outputAsset": dvp.fiat("EUR"),
                "amountMinor": dvp.to_minor("100", 2),
                "amountType": "source",
            }
        )
        order = intent(quoteId=quote["quoteId"], minOutputAmountMinor=quote["output"]["amountMinor"])
        answer = self.client.submit_intent(order)
        assert answer["status"] == "accepted"
        execution = self.client.wait_for_execution(answer["reference"], ref_type="executionId")
        self.assertEqual(execution["status"], "completed")
        self.assertEqual(self.client.intent_status(order["intentId"])["status"], "completed")

    def test_a_token_with_a_permit_to_a_receipt_that_the_chain_proves(self) -> None:
        chain = self.sandbox["chain"]
        token, wallet = chain["tokens"][0], Account.from_key(chain["wallets"][1]["privateKey"])
        usdc = dvp.erc20("USDC", chain=chain["name"], address=token["address"])
        amount = dvp.to_minor("100", token["decimals"])

        def sign(data: dict[str, Any]) -> bytes:
            return cast(bytes, wallet.sign_typed_data(full_message=data).signature)

        permit = self.client.sign_permit(asset=usdc, amount_minor=amount, owner=wallet.address, sign=sign)
        order = intent(
            user=wallet.address,
            inputAsset=usdc,
            outputAsset=dvp.fiat("USD"),
            inputAmountMinor=amount,
            permit=permit,
            settlementType="hybrid",
            beneficiary={"account": "000123456789", "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
        )
        self.assertEqual(self.client.submit_intent(order)["status"], "accepted")
        execution = self.client.wait_for_execution(order["clientReference"], anchored=True)
        self.assertEqual(execution["status"], "completed")
        receipt = self.client.receipt(order["clientReference"])
        rpc_urls = {chain["name"]: chain["rpcUrl"]}
        found = dvp.verify_receipt(receipt, chains=self.client.chains(), rpc_urls=rpc_urls, wait=60.0)
        assert isinstance(found, dvp.Verified), found
        self.assertEqual(found.tx_hash, receipt["txHash"])
        receipt["issuedAt"] = "2026-01-01T00:00:00.000Z"
        forged = self.client.verify_receipt(receipt)
        assert isinstance(forged, dvp.NotVerified)
        self.assertEqual(forged.problem, "not_anchored")

    def test_a_rejected_intent_is_an_outcome(self) -> None:
        answer = self.client.submit_intent(intent(minOutputAmountMinor=dvp.to_minor("1000000", 2)))
        assert answer["status"] == "rejected"
        self.assertEqual(answer["reason"], "below_minimum_output")

    def test_an_error_names_the_field_its_page_and_the_request(self) -> None:
        with self.assertRaises(dvp.ApiError) as failed:
            self.client.submit_intent(intent(deadline=1))
        error = failed.exception
        self.assertEqual((error.status, error.code, error.param), (400, "INVALID_PARAMETER", "deadline"))
        self.assertEqual(error.doc_url, f"{self.sandbox['http']}/docs/errors/INVALID_PARAMETER")

    def test_a_clock_that_is_wrong_is_corrected_by_the_service(self) -> None:
        wrong = time.time
        with patch("dvp._transport.time.time", lambda: wrong() + 600), self.assertLogs("dvp") as logs:
            self.assertEqual(self.client.submit_intent(intent())["status"], "accepted")
            self.assertEqual(self.client.submit_intent(intent())["status"], "accepted")
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.output[0], r"clock is (59|60)\d s ahead")

    def test_a_lost_answer_is_got_by_the_same_operation(self) -> None:
        replayed: list[str | None] = []

        def swallow_first(seen: Seen) -> Answer | None:
            headers = {
                name: value for name, value in seen.headers.items() if name.startswith("x-") or name == "content-type"
            }
            request = urllib.request.Request(self.sandbox["http"] + seen.url, seen.body, headers, method=seen.method)
            with urllib.request.urlopen(request) as answer:
                replayed.append(answer.headers["x-idempotency-replayed"])
                body = answer.read()
            return None if len(replayed) == 1 else Answer(answer.status, body, {"Content-Type": "application/json"})

        order = intent()
        with fake(swallow_first) as (url, _), self.assertLogs("dvp"):
            answer = self.connect(url).submit_intent(order)
        assert answer["status"] == "accepted"
        self.assertEqual(replayed, [None, "true"])
        self.assertEqual(self.client.wait_for_execution(order["clientReference"])["reference"], answer["reference"])
        types = []
        for event, *_ in self.client.events(intent_id=order["intentId"]):
            types.append(event["type"])
            if event["isTerminal"]:
                break
        self.assertEqual(types.count("intent.accepted"), 1)

    def test_events_are_followed_over_a_restart_also_without_blocking(self) -> None:
        async def follow() -> list[int]:
            partner = self.sandbox["partner"]
            async with dvp.AsyncClient(self.sandbox["http"], partner["apiKey"], partner["signingSecret"]) as client:
                order = intent()
                await client.submit_intent(order)
                seen: dict[str, int] = {}
                cursor, is_over = None, False
                while not is_over:
                    # A new follower for every event.
                    async for event, cursor, _ in client.events(cursor, intent_id=order["intentId"]):
                        is_new, is_over = event["id"] not in seen, event["isTerminal"]
                        seen[event["id"]] = event["sequence"]
                        if is_new or is_over:
                            break
                return list(seen.values())

        sequences = asyncio.run(follow())
        self.assertEqual(sequences, list(range(1, len(sequences) + 1)))

    def test_a_webhook_is_received_and_verified_during_a_rotation_too(self) -> None:
        deliveries: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                deliveries.put((dict(self.headers), body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        # The sandbox trusts this certificate for receivers on this machine.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{DIRECTORY}/webhook-listener.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

        url = f"https://127.0.0.1:{server.server_port}/hook"
        secret = self.client.register_webhook({"url": url, "subscribedTypes": ["payout.failed"]})["secret"]
        queued = self.client.test_webhook({"type": "payout.failed"})
        headers, body = deliveries.get(timeout=30)
        event = dvp.verify_webhook(secret, headers, body)
        self.assertEqual((event["id"], event["type"]), (queued["eventId"], "payout.failed"))

        following = self.client.rotate_webhook_secret()["nextSecret"]
        self.client.test_webhook()
        headers, body = deliveries.get(timeout=30)
        for one in (secret, following):
            self.assertEqual(dvp.verify_webhook(one, headers, body)["type"], "test.ping")
        standard = {name: value for name, value in headers.items() if name.lower() != "svc-signature"}
        self.assertEqual(dvp.verify_webhook(following, standard, body)["type"], "test.ping")
        with self.assertRaisesRegex(dvp.WebhookError, "no signature"):
            dvp.verify_webhook(secret, headers, body.replace(b"ping", b"pong"))

    def test_reports_are_read_to_their_last_page(self) -> None:
        day = datetime.now(timezone.utc).date().isoformat()
        pages = list(self.client.daily_reconciliation(day))
        self.assertTrue(pages and all(page["date"] == day for page in pages))
        self.assertTrue(any(pair["pair"] == "USDC/USD" and pair["baseExponent"] == 6 for pair in self.client.pairs()))
        batch = self.client.request("GET", "/v1/executions", query={"reference": ["a", "b"]})
        self.assertEqual(batch["notFound"], ["a", "b"])
