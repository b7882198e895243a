"""Row 5: the server is restarted, forgets, throws everybody out, or another takes its place."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import redis

from faults.matrix.group import Group
from faults.matrix.plan import Figure, Plan, Result, Row
from faults.matrix.stage import Stage
from support.servers import PrivateServer, free_port
from support.waiting import until

# Long enough for clients to meet a server that answers LOADING.
_LOAD_DELAY_US = 20
_BACK_WITHIN_S = 5.0
_MAX_ATTEMPTS = 50
_WORDS = ("LOADING", "READONLY")


def run(plan: Plan) -> Result:
    """Lose nothing where the server keeps its word; tell what is lost where it does not."""
    result = _kept(plan)
    for lose, what in ((_power_cut, _POWER_CUT), (_unclean_failover, _UNCLEAN)):
        result += _measured(plan, lose, what)
    return result


# What must lose nothing ---------------------------------------------------------------------------


def _kept(plan: Plan) -> Result:
    arguments = ("--key-load-delay", str(_LOAD_DELAY_US))
    with Stage(plan, server=arguments, aof=True, proxied=True) as stage:
        groups = [stage.workers(max_attempts=_MAX_ATTEMPTS) for _ in range(2)]
        faults: list[Callable[[Stage], None]] = [
            _stop_in_order, _kill_synced, _flush_scripts, _throw_out, _demote, _failover,
        ]  # fmt: skip
        waits_s: dict[str, float] = {}
        done = 0
        with stage.load(cancel_share=0.02, pause_s=0.01) as load:
            while load.is_short or done < len(faults):
                fault = faults[done % len(faults)]
                stage.pause(0.1, 0.4)
                fault(stage)
                name = fault.__name__.strip("_").replace("_", " ")
                waits_s[name] = max(waits_s.get(name, 0.0), stage.until_answering())
                done += 1
        waits_s["demote while all wait"] = _demote_idle(stage)
        stage.figures = [
            Figure("answers go on after the server is back", max(waits_s.values()), _BACK_WITHIN_S)
        ]
        stage.notes = [
            f"{done} faults; longest wait after each kind: "
            + ", ".join(f"{name} {wait_s:.2f} s" for name, wait_s in waits_s.items()),
            _words_met(groups),
        ]
        return stage.result()


def _stop_in_order(stage: Stage) -> None:
    stage.server.restart()


def _kill_synced(stage: Stage) -> None:
    stage.bare.client.config_set("appendfsync", "always")
    stage.pause(0.1, 0.3)
    stage.server.kill()
    stage.server.start()


def _flush_scripts(stage: Stage) -> None:
    stage.bare.client.script_flush()


def _throw_out(stage: Stage) -> None:
    stage.bare.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def _demote(stage: Stage) -> None:
    """Make the server the replica of nobody for a moment: it keeps its data and takes no writes."""
    stage.bare.client.replicaof("127.0.0.1", free_port())
    stage.pause(0.2, 0.5)
    stage.bare.client.replicaof("NO", "ONE")


def _demote_idle(stage: Stage) -> float:
    """Do the same while all workers are blocked: their block is ended with an error."""
    stage.until_drained()
    until(lambda: any(each["cmd"] == "blmove" for each in stage.bare.client.client_list()))
    _demote(stage)
    since_s = time.monotonic()
    stage.push()
    stage.until_drained()
    return time.monotonic() - since_s


def _failover(stage: Stage) -> None:
    """Move to a replica that has caught up, and back; the address follows, old connections stay."""
    first = stage.server
    with PrivateServer(stage.plan.binary, port=0) as second:
        _move(stage, first, second)
        stage.until_answering_at(second)
        _move(stage, second, first)


def _move(stage: Stage, old: PrivateServer, new: PrivateServer) -> None:
    with _client(old) as primary, _client(new) as replica:
        _attach(primary, replica, old.port)
        primary.execute_command("CLIENT", "PAUSE", 30_000, "WRITE")
        until(lambda: _is_level(primary, replica, exactly=True), 30)
        replica.replicaof("NO", "ONE")
        primary.replicaof("127.0.0.1", new.port)
        primary.execute_command("CLIENT", "UNPAUSE")
    stage.proxy.retarget(new.socket)


def _attach(primary: redis.Redis, replica: redis.Redis, port: int | None) -> None:
    # By default a primary waits 5 s for further replicas before it sends its data.
    primary.config_set("repl-diskless-sync-delay", 0)
    assert port is not None
    replica.replicaof("127.0.0.1", port)
    until(lambda: _is_level(primary, replica), 30)


def _is_level(primary: redis.Redis, replica: redis.Redis, *, exactly: bool = False) -> bool:
    of_primary: Any = primary.info("replication")
    of_replica: Any = replica.info("replication")
    is_up = of_replica["role"] == "slave" and of_replica["master_link_status"] == "up"
    behind = of_primary["master_repl_offset"] - of_replica.get("slave_repl_offset", 0)
    return is_up and (not exactly or behind <= 0)


def _client(server: PrivateServer) -> contextlib.AbstractContextManager[redis.Redis]:
    return redis.Redis.from_url(server.url)


def _words_met(groups: list[Group]) -> str:
    logs = "".join(group.output() for group in groups)
    met = [f"{word} {logs.count(f'({word})')} times" for word in _WORDS]
    return "workers logged " + ", ".join(met)


# What loses something, and how much ---------------------------------------------------------------

_POWER_CUT = "power cut with appendfsync everysec"
_UNCLEAN = "failover to a replica half a second behind"


def _measured(plan: Plan, lose: Callable[[Stage], float], what: str) -> Result:
    """Run a fault that may lose what the server had not kept; only what is wrong still counts."""
    with Stage(plan, aof=True, proxied=True) as stage:
        stage.workers(max_attempts=_MAX_ATTEMPTS)
        with stage.load(0.1, pause_s=0.01):
            stage.until_answering()
            lost_s = lose(stage)
            wait_s = stage.until_answering()
        # Whoever comes now finds everything in order.
        before = stage.ledger.accepted.keys() | set()
        with stage.load(0.05):
            pass
        result = stage.result()
        later_lost = stage.lost & (stage.ledger.accepted.keys() - before)
    note = (
        f"not counted above: {what}: {lost_s:.1f} s of writes gone, of {result.requests} accepted "
        f"{result.lost} lost, {result.answered_twice} answers changed; answers go on after "
        f"{wait_s:.1f} s"
    )
    wrong = [f"{what}: {len(later_lost)} lost that came after"] if later_lost else []
    return Result(0, 0, 0, 0, result.misrouted, (), (note,), tuple(wrong), result.took_s)


def _power_cut(stage: Stage) -> float:
    """Kill the server and take from its file what it had not yet been sure of a second ago."""
    (file,) = stage.folder.glob("appendonlydir/*.incr.aof")
    time.sleep(0.3)
    safe = file.stat().st_size
    since_s = time.monotonic()
    time.sleep(0.9)
    stage.server.kill()
    lost_s = time.monotonic() - since_s
    os.truncate(file, safe)
    stage.server.start()
    return lost_s


def _unclean_failover(stage: Stage) -> float:
    """Promote a replica that was cut off for a while; the old primary comes back as its replica."""
    with PrivateServer(stage.plan.binary, port=0) as second:
        with _client(second) as replica:
            _attach(stage.bare.client, replica, stage.server.port)
            replica.replicaof("127.0.0.1", free_port())
            since_s = time.monotonic()
            time.sleep(0.5)
            stage.server.kill()
            lost_s = time.monotonic() - since_s
            replica.replicaof("NO", "ONE")
        stage.proxy.retarget(second.socket)
        stage.until_answering_at(second)
        stage.server.start()
        _move(stage, second, stage.server)
    return lost_s


ROW = Row(5, "Redis restarted, emptied of scripts, failed over", run)
