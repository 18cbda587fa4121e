#!/usr/bin/env python3
"""Plays acceptance definitions of the QuickFIX project against an acceptor, and compares each answer field by field.

    tests/fix-acceptance/play.py --acceptor target/debug/examples/echo_acceptor DIRECTORY...

Each directory is one version of FIX. It gets an acceptor of its own, so that directories run side by side; the files of
one run one after another, because they share a session.

A definition is a script of lines. The first letter says what the line is, a number and a comma after it say on which
connection (1 without them), and the rest is its text:

    iCONNECT, iDISCONNECT    open a connection, or close it
    eDISCONNECT              the acceptor closes the connection, and sends nothing more
    I8=FIX.4.4...            send this message
    E8=FIX.4.4...            the acceptor sends this message next

<TIME> in a message is the current UTC time, <TIME-5> five seconds before it. A message to send gets the BodyLength(9)
and the CheckSum(10) that it lacks; what does not begin with BeginString(8) is sent as it is.
"""

import argparse
import asyncio
import datetime
import pathlib
import re
import sys
import tempfile

SOH = b"\x01"
# A definition that waits for a silent peer takes 35 s, with 7 s between two messages.
MESSAGE_WITHIN = 60
CLOSED_WITHIN = 20
STARTED_WITHIN = 60

# Times differ in each run: their form is compared.
TIME = re.compile(rb"\d{8}-\d{2}:\d{2}:\d{2}(\.\d{3})?")
TIMES = (b"42", b"52", b"60", b"122")

# (BeginString, DefaultApplVerID, CompID, more). Releases before 1.16 name every client TW.
SESSIONS = [
    (begin, version, comp_id, more)
    for begin, version, own in (
        ("FIX.4.2", None, "TW42"),
        ("FIX.4.4", None, "TW44"),
        ("FIXT.1.1", "FIX.5.0SP2", "TW50SP2"),
    )
    for comp_id, more in (("TW", ""), (own, ""))
] + [("FIX.4.4", None, "NO_CHECK_FIELDS_HAVE_VALUES", "validate_fields_have_values = false")]


class Failed(Exception):
    """The acceptor did not do what the definition says."""


def settings():
    lines = ['listen = "127.0.0.1:0"', 'comp_id = "ISLD"', "reset_on_logon = true", "max_latency_secs = 120",
             'profile = "quickfix"', 'store = "memory"']
    for begin, version, comp_id, more in SESSIONS:
        lines += ["[[session]]", f'begin_string = "{begin}"', f'target_comp_id = "{comp_id}"', more]
        if version:
            lines.append(f'default_appl_ver_id = "{version}"')
    return "\n".join(lines) + "\n"


def with_times(text):
    now = datetime.datetime.now(datetime.timezone.utc)

    def moment(found):
        at = now + datetime.timedelta(seconds=int(found[1] or 0))
        return at.strftime("%Y%m%d-%H:%M:%S").encode()

    return re.sub(rb"<TIME([+-]\d+)?>", moment, text)


def fields(message):
    """Tags and values, in order."""
    return [tuple(field.partition(b"=")[::2]) for field in message.rstrip(SOH).split(SOH)]


def completed(text):
    """The message as it is sent: with the BodyLength and the CheckSum that the definition leaves to the runner."""
    begin, separator, rest = text.partition(SOH)
    if not begin.startswith(b"8=") or not separator:
        return text
    trailer = re.search(rb"(?:^|(?<=\x01))10=[^\x01]*\x01$", rest)
    if not any(tag == b"9" for tag, _ in fields(rest)):
        counted = trailer.start() if trailer else len(rest)
        rest = b"9=%d\x01" % counted + rest
    message = begin + SOH + rest
    return message if trailer else message + b"10=%03d\x01" % (sum(message) % 256)


def check_frame(message):
    """The acceptor's BodyLength and CheckSum must be correct in every comparison."""
    body = re.match(rb"8=[^\x01]*\x019=(\d+)\x01(.*\x01)10=(\d{3})\x01$", message, re.DOTALL)
    if not body:
        raise Failed(f"not a message: {readable(message)}")
    if int(body[1]) != len(body[2]):
        raise Failed(f"BodyLength is {body[1].decode()}, but its body has {len(body[2])} bytes: {readable(message)}")
    if int(body[3]) != sum(message[:-7]) % 256:
        raise Failed(f"CheckSum is wrong: {readable(message)}")


def compare(expected, received):
    check_frame(received)
    wanted, given = fields(expected), fields(received)
    for (tag, value), (given_tag, given_value) in zip(wanted, given):
        if tag != given_tag:
            raise Failed(f"tag {tag.decode()} is expected where tag {given_tag.decode()} is")
        is_right = TIME.fullmatch(given_value) if tag in TIMES else tag == b"10" or value == given_value
        if not is_right:
            raise Failed(f"tag {tag.decode()} is {readable(given_value)}, not {readable(value)}")
    if len(wanted) != len(given):
        raise Failed(f"{len(given)} fields, not {len(wanted)}")


def readable(message):
    return message.replace(SOH, b"|").decode(errors="backslashreplace")


class Connection:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, address):
        return cls(*await asyncio.open_connection(*address))

    async def send(self, message):
        self.writer.write(message)
        await self.writer.drain()

    async def message(self):
        async def whole():
            head = await self.reader.readuntil(SOH) + await self.reader.readuntil(SOH)
            length = re.search(rb"\x019=(\d+)\x01$", head)
            if not length:
                raise Failed(f"not a message: {readable(head)}")
            return head + await self.reader.readexactly(int(length[1])) + await self.reader.readuntil(SOH)

        try:
            return await asyncio.wait_for(whole(), MESSAGE_WITHIN)
        except asyncio.TimeoutError:
            raise Failed(f"no message within {MESSAGE_WITHIN} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Failed("the connection was closed") from None

    async def closed(self):
        try:
            received = await asyncio.wait_for(self.reader.read(65536), CLOSED_WITHIN)
        except asyncio.TimeoutError:
            raise Failed(f"the connection is still open after {CLOSED_WITHIN} s") from None
        except ConnectionError:
            return
        if received:
            raise Failed(f"not closed: {readable(received)}")

    def close(self):
        self.writer.close()


async def step(line, address, connections):
    kind, number, text = re.match(rb"([A-Za-z])(?:(\d),)?(.*)", line, re.DOTALL).groups()
    number = int(number or 1)
    if kind == b"i" and text == b"CONNECT":
        connections[number] = await Connection.open(address)
    elif kind == b"i" and text == b"DISCONNECT":
        connections.pop(number).close()
    elif kind == b"e" and text == b"DISCONNECT":
        await connections[number].closed()
    elif kind == b"I":
        await connections[number].send(completed(with_times(text)))
    elif kind == b"E":
        expected = completed(with_times(text))
        received = await connections[number].message()
        try:
            compare(expected, received)
        except Failed as failed:
            raise Failed(f"{failed}\n    expected {readable(expected)}\n    received {readable(received)}") from None
    elif (kind, text) != (b"e", b"CONNECT"):
        raise Failed(f"this line is not understood: {readable(line)}")


async def play(path, address):
    """What went wrong; None when nothing did."""
    connections = {}
    try:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if line.strip() and not line.startswith(b"#"):
                try:
                    await step(line, address, connections)
                except (Failed, OSError) as failed:
                    return f"line {number}: {failed}"
    finally:
        for connection in connections.values():
            connection.close()
    return None


async def play_directory(directory, acceptor):
    """The names of the definitions, and those that failed with the reason."""
    paths, failures = sorted(directory.glob("*.def")), {}
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(settings())
        config.flush()
        server = await asyncio.create_subprocess_exec(
            acceptor, "--config", config.name, stdout=asyncio.subprocess.PIPE)
        try:
            said = (await asyncio.wait_for(server.stdout.readline(), STARTED_WITHIN)).decode()
            if not said.startswith("listening "):
                sys.exit(f"{acceptor} does not start: it says {said!r}")
            host, _, port = said.split()[1].rpartition(":")
            for path in paths:
                failed = await play(path, (host, int(port)))
                if failed:
                    failures[path.name] = failed
        finally:
            if server.returncode is None:
                server.kill()
            await server.wait()
    print(f"{directory.name}: {len(paths) - len(failures)} of {len(paths)} definitions pass", flush=True)
    return len(paths), failures


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acceptor", required=True, help="the echo_acceptor example, built")
    parser.add_argument("directory", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    for directory in args.directory:
        if not any(directory.glob("*.def")):
            sys.exit(f"{directory} has no definitions (*.def)")
    played = await asyncio.gather(*(play_directory(directory, args.acceptor) for directory in args.directory))
    total, failed = sum(count for count, _ in played), sum(len(failures) for _, failures in played)
    for directory, (_, failures) in zip(args.directory, played):
        for name, reason in failures.items():
            print(f"{directory.name}/{name}: {reason}", file=sys.stderr)
    print(f"{total - failed} of {total} definitions pass")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    asyncio.run(main())
