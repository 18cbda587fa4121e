"""One operation from its first attempt to its answer, without input and output.

A flow is a generator: it gives requests to be sent and pauses to be made, and is told the replies.
`Client` and `AsyncClient` drive the same flows, each in its own way.
"""
from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import random
import re
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from .errors import ApiError, DvpError, NoAnswerError, UnexpectedAnswerError

log = logging.getLogger("dvp")
T = TypeVar("T")
Body = Mapping[str, Any]
Check = Callable[[Body], bool]

PAUSE_SECONDS_MAX = 30.0
DEPTH_MAX = 100


@dataclass(frozen=True)
class Request:
    method: str
    # The address of a chain's node often contains its key, so it is not shown either.
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Reply:
    status: int
    # By names in lower case.
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class NoReply:
    why: str


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Item(Generic[T]):
    """One result of a flow that has many."""

    value: T


class Secret(str):
    """A text that no repr() shows."""

    def __repr__(self) -> str:
        return "<secret>"


@dataclass(frozen=True)
class Again:
    """The operation has to be sent again; the error is that of the last attempt."""

    error: DvpError
    after: int | None
    signed_anew: bool = False
    date: str | None = None


Told = Reply | NoReply | None
Flow = Generator[Request | Pause, Told, T]
Stream = Generator[Request | Pause | Item[T], Told, None]


def sign_request(secret: str, method: str, path: str, timestamp: str, nonce: str, body: bytes) -> str:
    """The `X-Signature` of a request. `path` is as the service gets it, `body` the very bytes that are sent."""
    message = f"{method}{path}{timestamp}{nonce}".encode() + body
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def path_with(path: str, query: Mapping[str, object]) -> str:
    """The path with the parts of the query that are not None."""
    pairs = urlencode({name: value for name, value in query.items() if value is not None}, doseq=True)
    return f"{path}?{pairs}" if pairs else path


class Transport:
    """Sends an operation until it is answered: the same key and bytes in each attempt, and a fresh signature."""

    def __init__(self, base_url: str, api_key: str, signing_secret: str | None, retry_for: float) -> None:
        # Otherwise every attempt would fail, as if there were no service.
        if not re.match("https?://[^/]", base_url):
            raise TypeError("base_url is no address")
        if not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise TypeError("api_key has to be visible ASCII characters")
        self.base_url = base_url.rstrip("/")
        self._api_key = Secret(api_key)
        self._signing_secret = None if signing_secret is None else Secret(signing_secret)
        self._retry_for = retry_for
        self._clock_offset = 0.0

    def now(self) -> float:
        """Unix seconds by the service's clock, as far as it is known."""
        return time.time() + self._clock_offset

    def send(self, method: str, path: str, body: Body | None = None, *, key: str | None = None, signed: bool = False,
             check: Check | None = None, for_ever: bool = False) -> Flow[Any]:
        if key is None and method in ("POST", "PATCH"):
            key = str(uuid.uuid4())
        content = b"" if body is None else json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        end = math.inf if for_ever else time.monotonic() + self._retry_for
        pause, signed_anew = 1.0, False
        while True:
            headers = self._headers(method, path, content, key, signed)
            reply = yield Request(method, self.base_url + path, headers, content)
            verdict = self._judge(f"{method} {path}", key, reply, check)
            if isinstance(verdict, DvpError):
                raise verdict
            if not isinstance(verdict, Again):
                return verdict
            if verdict.signed_anew:
                if signed_anew:
                    raise verdict.error
                signed_anew = True
                self._correct_clock(verdict)
                continue
            wait = max(verdict.after or 0.0, pause) * (1 + random.random() / 4)
            if time.monotonic() + wait > end:
                raise verdict.error
            log.warning("%s; sent again in %.1f s", verdict.error, wait)
            yield Pause(wait)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _headers(self, method: str, path: str, content: bytes, key: str | None, signed: bool) -> dict[str, str]:
        headers: dict[str, str] = {"X-API-Key": self._api_key, "Accept": "application/json"}
        if content:
            headers["Content-Type"] = "application/json"
        if key is not None:
            # The routes of webhooks have a header of their own for the same.
            other = path.startswith(("/v1/webhook", "/v1/events"))
            headers["Idempotency-Key" if other else "X-Idempotency-Key"] = key
        if signed:
            if self._signing_secret is None:
                raise TypeError("an intent needs the signing_secret")
            at, nonce = str(int(self.now())), uuid.uuid4().hex
            signature = sign_request(self._signing_secret, method, path, at, nonce, content)
            headers |= {"X-Timestamp": at, "X-Nonce": nonce, "X-Signature": signature}
        return headers

    def _correct_clock(self, refused: Again) -> None:
        if getattr(refused.error, "param", None) != "X-Timestamp":
            return
        try:
            date = parsedate_to_datetime(refused.date or "").timestamp()
        except ValueError:
            return
        self._clock_offset = date - time.time()
        log.warning("this machine's clock is %d s ahead of the service's, whose time is used from now on",
                    -round(self._clock_offset))

    def _judge(self, operation: str, key: str | None, reply: Told, check: Check | None) -> Body | Again | DvpError:
        """What becomes of an operation after this reply: the table in docs/api.md."""
        if not isinstance(reply, Reply):
            why = reply.why if isinstance(reply, NoReply) else "unknown"
            return Again(NoAnswerError(operation, why, key), None)
        status, is_success = reply.status, 200 <= reply.status < 300
        seconds = re.fullmatch("[0-9]{1,9}", reply.headers.get("retry-after", ""))
        after = int(seconds[0]) if seconds else None

        def unexpected(why: str) -> UnexpectedAnswerError:
            return UnexpectedAnswerError(operation, status, why, key)

        value = parse(reply)
        if isinstance(value, str):
            # The request may have arrived all the same: like no answer at all.
            again = is_success or status >= 500 or status == 429
            return Again(unexpected(value), after) if again else unexpected(value)
        if is_success or (status == 422 and value.get("status") == "rejected"):
            ours = value.get("success") is not False and (check is None or check(value))
            return value if ours else unexpected("it is not about this request")
        error, is_busy = self._api_error(status, value, after), status >= 500 or status == 429
        if error is None:
            return Again(unexpected("no error body"), after) if is_busy else unexpected("no error body")
        if is_busy or error.code == "IDEMPOTENCY_KEY_PROCESSING":
            return Again(error, after)
        if error.code == "INVALID_SIGNATURE":
            return Again(error, after, signed_anew=True, date=reply.headers.get("date"))
        return error

    def _api_error(self, status: int, body: Body, after: int | None) -> ApiError | None:
        error = body.get("error")
        if not isinstance(error, dict):
            return None
        code, message, param = (error.get(name) for name in ("code", "message", "param"))
        if not isinstance(code, str) or not isinstance(message, str):
            return None
        page = str(error.get("docUrl", ""))
        return ApiError(status, code, message, param if isinstance(param, str) else None,  # type: ignore[arg-type]
                        self.base_url + page if page.startswith("/") else page, str(error.get("requestId", "")), after)


def parse(reply: Reply) -> Body | str:
    """The object of the reply, or what is wrong with it."""
    if not re.match(r"application/json\s*(;|$)", reply.headers.get("content-type", ""), re.I):
        return "it is not JSON"
    try:
        value = json.loads(reply.content) if _is_shallow(reply.content) else None
    except ValueError:
        return "its JSON is broken"
    return value if isinstance(value, dict) else "it is no object"


def _is_shallow(content: bytes) -> bool:
    """Python ends at an object that is too deep once any library has raised the recursion limit, as some do."""
    depth = deepest = 0
    for mark in re.finditer(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', content):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(mark[0], 0)
        deepest = max(deepest, depth)
    return deepest <= DEPTH_MAX
