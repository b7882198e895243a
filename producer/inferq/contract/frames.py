"""The binary form of a message: ``OIP1``, a length, a JSON head, raw tensors.

The head is padded with spaces so that the tensors behind it start on an 8-byte boundary; readers
accept any padding. :class:`HeadMemo` is why a busy queue does not parse JSON it has parsed before.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, Generic, TypeVar

from pydantic_core import from_json

from inferq.contract.errors import InvalidRequest
from inferq.contract.tensors import Buffer

MAGIC: Final = b"OIP1"
_LENGTH = Struct("<I")
_PREAMBLE: Final = len(MAGIC) + _LENGTH.size
_PADDING: Final = tuple(b" " * count for count in range(8))

T = TypeVar("T")


def join(head: bytes, body: Iterable[Buffer]) -> bytes:
    """Build a frame from its JSON head and the raw tensors in order."""
    # The preamble is 8 bytes, so a head of a multiple of 8 bytes aligns what follows.
    pad = -len(head) % 8
    return b"".join((MAGIC, _LENGTH.pack(len(head) + pad), head, _PADDING[pad], *body))


def split(message: bytes) -> tuple[bytes, memoryview]:
    """Cut a frame into its JSON head and its raw tensors, which are not copied.

    ``message`` begins with :data:`MAGIC`.

    Raises:
        InvalidRequest: the frame ends before its head does.
    """
    if len(message) < _PREAMBLE:
        raise InvalidRequest("the frame ends before its length")
    end = _PREAMBLE + _LENGTH.unpack_from(message, len(MAGIC))[0]
    if end > len(message):
        raise InvalidRequest(
            f"the frame promises a head of {end - _PREAMBLE} bytes, and "
            f"{len(message) - _PREAMBLE} follow"
        )
    return message[_PREAMBLE:end], memoryview(message)[end:]


def peek(message: bytes, limit: int) -> bytes:
    """Return the beginning of a head, at most ``limit`` bytes, however short the frame is."""
    if len(message) < _PREAMBLE:
        return b""
    length = _LENGTH.unpack_from(message, len(MAGIC))[0]
    return message[_PREAMBLE : _PREAMBLE + min(length, limit)]


class HeadMemo(Generic[T]):
    r"""Remembers what the constant part of a head means, so that only the rest is parsed.

    Heads of one producer differ in id and parameters only. Written in this order::

        {"inputs":[...],"outputs":[...],   "id":"r1","parameters":{...}}
        '------ constant part ----------'  '-------- rest -------------'

    the two parts are JSON objects in their own right, once a brace is put at the cut. If both
    parse, the first without ``id`` and ``parameters``, the rest with nothing but these, then the
    head parses as their union and nothing else, whatever strings it holds: a memo hit is exact,
    and no writer is obliged to use this order.
    """

    _CUT: Final = b'"id":"'
    _REST: Final = frozenset({"id", "parameters"})
    # Bounds what a flood of huge heads, each of them new, can make a reader keep.
    _LONGEST: Final = 16 * 1024

    def __init__(self, limit: int = 512) -> None:
        self._limit = limit
        self._known: dict[bytes, T] = {}

    def find(self, head: bytes) -> tuple[T, bytes] | None:
        """Return the meaning of the constant part and the rest as a JSON object to parse.

        The caller must refuse the hit unless the rest is an object that holds ``id``, and beside
        it nothing but ``parameters``.
        """
        cut = head.find(self._CUT)
        known = self._known.get(head[:cut])
        return None if known is None else (known, b"{" + head[cut:])

    def learn(self, head: bytes, meaning: T) -> None:
        """Remember the meaning of this head's constant part, if the head can be cut."""
        cut = head.find(self._CUT)
        constant = head[:cut].rstrip()
        if not 0 <= cut <= self._LONGEST or not constant.endswith(b","):
            return
        try:
            members = from_json(constant[:-1] + b"}")
            rest = from_json(b"{" + head[cut:])
        except ValueError:
            return
        # A rest that holds "inputs" once more has changed the meaning; so would a front with an id.
        if self._REST & members.keys() or rest.keys() - self._REST:
            return
        # A flood of different shapes must not grow memory; starting over is rare and cheap.
        if len(self._known) >= self._limit:
            self._known.clear()
        self._known[head[:cut]] = meaning
