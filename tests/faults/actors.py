"""The processes of the simulation: clients, workers and parents, by the rules around the scripts.

The numbers W1 to W10 are those of ``docs/guarantees.md``. A message is its own id; one that begins
with ``poison`` kills whoever runs it.
"""

from collections.abc import Generator, Sequence
from typing import Any

from faults.simulation import (
    LEASE_MS,
    LOST,
    MAX_ATTEMPTS,
    Answers,
    Body,
    Died,
    Lost,
    Pause,
    Simulation,
)
from faults.watched_server import Move, Read, Source, Step
from support.script_calls import Call, Reply

WANT = 4

Asking = Generator[list[Step] | Pause, Answers | Lost | None, Any]


class Rejoin(Exception):
    """This worker id is over; whoever had it goes on under a new one."""


def ask(steps: list[Step]) -> Asking:
    """Send a flight once; of scripts that the server lost only those are sent again."""
    answers = yield steps
    assert answers is not None
    if answers is LOST:
        return LOST
    for place, step in enumerate(steps):
        if answers[place] == "NOSCRIPT":
            assert isinstance(step, Call)
            again = yield [Source(step)]
            if again is LOST or again is None:
                return LOST
            answers[place] = again[0]
    return answers


def sure(*steps: Step) -> Asking:
    """Send a flight that may run twice until it is answered."""
    while True:
        answers = yield from ask(list(steps))
        if answers is not LOST:
            return answers
        yield Pause(20)


def client(sim: Simulation, ids: Sequence[str], lane: str) -> Body:
    """Submit, cancel some, and wait for all that was accepted."""
    call = sim.calls.submit([(request, request) for request in ids], lane=lane, limit=30)
    sim.truth.asked.update(ids)
    answers, tries = LOST, 0
    while answers is LOST:
        answers = yield from ask([call])
        tries += 1
    if answers[0] == "OOM" or answers[0][0] == -1:
        # A full server refuses without looking; an earlier try may have been accepted.
        sim.truth.refused |= set(ids) if tries == 1 else set()
        return
    sim.truth.accepted |= set(ids)
    for request in ids:
        if sim.random.random() < 0.1:
            yield Pause(sim.random.randint(0, 500))
            cancel = sim.calls.cancel(request, reply=f"cancelled:{request}")
            (told,) = yield from sure(cancel)
            assert sim.failovers or told != -1, "an accepted request is unknown"
            if not sim.failovers:
                (sim.truth.withdrawn if told else sim.truth.kept).add(request)
    while True:
        yield Pause(300)
        read = Read(("MGET", *(sim.keys.reply(request) for request in ids)))
        (replies,) = yield from sure(read)
        if None in replies:
            # Only a failover forgets a request that was accepted; the same id again is safe.
            assert sim.failovers, "an accepted request is unknown"
            yield from sure(sim.calls.submit([(request, request) for request in ids], lane=lane))
        elif all(replies):
            return


class Worker:
    """One process that takes batches, under one id after the other."""

    def __init__(self, sim: Simulation, name: str, generation: int = 0) -> None:
        self._sim = sim
        self._name = name
        self._generation = generation
        self._lives = 0
        self._take_seat()

    def _take_seat(self) -> None:
        self._lives += 1
        self.id = f"{self._name}.{self._generation}.{self._lives}"
        # The parent knows the id before anything is claimed under it.
        self._sim.children[self._name] = self.id
        self._run_id = self._sim.server.run_id
        self._number = self._floor = 1
        self._alone = True

    def body(self) -> Body:
        while True:
            try:
                yield from self._live()
            except Rejoin:
                # W1: drop everything, leave, and never use the id again.
                yield from self._leave()
                self._take_seat()
            else:
                del self._sim.children[self._name]
                return

    def _ask(self, *steps: Step) -> Asking:
        answers = yield from ask(list(steps))
        if self._run_id != self._sim.server.run_id:
            raise Rejoin
        return answers

    def _sure(self, *steps: Step) -> Asking:
        while True:
            answers = yield from self._ask(*steps)
            if answers is not LOST:
                return answers
            yield Pause(20)

    def _live(self) -> Asking:
        (known,) = yield from self._sure(self._register("join", 1))
        if not known:
            raise Rejoin
        answer = None
        while True:
            if answer is None:
                if self._sim.stopping:
                    yield from self._leave()
                    return
                answer = yield from self._take()
            if answer is not None:
                answer = yield from self._serve(answer)

    def _register(self, verb: str, number: int) -> Source:
        return Source(self._sim.calls.register(verb, self.id, number, lease_ms=LEASE_MS))

    def _claim(self, number: int, want: int, mode: str) -> Call:
        return self._sim.calls.claim(
            worker=self.id, number=number, floor=self._floor, lease_ms=LEASE_MS, want=want,
            budget=60, kept_normal=number % 2, kept_low=(number % 3 == 0 and 1) or 0, mode=mode,
        )  # fmt: skip

    def _take(self) -> Asking:
        """Claim with empty hands, blocking or not; None if there is nothing."""
        number = self._number
        claim = self._claim(number, WANT, "first" if number % 2 else "last")
        steps: list[Step] = [claim]
        # W5: after any error the claim alone.
        if not self._alone:
            steps = [self._register("open", number), Move(self.id, number), claim]
        answers = yield from self._ask(*steps)
        self._alone = answers is LOST or "OOM" in answers
        if answers is LOST:
            return None
        return self._judge(answers[-1])

    def _judge(self, answer: Any) -> Any:
        """Return what a claim holds, or None if it holds nothing or is closed (W2)."""
        if answer[0] == -2:
            raise Rejoin
        if answer[0] == -1:
            self._number = self._floor = answer[1] + 1
            return None
        assert len(answer) <= 4 + 2 * WANT, "a batch exceeds its maximum"
        assert not answer[3] & 8 or len(answer) == 5, "a suspect is not alone"
        return answer if len(answer) > 4 else None

    def _serve(self, answer: Any) -> Asking:
        """Run one batch and complete it; return the next one if it was claimed meanwhile."""
        sim = self._sim
        suspect = answer[3] & 8
        if answer[3] & 2:
            yield from look_after_others(sim)
        if not suspect and sim.random.random() < 0.2:
            # A hold: the same number with a larger want.
            answers = yield from self._sure(self._claim(self._number, 2 * WANT, "never"))
            answer = self._judge(answers[0])
        elif suspect and answer[1] < MAX_ATTEMPTS:
            # W6: noted before it is touched.
            answers = yield from self._sure(self._claim(self._number, WANT, "start"))
            answer = self._judge(answers[0])
        if answer is None:
            return None
        requests = [message.decode() for message in answer[4:]]
        dropped = yield from self._answered(requests, answer)
        ahead = False
        if not suspect and sim.random.random() < 0.3:
            answers = yield from self._ask(self._claim(self._number + 1, WANT, "never"))
            ahead = answers is not LOST and answers[0][0] == 1
        if suspect and answer[1] >= MAX_ATTEMPTS:
            replies = [Reply(name, f"crashed:{name}", "requests_crashed") for name in requests]
            return (yield from self._complete(replies, requests, dead=requests))
        yield Pause(sim.random.randint(0, 100))
        for request in requests:
            if request not in dropped:
                self._run(request)
        replies = [Reply(name, "" if name in dropped else f"succeeded:{name}") for name in requests]
        following = yield from self._complete(replies, requests, ahead=ahead)
        return (yield from self._go_on()) if ahead else following

    def _answered(self, requests: list[str], answer: Any) -> Asking:
        """W7: a request is dropped only if its reply is there."""
        if not (answer[3] & 1 or answer[1]):
            return set()
        steps = [Read(("STRLEN", self._sim.keys.reply(name))) for name in requests]
        sizes = yield from self._sure(*steps)
        return {name for name, size in zip(requests, sizes, strict=True) if size}

    def _run(self, request: str) -> None:
        self._sim.truth.ran[request] += 1
        if request.startswith("poison"):
            self._sim.truth.killed[request] += 1
            raise Died

    def _complete(
        self,
        replies: list[Reply],
        requests: list[str],
        *,
        dead: Sequence[str] = (),
        ahead: bool = False,
    ) -> Asking:
        """Complete the current claim, perhaps in parts, perhaps with the next claim behind it."""
        sim, number = self._sim, self._number
        if len(replies) > 1 and sim.random.random() < 0.2:
            part, replies = replies[:1], replies[1:]
            yield from self._sure(sim.calls.complete(*part, worker=self.id, number=number, held=0))
        complete = sim.calls.complete(
            *replies, worker=self.id, number=number, held=len(requests), dead=dead,
            counters={"batches": 1},
        )  # fmt: skip
        steps: list[Step] = [complete]
        if not ahead and not sim.stopping and sim.random.random() < 0.4:
            # The floor is still this claim: its completion may be refused while the claim is not.
            steps.append(self._claim(number + 1, WANT, "last"))
        answers = yield from self._ask(*steps)
        if answers is LOST:
            yield Pause(20)
            yield from self._sure(complete)
            answers = [None]
        self._number = self._floor = number + 1
        return self._judge(answers[1]) if len(answers) > 1 else None

    def _go_on(self) -> Asking:
        """Take up the claim that was made ahead, or hand it back when it is time to stop."""
        if self._sim.stopping:
            # W10: what was not started goes back free, the newest first.
            release = self._sim.calls.release(worker=self.id, number=self._number)
            yield from self._sure(release)
            return None
        answers = yield from self._sure(self._claim(self._number, WANT, "last"))
        return self._judge(answers[0])

    def _leave(self) -> Asking:
        lists = [
            self._sim.keys.claimed(self.id, number)
            for number in range(self._floor, self._number + 2)
        ]
        yield from bury(self._sim, self.id, "leave", lists)


def bury(sim: Simulation, worker: str, how: str, lists: Sequence[str]) -> Asking:
    """Recover a worker until nothing of it is left."""
    while True:
        call = sim.calls.recover(*lists, worker=worker, how=how, longest_ms=LEASE_MS)
        ((_, more),) = yield from sure(call)
        if not more:
            return


def look(sim: Simulation) -> Asking:
    """Return every worker id that is known anywhere, with the claims in its name."""
    keys = sim.keys
    pattern = keys.claimed("*", 0).removesuffix("0") + "*"
    workers, claims, closed, (_, scanned) = yield from sure(
        Read(("ZRANGE", keys.workers, "0", "-1")),
        Read(("HKEYS", keys.claims)),
        Read(("HKEYS", keys.closed)),
        Read(("SCAN", "0", "MATCH", pattern, "COUNT", "100000")),
    )
    # Sorted, for the same seed to make the same run whatever order the server's tables have.
    known = sorted({*workers, *closed})
    owners: dict[str, list[str]] = {worker.decode(): [] for worker in known}
    for name in sorted({*claims, *scanned}):
        claimed = name.decode()
        owner = claimed.split(":claimed:")[1].split(":")[0]
        owners.setdefault(owner, []).append(claimed)
    return owners


def look_after_others(sim: Simulation) -> Asking:
    """Recover whoever lapsed, and sweep what late commands left behind."""
    owners = yield from look(sim)
    for owner, lists in owners.items():
        yield from bury(sim, owner, "lapsed", lists or [sim.keys.claimed(owner, 1)])


def parent(sim: Simulation, names: Sequence[str]) -> Body:
    """Watch over worker processes: renew, bury, start again (W9)."""
    generation = 0
    while not sim.stopping or any(name in sim.children for name in names):
        for name in names:
            actor = sim.actors.get(name)
            if actor and actor.asleep_until_ms > sim.now_ms + LEASE_MS // 2:
                # It hangs. One that cannot be killed is buried all the same: its id is fenced.
                buried = sim.children[name]
                if sim.random.random() < 0.5:
                    sim.kill(name)
                owners = yield from look(sim)
                lists = owners.get(buried) or [sim.keys.claimed(buried, 1)]
                yield from bury(sim, buried, "dead", lists)
            if name in sim.dead:
                sim.dead.discard(name)
                buried = sim.children.pop(name)
                owners = yield from look(sim)
                lists = owners.get(buried) or [sim.keys.claimed(buried, 1)]
                yield from bury(sim, buried, "dead", lists)
                generation += 1
                if not sim.stopping:
                    sim.add(name, Worker(sim, name, generation).body())
        living = [sim.children[name] for name in names if name in sim.actors]
        if living:
            yield from sure(sim.calls.renew(*living, lease_ms=LEASE_MS))
        if sim.random.random() < 0.1:
            yield from look_after_others(sim)
        yield Pause(LEASE_MS // 3)
