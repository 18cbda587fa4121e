"""Every operation, as a flow that both clients drive."""
from __future__ import annotations

import time
from collections.abc import Awaitable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload
from urllib.parse import quote as encoded

from . import api
from ._events import Followed, follow
from ._transport import Body, Check, Flow, Item, Pause, Secret, Stream, Transport, path_with
from .errors import DvpError
from .permit import Signer, chain_of, sign_permit
from .receipt import NotVerified, Verified, verify

if TYPE_CHECKING:
    from .client import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")
# An intent by amounts or by bounds.
Intent = api.AmountsIntentRequest | api.BoundsIntentRequest


class operation(Generic[P, T]):
    """A flow as a method: `Client` returns its result, `AsyncClient` lets it be awaited."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, client: Client, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any = None) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        return self if client is None else lambda *args, **named: client._run(self._flow(client, *args, **named))


class stream(Generic[P, T]):
    """The same of a flow with many results."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Stream[T]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, client: Client, owner: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        return self if client is None else lambda *args, **named: client._each(self._flow(client, *args, **named))


def _echo(field: str, value: str) -> Check:
    """An answer is ours when it names what was asked for."""
    return lambda answer: answer.get(field) == value


def _chains(send: Callable[..., Flow[Any]]) -> Flow[list[api.Chain]]:
    answer: api.Chains = yield from send(
        "GET", "/v1/chains", check=lambda answer: isinstance(answer.get("chains"), list))
    return answer["chains"]


def _execution(send: Callable[..., Flow[Any]], reference: str, ref_type: api.RefType) -> Flow[api.Execution]:
    path = path_with(f"/v1/executions/{encoded(reference, '')}", {"refType": ref_type})
    field = "reference" if ref_type == "executionId" else "clientReference"
    return send("GET", path, check=_echo(field, reference))


def _wallet(send: Callable[..., Flow[Any]], address: str, chain: str | None) -> Flow[api.Wallet]:
    path = path_with(f"/v1/wallets/{encoded(address, '')}", {"chain": chain})
    return send("GET", path, check=_echo("address", address))


class Operations:
    """`base_url` is without `/v1`; `rpc_urls` are nodes by the name of their chain, for receipts; `retry_for` is
    the time in seconds for an operation with all its retries.
    """

    def __init__(self, base_url: str, api_key: str, signing_secret: str | None, rpc_urls: Mapping[str, str] | None,
                 retry_for: float) -> None:
        self._transport = Transport(base_url, api_key, signing_secret, retry_for)
        self._send = self._transport.send
        self._sandbox_ahead = 0
        self._rpc_urls = {name: Secret(url) for name, url in (rpc_urls or {}).items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.base_url!r})"

    @operation
    def request(self, method: Literal["GET", "POST", "PATCH", "DELETE"], path: str, body: Body | None = None, *,
                query: Mapping[str, object] | None = None, signed: bool = False,
                idempotency_key: str | None = None) -> Flow[Any]:
        """Any other route of the API, with the same retries: `request("GET", "/v1/webhook_endpoints")`."""
        return self._send(method, path_with(path, query or {}), body, key=idempotency_key, signed=signed)

    @operation
    def quote(self, request: api.QuoteRequest, *, idempotency_key: str | None = None) -> Flow[api.Quote]:
        """Candidates of an indicative quote, the best first; none means no liquidity now."""
        return self._send("POST", "/v1/quotes", request, key=idempotency_key,
                          check=_echo("requestId", request["requestId"]))

    @operation
    def firm_quote(self, request: api.FirmQuoteRequest, *,
                   idempotency_key: str | None = None) -> Flow[api.FirmQuote]:
        """A rate and fees that are locked until `validUntil`."""
        return self._send("POST", "/v1/quotes/firm", request, key=idempotency_key,
                          check=_echo("requestId", request["requestId"]))

    @operation
    def submit_intent(self, intent: Intent, *,
                      idempotency_key: str | None = None) -> Flow[api.AcceptedIntent | api.RejectedIntent]:
        """Submits an intent once, however often it has to be sent. A rejected one is an outcome, no error."""
        def check(answer: Body) -> bool:
            status = answer.get("status")
            decided = isinstance(answer.get("reason"), str) if status == "rejected" else status == "accepted"
            return decided and answer.get("intentId") == intent["intentId"]

        return self._send("POST", "/v1/intents", intent, key=idempotency_key, signed=True, check=check)

    @operation
    def cancel_intent(self, intent_id: str) -> Flow[api.IntentStatus]:
        """Cancels an intent that is not being executed."""
        return self._send("DELETE", f"/v1/intents/{encoded(intent_id, '')}", check=_echo("intentId", intent_id))

    @operation
    def intent_status(self, intent_id: str) -> Flow[api.IntentStatus]:
        return self._send("GET", f"/v1/intents/{encoded(intent_id, '')}/status", check=_echo("intentId", intent_id))

    @operation
    def sign_permit(self, *, asset: api.AssetDescriptor, amount_minor: str, owner: str, sign: Signer,
                    nonce: int | None = None, deadline: int | None = None) -> Flow[api.Permit]:
        """The permit of an intent that pays with a token, signed by its wallet.

        `asset` is the intent's input with the token's address, `amount_minor` the most that may be taken. Without a
        `nonce` the service is asked for the wallet's next one. `deadline` is in Unix seconds, six hours ahead without it.
        """
        chain = chain_of(asset, (yield from _chains(self._send)))
        text = (yield from _wallet(self._send, owner, chain["name"]))["nextNonce"] if nonce is None else str(nonce)
        now = self._transport.now() + self._sandbox_ahead
        return sign_permit(chain, now, asset, amount_minor, sign, text, deadline)

    @operation
    def wallet(self, address: str, chain: str | None = None) -> Flow[api.Wallet]:
        """A wallet's next permit nonce, balances and allowances."""
        return _wallet(self._send, address, chain)

    @operation
    def chains(self) -> Flow[list[api.Chain]]:
        """The chains, their contracts, and the accounts whose anchors count."""
        return _chains(self._send)

    @operation
    def pairs(self) -> Flow[list[api.Pair]]:
        """The pairs that are dealt in, with the exponents of their assets."""
        answer: api.PairsAnswer = yield from self._send("GET", "/v1/pairs")
        return answer["data"]

    @operation
    def execution(self, reference: str, *, ref_type: api.RefType = "clientReference") -> Flow[api.Execution]:
        return _execution(self._send, reference, ref_type)

    @operation
    def wait_for_execution(self, reference: str, *, ref_type: api.RefType = "clientReference", anchored: bool = False,
                           timeout: float = 300.0) -> Flow[api.Execution]:
        """The execution at its end, completed or failed; with `anchored` a completed one's receipt is on the chain."""
        end, pause = time.monotonic() + timeout, 0.5
        while True:
            execution = yield from _execution(self._send, reference, ref_type)
            awaits_anchor = anchored and execution["status"] == "completed" and execution["finality"] is None
            if execution["status"] != "in_progress" and not awaits_anchor:
                return execution
            if time.monotonic() + pause > end:
                raise DvpError(f"{reference} has not ended in time: {execution['status']}")
            yield Pause(pause)
            pause = min(1.5 * pause, 10.0)

    @operation
    def receipt(self, reference: str, *, ref_type: api.RefType = "clientReference") -> Flow[api.Receipt]:
        path = path_with(f"/v1/executions/{encoded(reference, '')}/receipt", {"refType": ref_type})
        check = None if ref_type == "executionId" else _echo("clientReference", reference)
        return self._send("GET", path, check=check)

    @operation
    def verify_receipt(self, receipt: api.Receipt, *, chains: Sequence[api.Chain] | None = None,
                       finality_depth: int | None = None, wait: float = 0.0) -> Flow[Verified | NotVerified]:
        """Verifies a receipt by its numbers and its anchor; with `chains` that you have kept, without the service.

        Its anchor's block may become final within `wait` seconds. `finality_depth`: blocks this far below the newest
        one are final, on a chain whose nodes know no finalized block.
        """
        known = (yield from _chains(self._send)) if chains is None else chains
        return (yield from verify(receipt, known, self._rpc_urls, finality_depth, wait))

    @stream
    def events(self, since: str | None = None, *, type: api.EventType | None = None, intent_id: str | None = None,
               grace: float = 5.0) -> Stream[Followed]:
        """Follows the feed of events for ever, also through outages of the service.

        `since` is the last `cursor` you kept; without it the feed begins 15 days ago. A missing event is waited for
        `grace` seconds before it counts as missing.
        """
        return follow(self._transport, since, type, intent_id, grace)

    @stream
    def reconciliation(self, first: str, last: str) -> Stream[api.Reconciliation]:
        """The pages of the report of a range of days, of one snapshot."""
        return self._pages("/v1/reconciliation", {"from": first, "to": last})

    @stream
    def daily_reconciliation(self, date: str) -> Stream[api.DailyReconciliation]:
        """The pages of the report of a day of UTC, as known at its end."""
        return self._pages("/v1/reports/reconciliation/daily", {"date": date})

    def _pages(self, path: str, query: Mapping[str, str]) -> Stream[Any]:
        cursor, has_more = None, True
        while has_more:
            page = yield from self._send("GET", path_with(path, {**query, "cursor": cursor}))
            yield Item(page)
            cursor, has_more = page["nextCursor"], page["hasMore"]

    @operation
    def register_webhook(self, endpoint: api.WebhookRegistration, *,
                         idempotency_key: str | None = None) -> Flow[api.WebhookRegistered]:
        """Registers the endpoint; its secret is in this answer only."""
        return self._send("POST", "/v1/webhook_endpoints", endpoint, key=idempotency_key)

    @operation
    def rotate_webhook_secret(self, *, idempotency_key: str | None = None) -> Flow[api.WebhookRotated]:
        """The next secret. Deliveries have the signatures of both until the time of grace is over."""
        return self._send("POST", "/v1/webhook_endpoints/rotate", key=idempotency_key)

    @operation
    def test_webhook(self, test: api.WebhookTest | None = None, *,
                     idempotency_key: str | None = None) -> Flow[api.WebhookQueued]:
        """Has a `test.ping` sent, or with a test key a made-up event of a type."""
        return self._send("POST", "/v1/webhook_endpoints/test", test, key=idempotency_key)

    @operation
    def sandbox_clock(self) -> Flow[api.SandboxClock]:
        """The time of a sandbox. Permits are signed by it from here on."""
        return self._clock("GET")

    @operation
    def advance_sandbox_clock(self, by: datetime | float) -> Flow[api.SandboxClock]:
        """Advances a sandbox's clock to a time, or by seconds; what becomes due on the way is done."""
        if not isinstance(by, datetime):
            now = datetime.fromisoformat((yield from self._clock("GET"))["now"].replace("Z", "+00:00"))
            by = now + timedelta(seconds=by)
        return (yield from self._clock("POST", {"advanceTo": by.astimezone().isoformat()}))

    def _clock(self, method: Literal["GET", "POST"], body: Body | None = None) -> Flow[api.SandboxClock]:
        clock: api.SandboxClock = yield from self._send(method, "/v1/sandbox/clock", body)
        self._sandbox_ahead = clock["aheadSeconds"]
        return clock
