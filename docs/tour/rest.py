"""Firm quote, signed intent, status, receipt, and the receipt's hash on the chain.

Usage: rest.py DIR [ACCOUNT]
"""
import hashlib
import hmac
import json
import sys
import time
import urllib.error
import urllib.request
import uuid

from sandbox import AMOUNT, load, permit, rpc

sandbox = load(sys.argv[1])
account = sys.argv[2] if len(sys.argv) > 2 else "000123456789"
partner, chain = sandbox["partner"], sandbox["chain"]


def call(method, path, body=None, signed=False):
    raw = b"" if body is None else json.dumps(body).encode()
    headers = {"X-API-Key": partner["apiKey"]}
    if method == "POST":
        headers |= {"Content-Type": "application/json", "X-Idempotency-Key": str(uuid.uuid4())}
    if signed:
        at, nonce = str(int(time.time())), uuid.uuid4().hex
        canonical = method.encode() + path.encode() + at.encode() + nonce.encode() + raw
        signature = hmac.new(partner["signingSecret"].encode(), canonical, hashlib.sha256).hexdigest()
        headers |= {"X-Timestamp": at, "X-Nonce": nonce, "X-Signature": signature}
    request = urllib.request.Request(sandbox["http"] + path, raw or None, headers, method=method)
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as refused:
        answer = refused
    body = json.load(answer)
    print(f"{method} {path} -> {answer.status}\n{json.dumps(body, indent=2)}\n")
    return body


usdc = {"type": "erc20", "symbol": "USDC", "address": chain["tokens"][0]["address"], "chain": chain["name"]}
usd = {"type": "fiat", "symbol": "USD", "currency": "USD"}
quote = call("POST", "/v1/quotes/firm", {
    "requestId": str(uuid.uuid4()), "actorId": "me", "inputAsset": usdc, "outputAsset": usd,
    "amountMinor": str(AMOUNT), "amountType": "source",
})

authorization = permit(sandbox, 0)
intent = str(uuid.uuid4())
reference = f"tour-{intent[:8]}"
call("POST", "/v1/intents", {
    "intentId": intent, "clientReference": reference, "user": chain["wallets"][0]["address"],
    "inputAsset": usdc, "outputAsset": usd, "inputAmountMinor": str(AMOUNT),
    "minOutputAmountMinor": quote["output"]["amountMinor"], "quoteId": quote["quoteId"],
    "deadline": int(time.time() * 1000) + 3_600_000, "settlementType": "hybrid",
    "beneficiary": {"account": account, "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
    "permit": authorization,
}, signed=True)

for _ in range(60):
    time.sleep(1)
    execution = call("GET", f"/v1/executions/{reference}")
    if execution["finality"] or execution["status"] == "failed":
        break

if execution["status"] == "completed":
    receipt = call("GET", f"/v1/executions/{reference}/receipt")
    body = {key: value for key, value in receipt.items() if key not in ("txHash", "finality")}
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = "0x" + hashlib.sha256(canonical.encode()).hexdigest()
    found = rpc(sandbox, "eth_getLogs", [
        {"fromBlock": "0x0", "address": chain["contracts"]["anchor"], "topics": [None, digest]},
    ])
    print(f"receipt hash {digest}\nAnchored events with it: {len(found)}, transaction {receipt['txHash']}")
