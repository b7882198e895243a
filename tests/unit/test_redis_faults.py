"""Every kind of Redis trouble has one meaning here, and redis-py has no kind nobody thought of."""

import inspect

import pytest
import redis.exceptions as redis_errors
from redis._parsers.base import BaseParser

from inferq.contract.errors import InferqError, QueueFull, ServerUnfit, Unavailable
from inferq.redis_faults import _BY_CLASS, NEVER_MAPPED, ScriptMissing, fault

CLASSES = {
    name: each
    for name, each in inspect.getmembers(redis_errors, inspect.isclass)
    if issubclass(each, Exception) and each.__module__ == redis_errors.__name__
}
# Not yet in the oldest redis-py that inferq runs with.
YOUNG = {"ExternalAuthProviderError", "IncorrectPolicyType", "NoSuchFieldsetError"}
MAPPED = {each.__name__ for each, _ in _BY_CLASS}


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_decided_on(name: str) -> None:
    """An exception of redis-py is either mapped, or known never to come; a new one fails here."""
    assert (name in MAPPED) != (name in NEVER_MAPPED)


def test_no_class_is_decided_on_in_vain() -> None:
    """Both lists name exceptions that redis-py has."""
    assert set(CLASSES) >= (MAPPED | NEVER_MAPPED) - YOUNG


# What a server says, as it says it, and what it means to us.
ANSWERS: list[tuple[str, type[InferqError], str]] = [
    ("LOADING Redis is loading the dataset in memory", Unavailable, "is loading its data"),
    ("READONLY You can't write against a read only replica.", Unavailable, "is a replica"),
    ("READONLY You can't write against a read only replica. script: 61e5, on @user_script:8.",
     Unavailable, "is a replica"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
     Unavailable, "has lost its primary"),
    ("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
     Unavailable, "became a replica while we waited"),
    ("NOREPLICAS Not enough good replicas to write.", Unavailable, "too few replicas"),
    ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist",
     Unavailable, "cannot save to disk"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable, "moving a cluster slot"),
    ("CLUSTERDOWN The cluster is down", Unavailable, "a cluster that is down"),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
     Unavailable, "busy with somebody's script"),
    ("ERR max number of clients reached", Unavailable, "max number of clients reached"),
    ("OOM command not allowed when used memory > 'maxmemory'.", QueueFull, "at its memory limit"),
    ("OOM command not allowed when used memory > 'maxmemory'. script: 61e5, on @user_script:8.",
     QueueFull, "at its memory limit"),
    ("NOSCRIPT No matching script. Please use EVAL.", ScriptMissing, "does not know the script"),
    ("NOAUTH Authentication required.", ServerUnfit, "wants a password: put it into the address"),
    ("WRONGPASS invalid username-password pair or user is disabled.", ServerUnfit,
     "refused the user name or password"),
    ("ERR invalid password", ServerUnfit, "refused the user name or password"),
    ("ERR Client sent AUTH, but no password is set", ServerUnfit, "refused the user name or password"),
    ("ERR wrong number of arguments for 'auth' command", ServerUnfit, "refused the user name"),
    ("NOPERM User app has no permissions to run the 'evalsha' command", ServerUnfit,
     "does not let this user run what inferq needs"),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", ServerUnfit,
     "holds a key of another type"),
    ("WRONGTYPE Operation against a key holding the wrong kind of value script: 61e5, on @user_script:1.",
     ServerUnfit, "holds a key of another type"),
    ("MOVED 3999 127.0.0.1:6381", ServerUnfit, "does not own this model's slot"),
    ("ASK 3999 127.0.0.1:6381", ServerUnfit, "does not own this model's slot"),
    ("CROSSSLOT Keys in request don't hash to the same slot", ServerUnfit, "over several slots"),
    ("DENIED Redis is running in protected mode because protected mode is enabled", ServerUnfit,
     "is in protected mode"),
    ("ERR unknown command 'EVALSHA', with args beginning with: ", ServerUnfit,
     "refused a command: unknown command 'EVALSHA'"),
    ("ERR DB index is out of range", ServerUnfit, "refused a command: DB index is out of range"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "kind", "words"), ANSWERS)
def test_what_servers_answer(answer: str, kind: type[InferqError], words: str) -> None:
    """An error reply means the same whether redis-py knows its code, cuts it off, or neither."""
    raised = BaseParser.parse_error(answer)
    for error in (raised, redis_errors.ResponseError(answer)):
        if error is not raised and answer.startswith("ERR "):
            # Without its class nothing but the text is left of it.
            continue
        found = fault(error, "redis://here")
        assert type(found) is kind
        assert words in str(found)
        assert "redis://here" in str(found)


@pytest.mark.parametrize(
    "error",
    [
        redis_errors.ConnectionError("Connection closed by server."),
        redis_errors.TimeoutError("Timeout reading from socket"),
        redis_errors.InvalidResponse("Protocol error, got 'H' as reply type byte"),
        redis_errors.BusyLoadingError("loading"),
        CLASSES.get("ExternalAuthProviderError", OSError)("problem with LDAP service"),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
        OSError(113, "No route to host"),
    ],
)
def test_no_answer(error: Exception) -> None:
    """A server that does not answer, or not in its language, may do so later."""
    found = fault(error, "redis://here")
    assert type(found) is Unavailable
    assert "redis://here" in str(found)
