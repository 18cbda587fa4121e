#!/usr/bin/env python3
"""An institution with QuickFIX: our published dictionaries, every check switched on, the three versions.

    tests/quickfix/run                      # builds the client, starts a sandbox, runs this
    target/quickfix-py/bin/python tests/quickfix/engage.py --dvp target/debug/dvp --sandbox .dvp/sandbox.json

In each version: a firm quote and the order that takes it, an order locked with a permit, orders that are followed
across a disconnect, a cancellation, states, refusals. It ends with 1 when anything is not as agreed, or when QuickFIX
has rejected a message of the service.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from decimal import ROUND_DOWN, Decimal

import quickfix as fix
from eth_account import Account

PATIENCE = 60
VERSIONS = {
    "FIX.4.2": ["FIX.4.2"],
    "FIX.4.4": ["FIX.4.4"],
    "FIXT.1.1": ["FIXT.1.1", "FIX.5.0SP2"],
}
SETTINGS = """[DEFAULT]
ConnectionType=initiator
ReconnectInterval=1
HeartBtInt=10
StartTime=00:00:00
EndTime=00:00:00
UseDataDictionary=Y
ValidateFieldsOutOfOrder=Y
ValidateFieldsHaveValues=Y
ValidateUserDefinedFields=Y
AllowUnknownMsgFields=N
ResetOnLogon={reset}
FileStorePath={store}
FileLogPath={log}

[SESSION]
BeginString={begin}
SenderCompID={sender}
TargetCompID={target}
SocketConnectHost={host}
SocketConnectPort={port}
{dictionaries}
"""


class Client(fix.Application):
    """Keeps the received messages; QuickFIX itself records those that it rejects."""

    def __init__(self, session):
        super().__init__()
        self.session = session
        self.id = None
        self.received = []
        self.rejections = []
        self.condition = threading.Condition()
        self.up = False

    def onCreate(self, session_id):
        self.id = fix.SessionID(
            session_id.getBeginString().getString(),
            session_id.getSenderCompID().getString(),
            session_id.getTargetCompID().getString(),
        )

    def onLogon(self, _):
        with self.condition:
            self.up = True
            self.condition.notify_all()

    def onLogout(self, _):
        with self.condition:
            self.up = False
            self.condition.notify_all()

    def toAdmin(self, message, _):
        kind = message.getHeader().getField(35)
        if kind == "A":
            message.setField(553, self.session["username"])
            message.setField(554, self.session["password"])
        if kind in ("3", "j"):
            self.rejections.append(readable(message))

    def toApp(self, message, _):
        if message.getHeader().getField(35) in ("3", "j"):
            self.rejections.append(readable(message))

    def fromAdmin(self, message, _):
        if message.getHeader().getField(35) == "3":
            self.note(message)

    def fromApp(self, message, _):
        self.note(message)

    def note(self, message):
        fields = [part.split("=", 1) for part in message.toString().split("\x01") if part]
        with self.condition:
            self.received.append({int(tag): value for tag, value in fields})
            self.condition.notify_all()

    def send(self, kind, fields, groups=()):
        message = fix.Message()
        message.getHeader().setField(8, self.session["beginString"])
        message.getHeader().setField(35, kind)
        for tag, value in fields:
            message.setField(tag, str(value))
        for group in groups:
            message.addGroup(group)
        assert fix.Session.sendToTarget(message, self.id), "not sent"

    def wait(self, what, wanted):
        """The first message that is as wanted; each is given once."""
        deadline = time.monotonic() + PATIENCE
        with self.condition:
            while True:
                for at, message in enumerate(self.received):
                    if wanted(message):
                        return self.received.pop(at)
                left = deadline - time.monotonic()
                if left <= 0:
                    fail(f"{self.session['beginString']}: waited too long for {what}: {self.received}")
                self.condition.wait(left)

    def wait_for(self, up):
        with self.condition:
            if not self.condition.wait_for(lambda: self.up == up, PATIENCE):
                fail(f"{self.session['beginString']}: not {'up' if up else 'down'}")


def fail(text):
    """Ends at once: QuickFIX's threads do not survive an interpreter that winds down."""
    print(text, file=sys.stderr, flush=True)
    os._exit(1)


def readable(message):
    return message.toString().replace("\x01", "|")


def now():
    return time.strftime("%Y%m%d-%H:%M:%S", time.gmtime()) + ".000"


def rpc(url, method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["result"]


def wait_until_completed(ready, client_reference):
    url = f"{ready['http']}/v1/executions/{client_reference}"
    request = urllib.request.Request(url, headers={"X-API-Key": ready["partner"]["apiKey"]})
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with urllib.request.urlopen(request) as answer:
            if json.load(answer)["status"] == "completed":
                return
        time.sleep(0.2)
    fail(f"{client_reference} does not complete")


def permit(chain, wallet, amount):
    """Fields 20001 to 20003: the escrow may take so much, once."""
    # nonces(address)
    call = {"to": chain["contracts"]["permit"], "data": "0x7ecebe00" + wallet["address"][2:].rjust(64, "0")}
    nonce = int(rpc(chain["rpcUrl"], "eth_call", [call, "latest"]), 16)
    deadline = int(time.time()) + 7200
    token = next(token for token in chain["tokens"] if token["symbol"] == "USDC")
    member = lambda name, kind: {"name": name, "type": kind}
    signed = Account.from_key(wallet["privateKey"]).sign_typed_data(full_message={
        "primaryType": "PermitSingle",
        "types": {
            "EIP712Domain": [member("name", "string"), member("version", "string"),
                             member("chainId", "uint256"), member("verifyingContract", "address")],
            "PermitSingle": [member("token", "address"), member("amount", "uint256"), member("spender", "address"),
                             member("nonce", "uint256"), member("deadline", "uint256")],
        },
        "domain": {"name": chain["permitName"], "version": "1", "chainId": chain["chainId"],
                   "verifyingContract": chain["contracts"]["permit"]},
        "message": {"token": token["address"], "amount": amount, "spender": chain["contracts"]["escrow"],
                    "nonce": nonce, "deadline": deadline},
    })
    return [(20001, nonce), (20002, deadline), (20003, "0x" + signed.signature.hex().removeprefix("0x"))]


def order(cl_ord_id, account, symbol="USD/EUR", quantity="100", terms=((40, 1),), more=()):
    return [(1, account), (11, cl_ord_id), (21, 1), (38, quantity), (54, 2), (55, symbol), (60, now()),
            *terms, *more]


def engage(client, ready, wallet, prefix):
    """The requests of an institution, and the answers."""
    is_42 = client.session["beginString"] == "FIX.4.2"
    fill = "2" if is_42 else "F"
    straight, slow, rests = (f"bene_q:dest_1000{end}" for end in ("0000", "0001", "0008"))
    report = lambda id, kind: lambda m: m[35] == "8" and m.get(11) == id and m.get(150) == kind

    group = fix.Group(146, 55)
    for tag, value in ((55, "USD/EUR"), (54, "2"), (38, "100")):
        group.setField(tag, value)
    client.send("R", [(131, prefix + "q")], [group])
    quote = client.wait("a quote", lambda m: m[35] == "S" and m[131] == prefix + "q")
    client.send("D", order(prefix + "firm", straight, terms=((40, "D"), (117, quote[117]))))
    filled = client.wait("its fill", report(prefix + "firm", fill))
    # A book: gross less what is deducted is what came in, which the quote's price has said.
    number = lambda tag: Decimal(filled.get(tag, "0"))
    net = number(119 if is_42 else 118)
    assert net == number(381) - number(12) - number(137), filled
    assert net == (number(32) * Decimal(quote[132])).quantize(Decimal("0.01"), ROUND_DOWN), (filled, quote)

    signed = permit(ready["chain"], wallet, 100_000_000)
    client.send("D", order(prefix + "locked", straight, "USDC/USD", "100", ((40, 2), (44, "0.9")), signed))
    client.wait("a new order", report(prefix + "locked", "0"))
    client.wait("its fill", report(prefix + "locked", fill))

    client.send("D", order(prefix + "rests", rests, "USDC/USD", "100", ((40, 2), (44, "0.9")),
                           permit(ready["chain"], wallet, 100_000_000)))
    client.wait("a new order", report(prefix + "rests", "0"))
    if not is_42:
        client.send("AF", [(584, prefix + "m"), (585, 7)])
        resting = client.wait("open orders", lambda m: m.get(584) == prefix + "m" and m.get(912) == "Y")
        assert resting[150] == "I" and int(resting[911]) >= 1, resting
    client.send("F", [(11, prefix + "c"), (38, "100"), (41, prefix + "rests"), (54, 2), (55, "USDC/USD"), (60, now())])
    client.wait("a cancellation", report(prefix + "c", "4"))

    # Away while an order goes its way.
    client.send("D", order(prefix + "away", slow))
    client.wait("a new order", report(prefix + "away", "0"))
    yield
    client.wait("a fill from the time away", report(prefix + "away", fill))

    client.send("H", [(11, prefix + "away"), (54, 2), (55, "USD/EUR")])
    status = client.wait("a status", lambda m: m[35] == "8" and m.get(11) == prefix + "away" and m[39] == "2")
    assert (status.get(20) == "3") if is_42 else (status[150] == "I"), status
    client.send("D", order(prefix + "away", slow))
    duplicate = client.wait("a refusal", report(prefix + "away", "8"))
    assert duplicate[103] == "6", duplicate
    client.send("F", [(11, prefix + "c2"), (38, "100"), (41, "nothing"), (54, 2), (55, "USD/EUR"), (60, now())])
    assert client.wait("a refusal", lambda m: m[35] == "9")[102] == "1"
    group = fix.Group(146, 55)
    for tag, value in ((55, "GOLD/USD"), (54, "2"), (38, "100")):
        group.setField(tag, value)
    client.send("R", [(131, prefix + "q2")], [group])
    client.wait("a refused quote", lambda m: m[35] in ("AG", "b") and m[131] == prefix + "q2")
    client.send("6", [(23, "1"), (28, "N"), (54, 2), (55, "USD/EUR"), (27, "S")])
    assert client.wait("a refusal", lambda m: m[35] == "j")[380] == "3"


def run(ready, number, session, dictionaries, folder):
    begin = session["beginString"]
    if begin == "FIXT.1.1":
        names = f"DefaultApplVerID=9\nTransportDataDictionary={dictionaries['FIXT.1.1']}\n" \
                f"AppDataDictionary={dictionaries['FIX.5.0SP2']}"
    else:
        names = f"DataDictionary={dictionaries[begin]}"
    config = folder / f"{begin}.cfg"
    log = folder / f"{begin}.log"
    client = Client(session)
    prefix = f"{int(time.time())}-"
    steps = engage(client, ready, ready["chain"]["wallets"][number], prefix)
    # Numbers begin anew once, and go on after the disconnect.
    for reset in ("Y", "N"):
        config.write_text(SETTINGS.format(
            store=folder / f"{begin}.store", log=log, begin=begin, sender=session["senderCompId"], reset=reset,
            target=session["targetCompId"], host=ready["fix"]["host"], port=ready["fix"]["port"],
            dictionaries=names))
        settings = fix.SessionSettings(str(config))
        stores, logs = fix.FileStoreFactory(settings), fix.FileLogFactory(settings)
        initiator = fix.SocketInitiator(client, stores, settings, logs)
        initiator.start()
        client.wait_for(True)
        next(steps, None)
        initiator.stop()
        client.wait_for(False)
        # It must go before the factories that it refers to.
        del initiator
        # The order is filled while the client is disconnected.
        wait_until_completed(ready, prefix + "away")
    events = "".join(path.read_text() for path in log.glob("*event*"))
    wrong = [line for line in events.splitlines() if "Reject" in line or "Invalid" in line]
    if client.rejections or wrong:
        fail(f"{begin}: QuickFIX rejected {client.rejections} {wrong}")
    print(f"{begin}: as agreed, nothing rejected")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dvp", required=True, help="the binary, which has the dictionaries")
    parser.add_argument("--sandbox", required=True, help="a running sandbox's sandbox.json")
    args = parser.parse_args()
    ready = json.loads(pathlib.Path(args.sandbox).read_text())
    # The name in the permit contract's EIP-712 domain: name() gives it.
    call = {"to": ready["chain"]["contracts"]["permit"], "data": "0x06fdde03"}
    encoded = bytes.fromhex(rpc(ready["chain"]["rpcUrl"], "eth_call", [call, "latest"])[2:])
    ready["chain"]["permitName"] = encoded[64:64 + int.from_bytes(encoded[32:64])].decode()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        dictionaries = {}
        for version in {name for names in VERSIONS.values() for name in names}:
            path = folder / f"{version}.xml"
            command = [args.dvp, "fix-session", "dictionary", "--version", version]
            path.write_bytes(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            dictionaries[version] = path
        for number, session in enumerate(ready["fix"]["sessions"]):
            run(ready, number, session, dictionaries, folder)


if __name__ == "__main__":
    main()
