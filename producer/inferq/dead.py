"""The dead list: requests given up on, and what can still be done with them.

An entry is a line of JSON (``reason``, ``code``, ``attempts``, ``at_ms``, ``id`` if known,
``bytes``), a newline, and the message as it was, cut if it was huge. Changes go through scripts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from inferq.contract import scripts
from inferq.contract.errors import InvalidRequest, NotFound
from inferq.contract.keys import Keys, check_model
from inferq.contract.requests import Refusal, RequestReader
from inferq.redis_link import Link, call, command

_MARK_MS = 86_400_000
# No limit of ours: the message has been on the list before.
_ANY_SIZE = 2**62


@dataclass(frozen=True)
class DeadEntry:
    """One entry.

    Attributes:
        place: from 1, the newest, on.
        raw: the entry as it is on the list.
        note: its line of JSON; empty if that cannot be read.
        message: the request's bytes, possibly cut.
    """

    place: int
    raw: bytes
    note: dict[str, Any]
    message: bytes

    @staticmethod
    def parse(place: int, raw: bytes) -> "DeadEntry":
        """Take an entry apart; whatever is on the list can be shown and dropped."""
        line, _, message = raw.partition(b"\n")
        try:
            note = from_json(line)
        except ValueError:
            note = {}
        return DeadEntry(place, raw, note if isinstance(note, dict) else {}, message)

    @property
    def id(self) -> str | None:
        """The request's id, from the note or from the message itself."""
        if isinstance(self.note.get("id"), str):
            return str(self.note["id"])
        found = RequestReader(_ANY_SIZE).read(self.message)
        if isinstance(found, Refusal):
            return None if found.address is None else found.address.id
        return found.id

    @property
    def is_whole(self) -> bool:
        """Whether the message is all there."""
        return bool(len(self.message) == self.note.get("bytes", len(self.message)))


class DeadList:
    """One model's dead list.

    Raises:
        InvalidRequest: no model may be called that.
    """

    def __init__(self, link: Link, prefix: str, model: str) -> None:
        self._link = link
        self._keys = Keys(prefix, check_model(model))

    def entries(self) -> list[DeadEntry]:
        """Return all entries, the newest first."""
        (raw,) = self._link.run(command("LRANGE", self._keys.dead, 0, -1))
        return [DeadEntry.parse(place, each) for place, each in enumerate(reversed(raw), 1)]

    def find(self, which: str) -> DeadEntry:
        """Return the entry with this request id, or at this place.

        Raises:
            NotFound: there is none.
        """
        entries = self.entries()
        is_wanted: Callable[[DeadEntry], bool] = lambda entry: entry.id == which  # noqa: E731
        found = next(filter(is_wanted, entries), None)
        if found is None and which.isdecimal() and 1 <= int(which) <= len(entries):
            found = entries[int(which) - 1]
        if found is None:
            raise NotFound(
                f"the dead list of '{self._keys.model}' has no request '{which}'; it has "
                f"{len(entries)} entries"
            )
        return found

    def retry(self, entry: DeadEntry) -> bool:
        """Let a request run again, alone and with no deaths; false if the entry is gone.

        Raises:
            InvalidRequest: it cannot run: it was cut, or it has no id to be answered under.
        """
        request_id = entry.id
        if request_id is None:
            raise InvalidRequest(
                f"entry {entry.place} has no valid request id: it can only be dropped"
            )
        if not entry.is_whole:
            raise InvalidRequest(
                f"request '{request_id}' was cut when it was buried ({entry.note['bytes']} bytes): "
                "it can only be dropped"
            )
        keys = self._keys
        (answer,) = self._link.run(
            call(
                scripts.load("retry"),
                (keys.dead, keys.reply(request_id), keys.suspects, keys.normal),
                (entry.raw, entry.message, _MARK_MS),
            )
        )
        return bool(answer)

    def drop(self, entry: DeadEntry) -> bool:
        """Take an entry off for good; false if it is gone already."""
        (answer,) = self._link.run(call(scripts.load("drop"), (self._keys.dead,), (entry.raw,)))
        return bool(answer)
