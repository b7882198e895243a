"""What each kind of Redis trouble means for us: one table, one error each.

Every exception of redis-py and every error reply passes through :func:`fault`, so the rest of
inferq knows four cases only: :class:`Unavailable` (wait, connect again, repeat),
:class:`QueueFull` (the server's memory is full), :class:`ServerUnfit` (waiting will not help) and
:class:`ScriptMissing` (send the script's source).
"""

from typing import Final

import redis.exceptions as redis_errors

from inferq.contract.errors import InferqError, QueueFull, ServerUnfit, Unavailable


class ScriptMissing(Unavailable):
    """The server forgot the scripts; never leaves the link."""


# First word of an error reply -> what to tell. The server will work again, here or elsewhere.
_PASSING: Final = {
    "LOADING": "is loading its data",
    "READONLY": "is a replica and takes no writes",
    "MASTERDOWN": "has lost its primary",
    "UNBLOCKED": "became a replica while we waited",
    "NOREPLICAS": "has too few replicas to take writes",
    "MISCONF": "cannot save to disk and takes no writes",
    "TRYAGAIN": "is moving a cluster slot",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "BUSY": "is busy with somebody's script",
}
_LASTING: Final = {
    "NOAUTH": "wants a password: put it into the address",
    "WRONGPASS": "refused the user name or password of the address",
    "NOPERM": "does not let this user run what inferq needs",
    "WRONGTYPE": "holds a key of another type where inferq expects its own",
    "MOVED": "is a cluster node that does not own this model's slot",
    "ASK": "is a cluster node that does not own this model's slot",
    "CROSSSLOT": "is a cluster that spreads one model's keys over several slots",
    "DENIED": "is in protected mode and takes no clients from other machines",
}
# Their kind tells enough, or their text has the word.
_ANY: Final = ""
_BY_CLASS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (redis_errors.BusyLoadingError, "LOADING"),
    (redis_errors.AuthenticationError, "WRONGPASS"),
    (redis_errors.AuthorizationError, "NOPERM"),
    (redis_errors.NoPermissionError, "NOPERM"),
    (redis_errors.ReadOnlyError, "READONLY"),
    (redis_errors.OutOfMemoryError, "OOM"),
    (redis_errors.NoScriptError, "NOSCRIPT"),
    (redis_errors.MovedError, "MOVED"),
    (redis_errors.AskError, "ASK"),
    (redis_errors.TryAgainError, "TRYAGAIN"),
    (redis_errors.MasterDownError, "MASTERDOWN"),
    (redis_errors.ClusterDownError, "CLUSTERDOWN"),
    (redis_errors.ClusterCrossSlotError, "CROSSSLOT"),
    (redis_errors.AuthenticationWrongNumberOfArgsError, "WRONGPASS"),
    # redis-py 6 has no class of its own for it.
    (getattr(redis_errors, "ExternalAuthProviderError", redis_errors.ConnectionError), _ANY),
    (redis_errors.InvalidResponse, _ANY),
    (redis_errors.ConnectionError, _ANY),
    (redis_errors.TimeoutError, _ANY),
    (redis_errors.ResponseError, _ANY),
)
# InvalidResponse is what another program answers; so looks a broken byte on the way, which passes.
_NO_ANSWER: Final = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.InvalidResponse,
    OSError,
)
NEVER_MAPPED: Final = frozenset(
    {
        # The cluster client, pools, locks, publish and subscribe: inferq has none of them.
        "ClusterError", "CrossSlotTransactionError", "IncorrectPolicyType", "InvalidPipelineStack",
        "RedisClusterException", "SlotNotCoveredError", "ChildDeadlockedError",
        "MaxConnectionsError", "LockError", "LockNotOwnedError", "PubSubError",
        # Answers to MULTI, WATCH, MODULE and HIMPORT, which inferq never sends.
        "ExecAbortError", "WatchError", "ModuleError", "NoSuchFieldsetError",
        # Raised before anything is sent: a word of a type no command has, an address whose
        # arguments contradict each other (Endpoint.parse has refused it).
        "DataError", "RedisError",
    }
)  # fmt: skip
"""Exceptions of redis-py that cannot reach :func:`fault`."""


def fault(error: Exception, server: str) -> InferqError:
    """Translate what redis-py raised, or an error reply, into an inferq error.

    ``server`` is the address as it may be shown.
    """
    word = _word(error)
    if word == "OOM":
        return QueueFull(f"Redis at {server} is at its memory limit; nothing was submitted")
    if word == "NOSCRIPT":
        return ScriptMissing(f"Redis at {server} does not know the script")
    if word in _PASSING:
        return Unavailable(f"Redis at {server} {_PASSING[word]} ({word})")
    if word in _LASTING:
        detail = str(error).removeprefix(f"{word} ")
        return ServerUnfit(f"Redis at {server} {_LASTING[word]} ({word}: {detail})")
    if isinstance(error, _NO_ANSWER):
        return Unavailable(f"no answer from Redis at {server}: {error}")
    return ServerUnfit(f"Redis at {server} refused a command: {error}")


def _word(error: Exception) -> str:
    """Return the error code that Redis puts before its message, whether redis-py cut it or not."""
    text = str(error)
    for kind, word in _BY_CLASS:
        if isinstance(error, kind) and word != _ANY:
            # One class for two answers: a wrong password, and none at all.
            return "NOAUTH" if word == "WRONGPASS" and "required" in text else word
    if isinstance(error, redis_errors.ResponseError):
        # A script's own failure carries the code behind "ERR" or in front of its details.
        return text.removeprefix("ERR ").split(" ", 1)[0].strip(":")
    return _ANY
