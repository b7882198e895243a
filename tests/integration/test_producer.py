"""Both producers against real workers: submit, wait, poll, withdraw, join."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import redis

from inferq import (
    Cancelled,
    Expired,
    InvalidRequest,
    ModelError,
    NoReply,
    NotFound,
    NotReady,
    QueueFull,
    TensorSpec,
    TooLarge,
    Unavailable,
    embedded,
)
from support.producers import AnyProducer, Connect
from support.waiting import until
from support.workers import Doubler, Echo, Gate, Raiser, Sums, Workers


def server_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1_000 + int(micros) // 1_000


class TestInfer:
    def test_a_row_gives_a_row(self, producer: AnyProducer, workers: Workers) -> None:
        """An input of the spec's rank is one row, and its reply has no batch dimension."""
        workers.serve(Echo())
        reply = producer.infer("echo", {"x": [1, 2]})
        assert reply["y"].tolist() == [1, 2]
        assert reply["y"].dtype == np.float32

    def test_a_batch_gives_a_batch(self, producer: AnyProducer, workers: Workers) -> None:
        """One rank more is a batch, whatever its size, and its reply has as many rows."""
        workers.serve(Echo())
        for batch in ([[1, 2]], [[1, 2], [3, 4], [5, 6]]):
            assert producer.infer("echo", {"x": batch})["y"].tolist() == batch

    def test_the_bare_value_of_a_single_input(
        self, producer: AnyProducer, workers: Workers
    ) -> None:
        """A model with one input takes its value without a name."""
        workers.serve(Doubler())
        assert producer.infer("doubler", 21)["y"] == 42

    def test_several_inputs_and_outputs(self, producer: AnyProducer, workers: Workers) -> None:
        """Each tensor arrives under its name, and each output comes back under its own."""
        workers.serve(Sums())
        reply = producer.infer("sums", {"b": [10, 20, 30], "a": [1, 2, 3]})
        assert {name: reply[name].tolist() for name in reply} == {"sum": [11, 22, 33], "size": 3}

    def test_only_the_outputs_asked_for(self, producer: AnyProducer, workers: Workers) -> None:
        """``outputs`` names what comes back; a name the model does not have is refused."""
        workers.serve(Sums())
        inputs = {"a": [1, 2, 3], "b": [1, 2, 3]}
        assert list(producer.infer("sums", inputs, outputs=["size"])) == ["size"]
        with pytest.raises(InvalidRequest, match="'total'"):
            producer.infer("sums", inputs, outputs=["total"])

    def test_an_error_of_the_model_is_raised(self, producer: AnyProducer, workers: Workers) -> None:
        """What the model raised on a request reaches its caller, typed, with the model's words."""
        workers.serve(Raiser())
        with pytest.raises(ModelError, match="below zero"):
            producer.infer("raiser", -1)
        assert producer.infer("raiser", 1)["y"] == 2

    def test_timeout_ends_the_wait_and_the_request(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """Past ``timeout`` the caller gets NoReply, and the model never sees the request."""
        gate = Gate()
        workers.serve(gate)
        running = producer.submit("gate", 1)
        gate.wait_for_call()
        with pytest.raises(NoReply):
            producer.infer("gate", 2, timeout=0.1, request_id="late")
        # The budget counts from submission on the server's clock, a little after the caller's.
        over_ms = server_ms(client) + 200
        until(lambda: server_ms(client) > over_ms)
        gate.open()
        with pytest.raises(Expired):
            producer.result("gate", "late", timeout=10)
        assert running.result(timeout=10)["y"] == 2
        assert gate.seen == [1]

    def test_a_tiny_timeout_is_a_timeout(self, producer: AnyProducer, workers: Workers) -> None:
        """Less than a millisecond is not taken for "without end" by the server's block."""
        workers.publish(Doubler())
        handle = producer.submit("doubler", 1)
        with pytest.raises(NoReply):
            handle.result(timeout=0.0001)


class TestHandle:
    def test_it_turns_done(self, producer: AnyProducer, workers: Workers) -> None:
        """``done`` looks without waiting, and ``result`` gives the same reply each time."""
        gate = Gate()
        workers.serve(gate)
        handle = producer.submit("gate", 4)
        gate.wait_for_call()
        assert not handle.done()
        assert "pending" in repr(handle)
        gate.open()
        until(handle.done)
        assert "done" in repr(handle)
        assert handle.result() is handle.result()
        assert handle.result()["y"] == 8

    def test_an_error_is_raised_each_time(self, producer: AnyProducer, workers: Workers) -> None:
        """A failed request raises its error as often as it is asked for."""
        workers.serve(Raiser())
        handle = producer.submit("raiser", -1)
        for _ in range(2):
            with pytest.raises(ModelError):
                handle.result(timeout=10)

    def test_a_wait_withdraws_nothing(self, producer: AnyProducer, workers: Workers) -> None:
        """After a wait that was too short the reply can still be had from the same handle."""
        gate = Gate()
        workers.serve(gate)
        handle = producer.submit("gate", 4)
        with pytest.raises(NoReply, match=handle.id):
            handle.result(timeout=0.05)
        gate.open()
        assert handle.result(timeout=10)["y"] == 8

    def test_handles_settle_in_any_order(self, producer: AnyProducer, workers: Workers) -> None:
        """Each handle gets the reply to its own request, whichever is asked first."""
        workers.serve(Doubler())
        handles = producer.submit_many("doubler", range(100))
        assert [handle.result(timeout=10)["y"] for handle in reversed(handles)] == [
            2 * number for number in reversed(range(100))
        ]


class TestCancel:
    def test_before_it_runs(self, producer: AnyProducer, workers: Workers) -> None:
        """A request withdrawn in the queue is answered ``cancelled`` and never runs."""
        gate = Gate()
        workers.serve(gate)
        first, second = producer.submit_many("gate", [1, 2])
        gate.wait_for_call()
        assert second.cancel()
        assert second.cancel(), "asked again, the answer is the same"
        with pytest.raises(Cancelled):
            second.result(timeout=10)
        gate.open()
        assert first.result(timeout=10)["y"] == 2
        assert producer.infer("gate", 3, timeout=10)["y"] == 6
        assert gate.seen == [1, 3]

    def test_while_it_runs(self, producer: AnyProducer, workers: Workers) -> None:
        """A request withdrawn while it runs is answered ``cancelled``; its result is discarded."""
        gate = Gate()
        workers.serve(gate)
        handle = producer.submit("gate", 1)
        gate.wait_for_call()
        assert handle.cancel()
        gate.open()
        assert producer.infer("gate", 2, timeout=10)["y"] == 4
        with pytest.raises(Cancelled):
            handle.result(timeout=10)

    def test_too_late(self, producer: AnyProducer, workers: Workers) -> None:
        """An answered request keeps its answer."""
        workers.serve(Doubler())
        handle = producer.submit("doubler", 1)
        until(handle.done)
        assert not handle.cancel()
        assert handle.result()["y"] == 2

    def test_unknown(self, producer: AnyProducer, workers: Workers) -> None:
        """Withdrawing what was never submitted is an error, not a success."""
        workers.serve(Doubler())
        with pytest.raises(NotFound, match="'nobody'"):
            producer.cancel("doubler", "nobody")


class TestResult:
    def test_from_another_producer(self, connect: Connect, workers: Workers) -> None:
        """A reply can be had by id from anywhere, as often as wanted, with its batch dimension."""
        gate = Gate()
        workers.serve(gate)
        asking, polling = connect(), connect()
        handle = asking.submit("gate", 5)
        gate.wait_for_call()
        with pytest.raises(NotReady, match=handle.id):
            polling.result("gate", handle.id)
        with pytest.raises(NotReady):
            polling.result("gate", handle.id, timeout=0.05)
        gate.open()
        for _ in range(2):
            assert polling.result("gate", handle.id, timeout=10)["y"].tolist() == [10]
        assert handle.result(timeout=10)["y"] == 10

    def test_unknown(self, producer: AnyProducer, workers: Workers) -> None:
        """An id that nobody submitted is told apart from one that waits."""
        workers.serve(Doubler())
        with pytest.raises(NotFound, match="'nobody'"):
            producer.result("doubler", "nobody")


class TestSameId:
    def test_it_joins_what_waits(self, connect: Connect, workers: Workers) -> None:
        """Under an id that waits nothing new runs: both get the first's answer, each its own way.

        The hint goes to the first sender's inbox; the second finds the reply by looking.
        """
        gate = Gate()
        workers.serve(gate)
        one, other = connect(poll_s=0.05), connect(poll_s=0.05)
        handles = [
            one.submit("gate", 1, request_id="same"),
            other.submit("gate", 2, request_id="same"),
            one.submit("gate", [3, 4], request_id="same"),
        ]
        gate.open()
        replies = [handle.result(timeout=10)["y"].tolist() for handle in handles]
        assert replies == [2, 2, [2]]
        assert gate.seen == [1]

    def test_it_joins_what_is_answered(self, connect: Connect, workers: Workers) -> None:
        """Under an id that is answered the answer is there at once, long polls notwithstanding."""
        workers.serve(Doubler())
        producer = connect(poll_s=3_600)
        assert producer.infer("doubler", [1, 2], request_id="same")["y"].tolist() == [2, 4]
        # A row that joins a batch gets the batch: no row of it is its own.
        again = producer.infer("doubler", 7, request_id="same", timeout=10)
        assert again["y"].tolist() == [2, 4]

    def test_one_id_names_one_request(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """Several requests cannot share an id: all but one would silently not run."""
        workers.publish(Doubler())
        with pytest.raises(InvalidRequest, match="'same'"):
            producer.submit_many("doubler", [1, 2], request_id="same")
        assert client.llen(workers.keys(Doubler()).normal) == 0


class TestSubmitMany:
    def test_all_or_none(self, connect: Connect, workers: Workers, client: redis.Redis) -> None:
        """A submission that would overfill the queue leaves it as it was."""
        workers.publish(Doubler())
        producer = connect(queue_limit=5)
        producer.submit_many("doubler", range(3))
        with pytest.raises(QueueFull, match="holds 3 requests, its limit is 5") as raised:
            producer.submit_many("doubler", range(3))
        assert raised.value.accepted == ()
        assert raised.value.retryable
        assert client.llen(workers.keys(Doubler()).normal) == 3

    def test_more_than_one_call_carries(self, connect: Connect, workers: Workers) -> None:
        """Of more than 1,000 requests those in front of a full queue are accepted, and answered."""
        workers.publish(Doubler())
        producer = connect(queue_limit=1_200)
        with pytest.raises(QueueFull) as raised:
            producer.submit_many("doubler", range(1_500))
        accepted = raised.value.accepted
        assert len(accepted) == 1_000
        workers.serve(Doubler())
        assert [handle.result(timeout=10)["y"] for handle in accepted] == [
            2 * number for number in range(1_000)
        ]

    def test_one_wrong_input_stops_all(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """A wrong input among right ones is found before anything is submitted."""
        workers.publish(Doubler())
        with pytest.raises(InvalidRequest, match="'x'"):
            producer.submit_many("doubler", [1, "two", 3])
        assert client.llen(workers.keys(Doubler()).normal) == 0


class TestWhereItGoes:
    def test_priority_is_the_lane(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """Each priority goes to its lane, with a bell in the normal lane where workers wait."""
        workers.publish(Doubler())
        keys = workers.keys(Doubler())
        producer.submit("doubler", 1, priority="high")
        producer.submit("doubler", 1, priority="low")
        producer.submit("doubler", 1, priority="normal")
        producer.submit("doubler", 1)
        lanes = [client.lrange(keys.lane(name), 0, -1) for name in ("high", "normal", "low")]
        assert [[bool(message) for message in lane] for lane in lanes] == [
            [True],
            [False, True, True],
            [True],
        ]

    def test_unknown_model(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis, prefix: str
    ) -> None:
        """A model no worker has published is refused by name, and no list is filled."""
        workers.publish(Doubler())
        before = set(client.scan_iter(f"*{prefix}*"))
        with pytest.raises(NotFound, match=r"'dubler'.*known models: doubler"):
            producer.submit("dubler", 1)
        assert set(client.scan_iter(f"*{prefix}*")) == before

    def test_a_bad_name_stays_out_of_redis(self, producer: AnyProducer) -> None:
        """Names outside the rules are refused before they become part of a key."""
        for call in (
            lambda: producer.infer("a:b", 1),
            lambda: producer.result("doubler", "a b"),
            lambda: producer.cancel("doubler", ""),
        ):
            with pytest.raises(InvalidRequest, match="not allowed"):
                call()

    def test_submission_is_stamped_with_server_time(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """``submitted_ms`` is the server's clock at submission, give or take a round trip."""
        workers.publish(Doubler())
        before_ms = server_ms(client)
        producer.submit("doubler", 1)
        after_ms = server_ms(client)
        message = client.lpop(workers.keys(Doubler()).normal)
        assert isinstance(message, bytes)
        stamp_ms = int(message.partition(b'"submitted_ms":')[2].partition(b",")[0])
        assert before_ms - 50 <= stamp_ms <= after_ms + 50


class TestDescription:
    def test_a_changed_model_is_read_again(self, producer: AnyProducer, workers: Workers) -> None:
        """Inputs that do not fit what is remembered are checked against what is published now."""
        narrow, wide = Echo(), Echo()
        wide.inputs = wide.outputs = [TensorSpec("x", "FP32", [3])]
        workers.publish(narrow)
        producer.submit("echo", [1, 2])
        workers.publish(wide)
        producer.submit("echo", [1, 2, 3])
        with pytest.raises(InvalidRequest, match="shape"):
            producer.submit("echo", [1, 2])

    def test_a_raised_limit_is_read_again(
        self, producer: AnyProducer, workers: Workers, client: redis.Redis
    ) -> None:
        """A message over the limit is refused unsent, until the published limit admits it."""
        workers.serve(Echo(), max_message_bytes=400)
        producer.infer("echo", [1, 2], timeout=10)
        with pytest.raises(TooLarge, match="400"):
            producer.submit("echo", np.ones((100, 2)))
        assert client.llen(workers.keys(Echo()).normal) == 0
        workers.publish(Echo())
        producer.submit("echo", np.ones((100, 2)))


class TestSharing:
    def test_many_threads_share_a_producer(self, producer: AnyProducer, workers: Workers) -> None:
        """Fifty threads at once each get the replies to their own requests."""
        workers.serve(Doubler())

        def ask(first: int) -> list[int]:
            return [
                int(producer.infer("doubler", number, timeout=60)["y"])
                for number in range(first, first + 20)
            ]

        with ThreadPoolExecutor(50) as threads:
            for first, doubled in zip(
                range(0, 1_000, 20), threads.map(ask, range(0, 1_000, 20)), strict=True
            ):
                assert doubled == [2 * number for number in range(first, first + 20)]

    def test_looking_beside_a_waiting_thread(self, connect: Connect, workers: Workers) -> None:
        """A thread that looks at a handle another thread waits for does not strand the others."""
        gate = Gate(max_batch_size=8)
        workers.serve(gate)
        producer = connect(poll_s=3_600)
        handles = producer.submit_many("gate", range(8))
        with ThreadPoolExecutor(16) as threads:
            waits = [threads.submit(handle.result, 30) for handle in handles]
            gate.open()
            looks = [threads.submit(until, handle.done) for handle in handles]
            assert [wait.result()["y"] for wait in waits] == [2 * row for row in range(8)]
            assert all(look.result() for look in looks)


class TestClose:
    def test_it_ends_waits(self, connect: Connect, workers: Workers, client: redis.Redis) -> None:
        """Closing a producer ends the waits of other threads."""
        workers.publish(Doubler())
        producer = connect(poll_s=0.2)
        handle = producer.submit("doubler", 1)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(handle.result)
            until(lambda: client.info("clients")["blocked_clients"])
            producer.close()
            with pytest.raises(NoReply, match="closed"):
                waiting.result(10)

    def test_a_closed_producer_says_so(self, connect: Connect, workers: Workers) -> None:
        """A closed producer refuses calls, closing again does nothing, requests go on."""
        workers.publish(Doubler())
        closed = connect()
        handle = closed.submit("doubler", 1)
        closed.close()
        closed.close()
        with pytest.raises(Unavailable, match="closed"):
            closed.submit("doubler", 1)
        with pytest.raises(NoReply, match="closed"):
            handle.result()
        workers.serve(Doubler())
        assert connect().result("doubler", handle.id, timeout=10)["y"].tolist() == [2]

    def test_it_leaves_the_embedded_server(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the address ``embedded`` a server runs for as long as a producer uses it."""
        # Not under pytest's folder for temporary files: its paths are too long for a socket.
        with tempfile.TemporaryDirectory(prefix="inferq-runtime-") as runtime:
            monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
            socket = Path(runtime, "inferq", "server.sock")
            one, other = connect("embedded"), connect("embedded")
            for producer in (one, other):
                with pytest.raises(NotFound):
                    producer.submit("doubler", 1)
            one.close()
            assert embedded.answers(socket)
            other.close()
            assert not embedded.answers(socket)
