from __future__ import annotations

import copy
import json
import os
import re
import unittest
from typing import Any, cast

from eth_account import Account

import dvp
from dvp.api import Chain, Receipt

DOCS = os.path.join(os.environ.get("DVP_ROOT", "../.."), "docs")
with open(f"{DOCS}/api.md") as page:
    API = page.read()
with open(f"{DOCS}/webhooks/vectors.json") as vectors:
    CASES = json.load(vectors)["cases"]


def blocks(section: str, language: str = "") -> list[str]:
    """The fenced blocks of a section of the guide."""
    text = API.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [body for kind, body in re.findall(r"```(\w*)\n(.*?)\n```", text, re.S) if kind == language]


def receipt() -> Any:
    return json.loads(blocks("Verifying a receipt", "json")[0])


class Vectors(unittest.TestCase):
    def test_the_request_of_the_guide_is_signed_as_it_says(self) -> None:
        message, signature = blocks("Signing")
        secret = cast("re.Match[str]", re.search(r"With the secret `(\w+)`", API))[1]
        parts = cast("re.Match[str]", re.fullmatch(r"POST/v1/intents(\d{10})(\w{32})(.*)", message))
        signed = dvp.sign_request(secret, "POST", "/v1/intents", parts[1], parts[2], parts[3].encode())
        self.assertEqual(signed, signature)

    def test_the_permit_of_the_guide_is_made_and_signed_as_it_says(self) -> None:
        stated = json.loads(blocks("Signing a permit", "json")[0])
        message = stated["message"]
        chain = cast(Chain, {"permitDomain": stated["domain"], "contracts": {"escrow": message["spender"]}})
        data = dvp.permit_typed_data(chain, message["token"], message["amount"], message["nonce"], message["deadline"])
        self.assertEqual(data, stated)
        key, _digest, signature = blocks("Signing a permit")
        signed = Account.sign_typed_data(key, full_message=data)
        self.assertEqual("0x" + bytes(signed.signature).hex(), signature)

    def test_the_receipt_of_the_guide_has_the_canonical_text_and_the_hash_that_it_says(self) -> None:
        text, digest = blocks("Verifying a receipt")
        body = {name: value for name, value in receipt().items() if name not in ("txHash", "finality")}
        self.assertEqual(dvp.canonical(body).decode(), text)
        self.assertEqual(dvp.content_hash(receipt()), digest)

    def test_a_receipt_adds_up_and_each_changed_number_is_found(self) -> None:
        def changed(*path: str | int, to: object) -> str:
            body = copy.deepcopy(receipt())
            at = body
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = to
            return dvp.contradiction(cast(Receipt, body)) or ""

        self.assertIsNone(dvp.contradiction(receipt()))
        self.assertIn("fromAmountMinor", changed("offramp", "fromAmountMinor", to="99600000"))
        self.assertIn("fxRate", changed("offramp", "fxRate", to="1.001"))
        self.assertIn("cannot be read", changed("offramp", "fxRate", to="1e0"))
        self.assertIn("payout", changed("payout", "amountMinor", to="9936"))
        self.assertIn("payout", changed("fees", 1, "amountMinor", to="9951"))
        self.assertIn("cannot be read", changed("fees", 1, "exponent", to=10**9))
        self.assertIn("fromAmountMinor", changed("fees", 0, "exponent", to=5))
        self.assertIn("payout", changed("fees", 1, "collection", to="absorbed"))
        # Without a fee in the input asset the exponent is found by trial.
        self.assertEqual("", changed("fees", to=receipt()["fees"][1:]))
        self.assertEqual("", changed("offramp", to=None))

    def test_amounts_become_minor_units_and_decimals_again_without_rounding(self) -> None:
        for decimal, exponent, minor in [
            ("100", 6, "100000000"),
            ("0.01", 2, "1"),
            ("1.5", 18, "15" + "0" * 17),
            ("7", 0, "7"),
        ]:
            self.assertEqual(dvp.to_minor(decimal, exponent), minor)
        self.assertEqual(dvp.from_minor("1", 2), "0.01")
        self.assertEqual(dvp.from_minor(15 * 10**17, 18), "1.5" + "0" * 17)
        self.assertEqual(dvp.from_minor("7", 0), "7")
        for wrong in ["1.001", "-1", "+1", "1e3", "", ".5", "1.", " 1", "1,5", "٣", "1\n"]:
            with self.assertRaises(ValueError, msg=wrong):
                dvp.to_minor(wrong, 2)
        with self.assertRaises(TypeError):
            dvp.to_minor(cast(str, 1.5), 2)
        for wrong_minor in ["-1", "1.0", 1.0, -1, True]:
            with self.assertRaises(ValueError, msg=wrong_minor):
                dvp.from_minor(cast(str, wrong_minor), 2)


class Webhooks(unittest.TestCase):
    def genuine(self, *args: Any, **named: Any) -> None:
        # Bodies of two vectors are no events, which is said only after the signature.
        try:
            dvp.verify_webhook(*args, **named)
        except dvp.WebhookError as failed:
            self.assertIn("is no event", str(failed))

    def test_both_forms_are_verified_and_any_change_is_refused(self) -> None:
        for case in CASES:
            body, secrets, at = case["body"].encode(), case["secrets"], case["t"]
            standard = {
                "Webhook-Id": case["webhookId"],
                "webhook-timestamp": str(at),
                "webhook-signature": case["webhookSignature"],
            }
            for headers in ({"Svc-Signature": case["svcSignature"]}, standard):
                for secret in secrets:
                    self.genuine(secret, headers, body, now=at)
                self.genuine(["whsec_AAAA", secrets[0]], headers, body, now=at)
                self.genuine([secrets[0], "whsec_AAAA"], headers, body, now=at)
                for off in (300, -300):
                    self.genuine(secrets, headers, body, now=at + off)
                for wrong, why in [
                    ((secrets, headers, body, at + 301), "300 seconds"),
                    ((secrets, headers, body, at - 301), "300 seconds"),
                    ((secrets, headers, body + b" ", at), "no signature"),
                    (("whsec_AAAA", headers, body, at), "no signature"),
                    (("whsec_not base64", headers, body, at), "no signature"),
                ]:
                    with self.assertRaisesRegex(dvp.WebhookError, why):
                        dvp.verify_webhook(*wrong)

    def test_a_delivery_without_a_time_or_signature_is_refused(self) -> None:
        body, secrets, at = CASES[0]["body"].encode(), CASES[0]["secrets"], CASES[0]["t"]
        for value in [
            CASES[0]["svcSignature"] + f",t={at}",
            "",
            "t=1",
            "v1=00",
            f"t={at},t={at},v1=00",
            "t=-1,v1=00",
            "t=1e3,v1=00",
            f"t={at}",
            "t=٣,v1=é",
        ]:
            with self.assertRaises(dvp.WebhookError, msg=value):
                dvp.verify_webhook(secrets, {"svc-signature": value}, body, at)
        with self.assertRaisesRegex(dvp.WebhookError, "not signed"):
            dvp.verify_webhook(secrets, {}, body)
        with self.assertRaises(TypeError):
            dvp.verify_webhook("", {}, body)
        with self.assertRaises(TypeError):
            dvp.verify_webhook(secrets, {}, cast(bytes, {}))
