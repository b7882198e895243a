"""Every Redis key of a model, and the rules for every name that becomes part of one.

Nothing else in inferq builds a key. A name from outside passes its ``check_*`` function before it
gets here, so no name can leave its namespace, carry a brace, a space or a newline. The queue key
holds no brace and all others carry it as hash tag: one model is one Redis Cluster slot.
"""

import re
from dataclasses import dataclass
from typing import Final

from inferq.contract.errors import InvalidRequest, InvalidSetting

LANES: Final = ("high", "normal", "low")
"""The lanes a request can wait in, in the order in which they are emptied."""

# \Z and not $: "$" also matches before a trailing newline.
MODEL_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z"
ID_PATTERN: Final = r"^[A-Za-z0-9._:-]{1,128}\Z"
BOX_PATTERN: Final = r"^[A-Za-z0-9._-]{1,64}\Z"
PREFIX_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}\Z"

_MODEL = re.compile(MODEL_PATTERN)
_ID = re.compile(ID_PATTERN)
_BOX = re.compile(BOX_PATTERN)
_PREFIX = re.compile(PREFIX_PATTERN)

# Paths of the HTTP interface that would hide a model of that name.
_RESERVED_MODELS: Final = frozenset({"stats", "models"})


def check_model(name: object) -> str:
    """Return ``name`` if a model may be called that.

    Raises:
        InvalidRequest: it does not match ``[A-Za-z0-9][A-Za-z0-9_.-]{0,127}``, or is reserved.
    """
    if not isinstance(name, str) or not _MODEL.match(name):
        raise InvalidRequest(
            f"model name {_shown(name)} is not allowed: expected 1 to 128 letters, digits, '_', "
            "'.' or '-', beginning with a letter or digit"
        )
    if name in _RESERVED_MODELS:
        raise InvalidRequest(f"model name '{name}' is reserved: choose another")
    return name


def check_id(request_id: object) -> str:
    """Return ``request_id`` if a request may carry it.

    Raises:
        InvalidRequest: it does not match ``[A-Za-z0-9._:-]{1,128}``.
    """
    if not isinstance(request_id, str) or not _ID.match(request_id):
        raise InvalidRequest(
            f"request id {_shown(request_id)} is not allowed: expected 1 to 128 letters, digits, "
            "'.', '_', ':' or '-'"
        )
    return request_id


def check_box(box: object) -> str:
    """Return ``box`` if an inbox may be called that.

    Raises:
        InvalidRequest: it does not match ``[A-Za-z0-9._-]{1,64}``.
    """
    if not isinstance(box, str) or not _BOX.match(box):
        raise InvalidRequest(
            f"reply_to {_shown(box)} is not allowed: expected 1 to 64 letters, digits, '.', '_' "
            "or '-'"
        )
    return box


def check_prefix(prefix: object) -> str:
    """Return ``prefix`` if keys may begin with it.

    Raises:
        InvalidSetting: it does not match ``[A-Za-z0-9][A-Za-z0-9._:-]{0,63}``.
    """
    if not isinstance(prefix, str) or not _PREFIX.match(prefix):
        raise InvalidSetting(
            f"prefix {_shown(prefix)} is not allowed: expected 1 to 64 letters, digits, '.', '_', "
            "':' or '-', beginning with a letter or digit"
        )
    return prefix


def worker_id(host: str, pid: int, nonce: str) -> str:
    """Name one incarnation of a worker: host, process and a nonce that never comes back.

    Host names are cleaned and cut so that the whole matches ``[A-Za-z0-9._-]{1,64}``. The nonce
    keeps a container that restarts in place (same host, same pid 1) from being taken for its dead
    twin.
    """
    tail = f"-{pid}-{nonce}"
    host = re.sub(r"[^A-Za-z0-9._-]", "-", host) or "host"
    return host[: 64 - len(tail)] + tail


def _shown(value: object) -> str:
    """Quote a rejected value in at most 80 characters, whatever it holds."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:76] + "...'"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one model under one prefix.

    ``prefix`` and ``model`` are taken as they are: check them first.
    """

    prefix: str
    model: str

    @property
    def normal(self) -> str:
        """List: waiting requests, normal lane. Pushed right, taken left."""
        return f"{self.prefix}:{self.model}"

    def _tagged(self, suffix: str) -> str:
        return f"{{{self.prefix}:{self.model}}}:{suffix}"

    def lane(self, name: str) -> str:
        """List: the lane ``high``, ``normal`` or ``low``."""
        return self.normal if name == "normal" else self._tagged(name)

    @property
    def returned(self) -> str:
        """List: requests handed back unstarted; taken before every lane."""
        return self._tagged("returned")

    @property
    def suspects(self) -> str:
        """List: ``attempts|message`` of requests whose worker died."""
        return self._tagged("suspects")

    def claimed(self, worker: str, number: int) -> str:
        """List: the ``number``-th batch of ``worker`` while it is computed."""
        return self._tagged(f"claimed:{worker}:{number}")

    @property
    def claims(self) -> str:
        """Hash: name of a claimed list -> its owner, ``WORKER`` or ``WORKER started``."""
        return self._tagged("claims")

    @property
    def closed(self) -> str:
        """Hash: worker id -> its highest closed batch number."""
        return self._tagged("closed")

    def reply(self, request_id: str) -> str:
        """Return the string key of a reply; it is empty while the request is pending."""
        return self._tagged(f"reply:{request_id}")

    def inbox(self, box: str) -> str:
        """List: ids whose replies are ready, for the client that named ``box``."""
        return self._tagged(f"inbox:{box}")

    @property
    def cancelled(self) -> str:
        """String: present while some request was cancelled lately."""
        return self._tagged("cancelled")

    @property
    def dead(self) -> str:
        """List: requests given up on, newest right."""
        return self._tagged("dead")

    @property
    def metrics(self) -> str:
        """Hash of integer counters."""
        return self._tagged("metrics")

    @property
    def description(self) -> str:
        """String: the model's metadata, limits and profile, JSON."""
        return self._tagged("model")

    @property
    def workers(self) -> str:
        """Sorted set: worker id -> end of its lease in ms of Redis time."""
        return self._tagged("workers")

    def worker(self, worker: str) -> str:
        """Hash: what one worker tells about itself; always has a TTL."""
        return self._tagged(f"worker:{worker}")


def models_key(prefix: str) -> str:
    """Set: names of the models that workers have published under ``prefix``."""
    return f"{prefix}:models"
