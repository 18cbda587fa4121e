"""A server that gives scripted answers, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# By name: tests replace the module's.
from time import sleep


@dataclass
class Seen:
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]
    # Bytes that are promised and do not come.
    short: int = 0
    # Seconds before each byte.
    pace: float = 0.0


Script = Callable[[Seen], Answer | None]


def answer(
    status: int,
    body: bytes | str,
    headers: dict[str, str] | None = None,
    short: int = 0,
    kind: str = "application/json",
) -> Script:
    raw = body.encode() if isinstance(body, str) else body
    return lambda seen: Answer(status, raw, {"Content-Type": kind, **(headers or {})}, short)


def as_json(status: int, body: object, headers: dict[str, str] | None = None) -> Script:
    return answer(status, json.dumps(body), headers)


def drop(seen: Seen) -> None:
    """No answer at all."""


def error(status: int, code: str, headers: dict[str, str] | None = None, **more: str) -> Script:
    detail = {"code": code, "message": "no", "docUrl": f"/docs/errors/{code}", "requestId": "r-1", **more}
    return as_json(status, {"success": False, "error": detail}, headers)


@contextmanager
def fake(*scripts: Script) -> Iterator[tuple[str, list[Seen]]]:
    """Answers one after the other; the last one again and again."""
    seen: list[Seen] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            one = Seen(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            seen.append(one)
            given = scripts[min(len(seen), len(scripts)) - 1](one)
            self.close_connection = True
            if given is None:
                return
            self.send_response_only(given.status)
            for name, value in given.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(given.body) + given.short))
            self.end_headers()
            for at in range(len(given.body)) if given.pace else ():
                sleep(given.pace)
                try:
                    self.wfile.write(given.body[at : at + 1])
                except OSError:
                    return
            if not given.pace:
                self.wfile.write(given.body)

        do_GET = do_POST = do_DELETE = do_PATCH = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
