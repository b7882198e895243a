"""Where commands and replies end in a stream of RESP, and which command is which. Pure."""

import hashlib
from functools import cache

from inferq.contract import scripts

Stream = bytes | bytearray


def end_of(stream: Stream, start: int) -> int | None:
    """Return where the command or reply that begins at ``start`` ends; ``None``: not all is there."""
    at, wanted = start, 1
    while wanted:
        line_end = stream.find(b"\r\n", at)
        if line_end < 0:
            return None
        kind, number = chr(stream[at]), stream[at + 1 : line_end]
        at = line_end + 2
        if kind in "$=" and int(number) >= 0:
            at += int(number) + 2
        elif kind in "*~":
            wanted += max(0, int(number))
        elif kind == "%":
            wanted += 2 * int(number)
        wanted -= 1
    return at if at <= len(stream) else None


def kind_of(command: Stream) -> str:
    """Return a command's name, such as ``BLMOVE``, or the name of the script that it calls.

    Scripts are known by hash or source: ``claim``, ``complete``. One of somebody else is ``EVAL``.
    """
    name, operand = _first_words(command)
    if name == "EVALSHA":
        return _names().get(operand.decode(), "EVAL")
    if name == "EVAL":
        return _names().get(hashlib.sha1(operand).hexdigest(), "EVAL")
    return name


def _first_words(command: Stream) -> tuple[str, bytes]:
    """Return the name in capitals and the first operand, empty if there is none."""
    words: list[bytes] = []
    at = command.find(b"\r\n") + 2
    while len(words) < 2 and at < len(command):
        line_end = command.find(b"\r\n", at)
        end = line_end + 2 + int(command[at + 1 : line_end])
        words.append(bytes(command[line_end + 2 : end]))
        at = end + 2
    return words[0].decode().upper(), words[1] if len(words) > 1 else b""


@cache
def _names() -> dict[str, str]:
    return {scripts.load(name).sha1: name for name in scripts.ALL}
