"""An order through FIX to Filled, and one that rests and is cancelled. Usage: fix.py DIR"""
import socket
import sys
import time
import uuid

import simplefix

from sandbox import load, permit

sandbox = load(sys.argv[1])
session = sandbox["fix"]["sessions"][0]
connection = socket.create_connection((sandbox["fix"]["host"], sandbox["fix"]["port"]))
connection.settimeout(60)
parser = simplefix.FixParser()
sequence = 0


def now():
    return time.strftime("%Y%m%d-%H:%M:%S", time.gmtime())


def send(kind, *fields):
    global sequence
    sequence += 1
    message = simplefix.FixMessage()
    header = [(8, session["beginString"]), (35, kind), (49, session["senderCompId"]),
              (56, session["targetCompId"]), (34, sequence), (52, now())]
    for tag, value in [*header, *fields]:
        message.append_pair(tag, value)
    connection.sendall(message.encode())


def receive():
    while (message := parser.get_message()) is None:
        data = connection.recv(4096)
        if not data:
            sys.exit("the session was closed")
        parser.append_buffer(data)
    print("|".join(f"{tag.decode()}={value.decode()}" for tag, value in message.pairs))
    return message


def order(name, account, wallet):
    signed = permit(sandbox, wallet)
    send("D", (11, name), (1, account), (55, "USDC/USD"), (54, 2), (60, now()), (38, "100"), (40, 2),
         (44, "0.99"), (59, 0), (20001, signed["nonce"]), (20002, signed["deadline"]),
         (20003, signed["signature"]))


def until(*order_statuses):
    while receive().get(39) not in [status.encode() for status in order_statuses]:
        pass


send("A", (98, 0), (108, 30), (141, "Y"), (553, session["username"]), (554, session["password"]))
receive()

straight = f"TOUR-{uuid.uuid4().hex[:8]}"
order(straight, sandbox["beneficiaries"][0], 1)
until("2", "8")

resting = f"TOUR-{uuid.uuid4().hex[:8]}"
order(resting, next(b for b in sandbox["beneficiaries"] if b.endswith("0008")), 2)
until("0", "8")
send("F", (11, f"{resting}-C"), (41, resting), (55, "USDC/USD"), (54, 2), (60, now()), (38, "100"))
until("4", "8")

send("5")
receive()
