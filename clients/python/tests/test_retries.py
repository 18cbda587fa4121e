from __future__ import annotations

import asyncio
import logging
import traceback
import unittest
from email.utils import formatdate
from time import time
from typing import Any
from unittest.mock import patch

import dvp
from dvp import api

from .fake import Answer, Script, Seen, answer, as_json, drop, error, fake

API_KEY, SECRET = "svc_test_hidden", "secret-hidden"
INTENT: dvp.Intent = {
    "intentId": "i-1",
    "user": "me",
    "inputAsset": dvp.fiat("USD"),
    "outputAsset": dvp.fiat("EUR"),
    "inputAmountMinor": "100",
    "minOutputAmountMinor": "1",
    "deadline": 1795284000000,
    "settlementType": "offchain",
}
ACCEPTED = as_json(202, {"intentId": "i-1", "status": "accepted"})
HTML = answer(200, "<html>sign in</html>", kind="text/html")


class Retries(unittest.TestCase):
    """Each case is tried with both clients; pauses are counted and not made."""

    def setUp(self) -> None:
        self.pauses: list[float] = []

        async def asleep(seconds: float) -> None:
            self.pauses.append(seconds)

        for name, fake_sleep in (("time", self.pauses.append), ("asyncio", asleep)):
            patcher = patch(f"dvp.client.{name}.sleep", fake_sleep)
            patcher.start()
            self.addCleanup(patcher.stop)

    def submit(self, *scripts: Script, retry_for: float = 60.0) -> tuple[Any, list[Seen], list[str]]:
        outcomes = []
        for is_async in (False, True):
            self.pauses.clear()
            with fake(*scripts) as (url, seen), self.assertLogs("dvp", logging.DEBUG) as logs:
                logging.getLogger("dvp").warning("begin")
                result = self.call(url, is_async, retry_for)
                outcomes.append((result, list(seen), logs.output[1:]))
            # Whatever happens, nothing that is printed has a secret in it.
            text = "".join(traceback.format_exception(result)) if isinstance(result, Exception) else repr(result)
            context = getattr(result, "__context__", None)
            self.assertNotIn(
                "hidden", text + repr(logs.output) + repr(context) + repr(vars(context) if context else "")
            )
        (result, seen, logged), (other, seen_too, _) = outcomes
        self.assertEqual((type(result), len(seen)), (type(other), len(seen_too)))
        return result, seen, logged

    def call(self, url: str, is_async: bool, retry_for: float) -> Any:
        try:
            if not is_async:
                with dvp.Client(url, API_KEY, SECRET, retry_for=retry_for) as client:
                    self.assertNotIn("hidden", repr(client) + repr(vars(client)) + repr(vars(client._transport)))
                    return client.submit_intent(INTENT)

            async def run() -> api.AcceptedIntent | api.RejectedIntent:
                async with dvp.AsyncClient(url, API_KEY, SECRET, retry_for=retry_for) as client:
                    return await client.submit_intent(INTENT)

            return asyncio.run(run())
        except dvp.DvpError as failed:
            return failed

    def succeeds(self, *scripts: Script) -> tuple[list[Seen], list[str]]:
        result, seen, logged = self.submit(*scripts)
        self.assertIsInstance(result, dict, result)
        self.assertEqual((result["status"], len(seen)), ("accepted", len(scripts)))
        return seen, logged

    def fails(self, kind: type[Exception], attempts: int, *scripts: Script, retry_for: float = 60.0) -> Any:
        result, seen, _ = self.submit(*scripts, retry_for=retry_for)
        self.assertIsInstance(result, kind)
        self.assertEqual(len(seen), attempts)
        return result

    def test_the_key_and_the_bytes_stay_and_the_signature_is_fresh(self) -> None:
        (first, second), logged = self.succeeds(drop, ACCEPTED)
        self.assertEqual(first.body, second.body)
        self.assertRegex(first.headers["x-idempotency-key"], "^[0-9a-f-]{36}$")
        self.assertEqual(first.headers["x-idempotency-key"], second.headers["x-idempotency-key"])
        self.assertNotEqual(first.headers["x-nonce"], second.headers["x-nonce"])
        for seen in (first, second):
            at, nonce = seen.headers["x-timestamp"], seen.headers["x-nonce"]
            expected = dvp.sign_request(SECRET, "POST", "/v1/intents", at, nonce, seen.body)
            self.assertEqual(seen.headers["x-signature"], expected)
        self.assertRegex(logged[0], "no answer .* sent again")

    def test_pauses_grow_and_are_never_below_retry_after(self) -> None:
        busy = error(409, "IDEMPOTENCY_KEY_PROCESSING", {"Retry-After": "7"})
        self.succeeds(error(503, "SERVICE_UNAVAILABLE"), error(500, "INTERNAL_ERROR"), busy, ACCEPTED)
        for pause, floor in zip(self.pauses, (1, 2, 7), strict=True):
            self.assertTrue(floor <= pause <= 1.25 * floor, self.pauses)

    def test_it_ends_when_retry_after_is_longer_than_its_time(self) -> None:
        failed = self.fails(dvp.ApiError, 1, error(429, "RATE_LIMIT_EXCEEDED", {"Retry-After": "3000"}))
        self.assertEqual(failed.retry_after, 3000)

    def test_what_the_service_refused_is_not_sent_again(self) -> None:
        for status, code in [
            (400, "INVALID_PARAMETER"),
            (403, "INSUFFICIENT_SCOPE"),
            (409, "IDEMPOTENCY_KEY_CONFLICT"),
            (409, "ALREADY_EXISTS"),
            (422, "INSUFFICIENT_LIQUIDITY"),
        ]:
            failed = self.fails(dvp.ApiError, 1, error(status, code, param="permit.nonce"))
            self.assertEqual(
                (failed.status, failed.code, failed.param, failed.request_id), (status, code, "permit.nonce", "r-1")
            )
            self.assertRegex(failed.doc_url, "^http:.*/docs/errors/")

    def test_a_rejection_is_an_outcome(self) -> None:
        rejected = {"intentId": "i-1", "status": "rejected", "reason": "no_liquidity", "detail": "none"}
        for status in (422, 202):
            self.assertEqual(self.submit(as_json(status, rejected))[0], rejected)

    def test_pages_of_proxies_and_cut_answers_are_like_none(self) -> None:
        bad = answer(502, "Bad Gateway", kind="text/html")
        deep = answer(202, "[" * 100_000)
        for script in (HTML, bad, answer(202, '{"intentId": "i-'), answer(202, "{", short=9), answer(202, "[]"), deep):
            self.succeeds(script, ACCEPTED)

    def test_an_unknown_outcome_has_the_key_to_go_on(self) -> None:
        for kind, script in ((dvp.NoAnswerError, drop), (dvp.UnexpectedAnswerError, HTML)):
            failed = self.fails(kind, 1, script, retry_for=0.5)
            self.assertRegex(failed.idempotency_key, "^[0-9a-f-]{36}$")

    def test_no_redirect_is_followed(self) -> None:
        with fake(ACCEPTED) as (other, seen):
            self.fails(dvp.UnexpectedAnswerError, 1, answer(307, "", {"Location": f"{other}/v1/intents"}))
            self.assertEqual(seen, [])

    def test_an_answer_about_something_else_is_not_taken(self) -> None:
        for body in (
            {"intentId": "i-2", "status": "accepted"},
            {"intentId": "i-1", "status": "done"},
            {"intentId": "i-1", "status": "rejected"},
            {"success": False, "intentId": "i-1", "status": "accepted"},
        ):
            self.fails(dvp.UnexpectedAnswerError, 1, as_json(202, body))
        self.fails(dvp.UnexpectedAnswerError, 1, as_json(404, {"message": "no route"}))

    def test_the_time_of_the_service_is_used_once_ones_own_is_wrong(self) -> None:
        date = formatdate(time() + 600, usegmt=True)
        refused = error(401, "INVALID_SIGNATURE", {"Date": date}, param="X-Timestamp")
        (first, second), logged = self.succeeds(refused, ACCEPTED)
        self.assertAlmostEqual(int(second.headers["x-timestamp"]) - int(first.headers["x-timestamp"]), 600, delta=10)
        self.assertRegex(logged[0], r"clock is -(59|60)\d s ahead")
        self.assertEqual(first.headers["x-idempotency-key"], second.headers["x-idempotency-key"])
        self.fails(dvp.ApiError, 2, refused)

    def test_a_refused_signature_is_made_anew_once(self) -> None:
        self.fails(dvp.ApiError, 2, error(401, "INVALID_SIGNATURE", param="X-Signature"))
        self.fails(dvp.ApiError, 2, error(401, "INVALID_SIGNATURE", {"Date": "never"}, param="X-Timestamp"))

    def test_what_cannot_be_sent_is_not_tried(self) -> None:
        with dvp.Client("http://127.0.0.1:1", API_KEY) as client, self.assertRaisesRegex(TypeError, "signing_secret"):
            client.submit_intent(INTENT)
        for url, key in [("dvp.example.com", "k"), ("http://", "k"), ("http://x", "hidden\n"), ("http://x", "")]:
            with self.assertRaises(TypeError) as failed:
                dvp.Client(url, key)
            self.assertNotIn("hidden", str(failed.exception))

    def test_routes_of_webhooks_have_the_other_header(self) -> None:
        with fake(as_json(202, {"eventId": "evt_1"})) as (url, seen), dvp.Client(f"{url}/", API_KEY) as client:
            client.test_webhook(idempotency_key="k-1")
            self.assertEqual(seen[0].headers["idempotency-key"], "k-1")
            self.assertNotIn("x-idempotency-key", seen[0].headers)

    def test_an_answer_that_never_ends_is_given_up(self) -> None:
        endless = Answer(202, b" " * 100, {"Content-Type": "application/json"}, pace=0.05)
        with patch("dvp.client.ATTEMPT_SECONDS", 0.3):
            self.fails(dvp.NoAnswerError, 1, lambda _: endless, retry_for=0.5)
