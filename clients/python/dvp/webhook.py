"""Deliveries, verified in each of the forms in which they are signed."""
from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import cast

from .api import Event, PingEvent
from .errors import WebhookError

TOLERANCE_SECONDS = 300


def verify_webhook(secret: str | Sequence[str], headers: Mapping[str, str], body: bytes,
                   now: float | None = None) -> Event | PingEvent:
    """The event of a genuine delivery; raises a WebhookError for any other.

    `secret` is the endpoint's, or both while they are rotated; `body` is as it arrived, before any parser.
    """
    if not isinstance(body, bytes):
        raise TypeError("the body has to be given as it arrived, not parsed")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not secrets or "" in secrets:
        raise TypeError("a secret is needed")
    lower = {name.lower(): value for name, value in headers.items()}
    svc = lower.get("svc-signature")
    at, given, ours = _standard(secrets, lower, body) if svc is None else _svc(secrets, svc, body)

    # Each is compared with each, in a time that tells nothing.
    if not any([hmac.compare_digest(one.encode(), other.encode()) for one in ours for other in given]):
        raise WebhookError("no signature is that of this body")
    if abs((time.time() if now is None else now) - int(at)) > TOLERANCE_SECONDS:
        raise WebhookError("the delivery is more than 300 seconds away from the clock")
    event = _parsed(body)
    if not isinstance(event, dict) or event.get("object") != "event" or not isinstance(event.get("id"), str):
        raise WebhookError("the body is no event")
    return cast("Event | PingEvent", event)


def _parsed(body: bytes) -> object:
    try:
        return cast(object, json.loads(body))
    except ValueError:
        return None


def _svc(secrets: list[str], value: str, body: bytes) -> tuple[str, list[str], list[str]]:
    """`t=<seconds>,v1=<hex>[,v1=<hex>]`, with the whole secret as key."""
    parts = [part.strip().partition("=") for part in value.split(",")]
    times = [text for name, _, text in parts if name == "t"]
    at = _seconds(times[0] if len(times) == 1 else "")
    given = [text for name, _, text in parts if name == "v1"]
    ours = [hmac.new(each.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest() for each in secrets]
    return at, given, ours


def _standard(secrets: list[str], headers: Mapping[str, str], body: bytes) -> tuple[str, list[str], list[str]]:
    """The headers of Standard Webhooks, with the decoded part of the secret as key."""
    identity, signatures = headers.get("webhook-id"), headers.get("webhook-signature")
    if identity is None or signatures is None:
        raise WebhookError("the delivery is not signed")
    at = _seconds(headers.get("webhook-timestamp", ""))
    given = [part.removeprefix("v1,") for part in signatures.split(" ") if part.startswith("v1,")]
    message = f"{identity}.{at}.".encode() + body
    try:
        keys = [base64.b64decode(each.removeprefix("whsec_")) for each in secrets]
    except binascii.Error:
        keys = []
    ours = [base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode() for key in keys]
    return at, given, ours


def _seconds(text: str) -> str:
    if not re.fullmatch("[0-9]{1,12}", text):
        raise WebhookError("the delivery has no time")
    return text
