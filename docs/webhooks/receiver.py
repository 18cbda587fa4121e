"""Receives dvp webhooks. Needs Python 3.9 and nothing else.

    WEBHOOK_SECRET=whsec_… PORT=3000 python3 receiver.py
"""
import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE_SECONDS = 300
BODY_BYTES_MAX = 64 * 1024


def verify(secret: str, header: str, body: bytes, now: float) -> bool:
    """Whether a delivery is genuine: one v1 matches the raw body, and t is near."""
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    given = [value for name, _, value in parts if name == "v1"]
    if len(times) != 1 or not times[0].isascii() or not times[0].isdigit():
        return False
    signed = times[0].encode() + b"." + body
    # The whole secret is the key, whsec_ included.
    ours = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    matches = [hmac.compare_digest(ours.encode(), value.encode()) for value in given]
    return any(matches) and abs(now - int(times[0])) <= TOLERANCE_SECONDS


class Receiver(BaseHTTPRequestHandler):
    seen: set = set()  # A database table with a unique id, in earnest.

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        if length > BODY_BYTES_MAX:
            return self.answer(413)
        body = self.rfile.read(length)
        header = self.headers.get("svc-signature", "")
        if not verify(os.environ["WEBHOOK_SECRET"], header, body, time.time()):
            return self.answer(401)
        event = json.loads(body)
        if event["id"] not in self.seen:
            self.seen.add(event["id"])
            print("handled", event["id"], flush=True)
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Receiver)
    print("listening", server.server_port, flush=True)
    sys.exit(server.serve_forever())
