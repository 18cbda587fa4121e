"""What schemathesis cannot know: how a request is signed, and names of things that exist.

DVP_SANDBOX is the directory of the running sandbox.
"""
import hashlib
import hmac
import json
import os
import random
import re
import time
import urllib.parse
import urllib.request
import uuid

import schemathesis
from requests.auth import AuthBase

with open(os.path.join(os.environ["DVP_SANDBOX"], "sandbox.json")) as ready:
    SANDBOX = json.load(ready)
SECRET = SANDBOX["partner"]["signingSecret"].encode()
TOKEN = SANDBOX["chain"]["tokens"][0]
USDC = {"type": "erc20", "symbol": TOKEN["symbol"], "address": TOKEN["address"]}
USD, EUR = ({"type": "fiat", "symbol": symbol} for symbol in ("USD", "EUR"))


def signature(method, path, body):
    at, nonce = str(int(time.time())), uuid.uuid4().hex
    canonical = method.encode() + path.encode() + at.encode() + nonce.encode() + body
    digest = hmac.new(SECRET, canonical, hashlib.sha256).hexdigest()
    return {"X-Timestamp": at, "X-Nonce": nonce, "X-Signature": digest}


def call(method, path, body=None):
    raw = b"" if body is None else json.dumps(body).encode()
    headers = {"X-API-Key": SANDBOX["partner"]["apiKey"]} | signature(method, path, raw)
    if raw:
        headers |= {"Content-Type": "application/json", "X-Idempotency-Key": str(uuid.uuid4())}
    request = urllib.request.Request(SANDBOX["http"] + path, raw or None, headers, method=method)
    return json.load(urllib.request.urlopen(request))


def fiat_intent():
    """Pays from the prefunded balance, which needs no permit."""
    return {
        "intentId": str(uuid.uuid4()), "clientReference": str(uuid.uuid4()), "user": "schemathesis",
        "inputAsset": USD, "outputAsset": EUR, "inputAmountMinor": "100000", "minOutputAmountMinor": "1",
        "deadline": int(time.time() * 1000) + 3_600_000, "settlementType": "hybrid",
        "beneficiary": {"account": "bene_straight:dest_10000000", "name": "Jane Doe"},
    }


def seed():
    """One execution with its receipt, and one order of the older surface."""
    intent = fiat_intent()
    accepted = call("POST", "/v1/intents", intent)
    assert accepted["status"] == "accepted", accepted
    older = call("POST", "/v1/intents", {
        "pair": {"source": "USD", "target": "EUR"}, "side": "sell", "amount": "100.00", "strategy": "scheduled",
    })
    for _ in range(300):
        execution = call("GET", f"/v1/executions/{intent['clientReference']}")
        if execution["status"] == "completed":
            break
        time.sleep(0.2)
    assert execution["status"] == "completed", execution
    events = call("GET", f"/v1/events?intentId={intent['intentId']}")["data"]
    return {
        "reference": intent["clientReference"], "intentId": intent["intentId"], "eventId": events[0]["id"],
        "olderIntentId": older["data"]["intentId"], "base": "USD", "target": "EUR",
    }


KNOWN = seed()
OLDER = {("GET", "/v1/intents/{intentId}"), ("DELETE", "/v1/intents/{intentId}")}


class Signed(AuthBase):
    """Signs the bytes that are sent."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        url = urllib.parse.urlsplit(request.url)
        path = url.path + (f"?{url.query}" if url.query else "")
        request.headers.update(signature(request.method, path, body))
        return request


def name_what_exists(case):
    for name in case.path_parameters or {}:
        known = "olderIntentId" if (case.method, case.path) in OLDER else name
        if known in KNOWN:
            case.path_parameters[name] = KNOWN[known]
    for name in ("reference", "intentId"):
        if name in (case.query or {}):
            case.query[name] = KNOWN[name]


def ask_for_what_exists(case):
    body = case.body
    if not isinstance(body, dict):
        return
    if case.path == "/v1/quotes":
        body |= {"source": "USDC", "target": "USD", "amount": random.choice(["1", "250.5", "1000000"])}
    if case.path == "/v1/quotes/firm":
        body |= {"inputAsset": USDC, "outputAsset": USD, "amountMinor": "100000000"}
    if case.path == "/v1/intents" and "deadline" in body:
        if random.random() < 0.5:
            body |= {"inputAsset": USDC, "outputAsset": USD, "user": SANDBOX["chain"]["wallets"][0]["address"]}
            body["deadline"] = int(time.time() * 1000) + 3_600_000
        else:
            case.body = fiat_intent() | {"metadata": body.get("metadata")}
    if case.path == "/v1/intents" and "pair" in body:
        body |= {"pair": {"source": "USD", "target": "EUR"}, "amount": "100.00"}
    if case.path == "/v1/webhook_endpoints/replay":
        body |= {"from": "2026-11-01T00:00:00Z", "to": "2036-11-02T00:00:00Z"}


@schemathesis.hook
def before_call(context, case, kwargs):
    # The same key for another body would be a conflict, and nothing behind it would be reached.
    key = (case.headers or {}).get("X-Idempotency-Key")
    if isinstance(key, str) and re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-[1-8].*", key) and random.random() < 0.9:
        case.headers["X-Idempotency-Key"] = str(uuid.uuid4())
    if case.method == "POST" and case.path == "/v1/intents":
        kwargs["auth"] = Signed()
    # Nothing is sent to other hosts.
    if isinstance(case.body, dict) and re.match("https?://", str(case.body.get("url"))):
        case.body["url"] = "https://localhost/hooks"
    # Half of the valid requests also name existing objects.
    if case.meta and case.meta.generation.mode.is_positive and random.random() < 0.5:
        name_what_exists(case)
        ask_for_what_exists(case)
