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
import uuid

import schemathesis
from requests.auth import AuthBase

with open(os.path.join(os.environ["DVP_SANDBOX"], "sandbox.json")) as ready:
    SANDBOX = json.load(ready)
SECRET = SANDBOX["partner"]["signingSecret"].encode()


class Signed(AuthBase):
    """Signs the bytes that are sent, unless a test is about a signature that is missing or wrong."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        url = urllib.parse.urlsplit(request.url)
        path = url.path + (f"?{url.query}" if url.query else "")
        at, nonce = str(int(time.time())), uuid.uuid4().hex
        canonical = request.method.encode() + path.encode() + at.encode() + nonce.encode() + body
        request.headers["X-Timestamp"] = at
        request.headers["X-Nonce"] = nonce
        request.headers["X-Signature"] = hmac.new(SECRET, canonical, hashlib.sha256).hexdigest()
        return request


@schemathesis.hook
def before_call(context, case, kwargs):
    # The same key for another body would be a conflict, and nothing behind it would be reached.
    key = (case.headers or {}).get("X-Idempotency-Key")
    if isinstance(key, str) and re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-[1-8].*", key) and random.random() < 0.9:
        case.headers["X-Idempotency-Key"] = str(uuid.uuid4())
    if case.method == "POST" and case.path == "/v1/intents":
        headers = {name.lower() for name in (case.headers or {})}
        # A test of a missing header stays one.
        if {"x-signature", "x-timestamp", "x-nonce"} <= headers:
            kwargs["auth"] = Signed()


@schemathesis.hook
def map_body(context, body):
    """Half of the intents have assets that exist and a deadline that has not passed."""
    if not isinstance(body, dict) or context.operation.path != "/v1/intents":
        return body
    if "deadline" in body and len(str(body)) % 2:
        token = SANDBOX["chain"]["tokens"][0]
        body["deadline"] = int(time.time() * 1000) + 3_600_000
        body["inputAsset"] = {"type": "erc20", "symbol": token["symbol"], "address": token["address"]}
        body["outputAsset"] = {"type": "fiat", "symbol": "USD"}
        body["user"] = SANDBOX["chain"]["wallets"][0]["address"]
    return body
