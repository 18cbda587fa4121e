"""The two clients: the same flows, driven by calls that block and by calls that are awaited."""
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TypeVar

import httpx

from . import api
from ._operations import Operations
from ._transport import Flow, Item, NoReply, Pause, Reply, Request, Stream, Told
from .receipt import NotVerified, Verified, verify

T = TypeVar("T")

ATTEMPT_SECONDS = 15.0


class Client(Operations):
    __doc__ = f"A partner's client of the service. Amounts are texts of minor units.\n\n    {Operations.__doc__}"

    def __init__(self, base_url: str, api_key: str, signing_secret: str | None = None, *,
                 rpc_urls: Mapping[str, str] | None = None, retry_for: float = 60.0,
                 http: httpx.Client | None = None) -> None:
        super().__init__(base_url, api_key, signing_secret, rpc_urls, retry_for)
        self._http = http or httpx.Client(timeout=ATTEMPT_SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _run(self, flow: Flow[T]) -> T:
        told: Told = None
        while True:
            try:
                effect = flow.send(told)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            told = self._do(effect)

    def _each(self, stream: Stream[T]) -> Iterator[T]:
        told: Told = None
        while True:
            try:
                effect = stream.send(told)
            except StopIteration:
                return
            told = None
            if isinstance(effect, Item):
                yield effect.value
            else:
                told = self._do(effect)

    def _do(self, effect: Request | Pause) -> Told:
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
            return None
        end, content = time.monotonic() + ATTEMPT_SECONDS, b""
        try:
            with self._http.stream(effect.method, effect.url, headers=effect.headers, content=effect.content,
                                   follow_redirects=False) as response:
                # httpx bounds the wait for each part of an answer, not that for the whole.
                for part in response.iter_bytes():
                    content += part
                    if time.monotonic() > end:
                        return NoReply("ReadTimeout")
                return Reply(response.status_code, dict(response.headers), content)
        except httpx.HTTPError as error:
            # The error itself holds the request with its headers.
            return NoReply(type(error).__name__)


class AsyncClient(Operations):
    __doc__ = f"The same with `await`, for asyncio.\n\n    {Operations.__doc__}"

    def __init__(self, base_url: str, api_key: str, signing_secret: str | None = None, *,
                 rpc_urls: Mapping[str, str] | None = None, retry_for: float = 60.0,
                 http: httpx.AsyncClient | None = None) -> None:
        super().__init__(base_url, api_key, signing_secret, rpc_urls, retry_for)
        self._http = http or httpx.AsyncClient(timeout=ATTEMPT_SECONDS)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        told: Told = None
        while True:
            try:
                effect = flow.send(told)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            told = await self._do(effect)

    async def _each(self, stream: Stream[T]) -> AsyncIterator[T]:
        told: Told = None
        while True:
            try:
                effect = stream.send(told)
            except StopIteration:
                return
            told = None
            if isinstance(effect, Item):
                yield effect.value
            else:
                told = await self._do(effect)

    async def _do(self, effect: Request | Pause) -> Told:
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
            return None
        sent = self._http.request(effect.method, effect.url, headers=effect.headers, content=effect.content,
                                  follow_redirects=False)
        try:
            response = await asyncio.wait_for(sent, ATTEMPT_SECONDS)
        except (httpx.HTTPError, asyncio.TimeoutError) as error:
            return NoReply(type(error).__name__)
        return Reply(response.status_code, dict(response.headers), response.content)


def verify_receipt(receipt: api.Receipt, *, chains: Sequence[api.Chain], rpc_urls: Mapping[str, str],
                   finality_depth: int | None = None, wait: float = 0.0) -> Verified | NotVerified:
    """Verifies a receipt by its numbers and its anchor, without the service and without a key."""
    with Client("http://none", "none") as client:
        return client._run(verify(receipt, chains, rpc_urls, finality_depth, wait))
