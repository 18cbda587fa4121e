"""The feed of events, followed for ever."""
from __future__ import annotations

import time
from typing import NamedTuple

from ._transport import Body, Flow, Item, Pause, Stream, Transport, path_with
from .api import Event, EventPage, EventType


class Followed(NamedTuple):
    event: Event
    # Keep it once the event is dealt with: from here on nothing is left out, and at most one page comes again.
    cursor: str | None
    # Events of the same intent before this one that the feed does not have: by `sequence`, and none as a rule.
    missing: list[int]


def follow(transport: Transport, since: str | None, type: EventType | None, intent_id: str | None,
           grace: float) -> Stream[Followed]:
    """Each intent's events come in the order of `sequence`; missing ones are asked for."""
    # The last `sequence` of each intent that is under way.
    last: dict[str, int] = {}
    cursor = since
    while True:
        asked = time.monotonic()
        page = yield from _page(transport, since=cursor, type=type, intentId=intent_id, limit=100, wait=8)
        for index, event in enumerate(page["data"]):
            intent, sequence = event["intentId"], event["sequence"]
            # Of a single type, and of a made-up event, the events before are not in the feed.
            before = last.get(intent) if type is None else None
            if before is not None and sequence <= before:
                continue
            missing: list[int] = []
            if before is not None and sequence > before + 1:
                found, missing = yield from _recover(transport, intent, range(before + 1, sequence), grace)
                for each in found:
                    yield Item(Followed(each, cursor, []))
            if event["isTerminal"] or intent.startswith("sample_"):
                last.pop(intent, None)
            else:
                last[intent] = sequence
            is_last = index == len(page["data"]) - 1
            yield Item(Followed(event, page["nextCursor"] if is_last else cursor, missing))
        cursor = page["nextCursor"]
        # Something between may answer at once in place of the service.
        if not page["data"] and time.monotonic() - asked < 1:
            yield Pause(1.0)


def _page(transport: Transport, since: str | None, **query: object) -> Flow[EventPage]:
    def check(answer: Body) -> bool:
        data, following = answer.get("data"), answer.get("nextCursor")
        return isinstance(data, list) and isinstance(following, str) and (not data or following != since)

    path = path_with("/v1/events", {"since": since, **query})
    page: EventPage = yield from transport.send("GET", path, check=check, for_ever=True)
    return page


def _recover(transport: Transport, intent: str, wanted: range, grace: float) -> Flow[tuple[list[Event], list[int]]]:
    """The wanted events of an intent, and which of them are not there even after a time."""
    end = time.monotonic() + grace
    while True:
        found: dict[int, Event] = {}
        since, has_more = None, True
        while has_more:
            page = yield from _page(transport, since=since, intentId=intent, limit=100)
            found |= {event["sequence"]: event for event in page["data"]}
            since, has_more = page["nextCursor"], page["hasMore"]
        missing = [sequence for sequence in wanted if sequence not in found]
        if not missing or time.monotonic() > end:
            return [found[sequence] for sequence in wanted if sequence in found], missing
        yield Pause(1.0)
