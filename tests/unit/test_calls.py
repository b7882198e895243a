"""The steps behind both producers: which commands go out, and what comes of the answers."""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from inferq.calls import Calls, DescriptionCache, polls
from inferq.clock import REFRESH_S, SAMPLES, ClockSample, ServerClock
from inferq.composer import Composer, Outgoing, cut
from inferq.contract.description import ModelDescription
from inferq.contract.errors import (
    Cancelled,
    InferqError,
    InvalidRequest,
    InvalidSetting,
    NotFound,
    QueueFull,
    RequestError,
    TooLarge,
)
from inferq.contract.keys import Keys
from inferq.contract.tensors import TensorSpec
from inferq.options import RequestOptions, Terms
from inferq.outstanding import Slot, State
from inferq.settings import ProducerSettings
from support.steps import FakeServer, Words

KEYS = Keys("p", "m")
PENDING, ANSWERED, PUSHED = State.PENDING, State.ANSWERED, State.PUSHED
SERVER_S = 2_000_000_000


def describe(width: int = 2, max_message_bytes: int = 10_000) -> ModelDescription:
    return ModelDescription(
        name="m",
        inputs=(TensorSpec("x", "FP32", [width]),),
        outputs=(TensorSpec("y", "FP32", [width]), TensorSpec("z", "FP32", [])),
        max_batch_size=8,
        max_message_bytes=max_message_bytes,
    )


class Server(FakeServer):
    """Publishes a model, tells a time far from this machine's, and takes all submissions."""

    def __init__(self, *described: ModelDescription | None) -> None:
        self.described = list(described)
        self.lanes: list[list[dict[str, Any]]] = []
        super().__init__(
            GET=self._describe,
            SMEMBERS=lambda _: {b"other", b"another"},
            TIME=lambda _: [str(SERVER_S).encode(), b"500000"],
            EVALSHA=self.submit,
        )

    def _describe(self, words: Words) -> bytes | None:
        assert words == ("GET", KEYS.description)
        found = self.described.pop(0) if len(self.described) > 1 else self.described[0]
        return None if found is None else found.to_json()

    def submit(self, words: Words) -> Any:
        count = words[2] - 2
        self.lanes.append([head(message) for message in words[-count:]])
        return [0] + [PUSHED] * count


def head(message: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", message, 4)
    members: dict[str, Any] = json.loads(message[8 : 8 + length])
    return members


def terms(**options: Any) -> Terms:
    given: RequestOptions = options  # type: ignore[assignment]
    return Terms.of(given)


def make_calls(**settings: Any) -> Calls:
    chosen = ProducerSettings(redis_url="redis://nowhere", prefix="p", **settings)
    return Calls(chosen, "box")


def expect(outgoing: Outgoing) -> Slot:
    return Slot(outgoing.id, outgoing.single)


def submit(calls: Calls, server: FakeServer, many: Sequence[object], **options: Any) -> list[Slot]:
    return server.carry_out(calls.submit(KEYS, many, terms(**options), expect))


class TestSubmit:
    def test_what_is_sent(self) -> None:
        """A request is stamped, names its inbox, and goes to its lane with the normal one beside."""
        calls = make_calls(queue_limit=7, pending_ttl_s=90_000)
        server = Server(describe())
        (slot,) = submit(
            calls, server, [[1, 2]], priority="low", timeout=2, outputs=["z"], parameters={"k": 1}
        )
        verb, _sha1, count, *operands = server.sent[-1]
        assert (verb, count) == ("EVALSHA", 3)
        assert operands[:5] == [
            KEYS.lane("low"),
            KEYS.normal,
            KEYS.reply(slot.id),
            7,
            90_000_000,
        ]
        assert head(operands[5]) == {
            "id": slot.id,
            "inputs": [
                {
                    "name": "x",
                    "datatype": "FP32",
                    "shape": [1, 2],
                    "parameters": {"binary_data_size": 8},
                }
            ],
            "outputs": [{"name": "z"}],
            "parameters": {
                "submitted_ms": pytest.approx(SERVER_S * 1_000 + 500, abs=5_000),
                "reply_to": "box",
                "k": 1,
                "timeout": 2_000_000,
            },
        }
        assert (slot.single, slot.state) == (True, PUSHED)

    def test_states_come_back_in_order(self) -> None:
        """Each slot learns what the submission said of its own request."""
        server = Server(describe())
        server.answers["EVALSHA"] = lambda _: [0, PUSHED, ANSWERED, PENDING]
        slots = submit(make_calls(), server, [[1, 2], [[1, 2]], [3, 4]])
        assert [slot.state for slot in slots] == [PUSHED, ANSWERED, PENDING]
        assert [slot.single for slot in slots] == [True, False, True]

    def test_expected_before_it_is_sent(self) -> None:
        """A reply may come before the answer to the submission: somebody must expect it by then."""
        expected: list[str] = []

        def note(outgoing: Outgoing) -> Slot:
            expected.append(outgoing.id)
            return expect(outgoing)

        server = Server(describe())
        sent_with: list[list[str]] = []
        take = server.submit
        server.answers["EVALSHA"] = lambda words: sent_with.append(list(expected)) or take(words)  # type: ignore[func-returns-value]
        server.carry_out(make_calls().submit(KEYS, [[1, 2], [3, 4]], terms(), note))
        assert [len(ids) for ids in sent_with] == [2]

    def test_nothing_to_submit(self) -> None:
        """No requests are no submission."""
        server = Server(describe())
        assert submit(make_calls(), server, []) == []
        assert "EVALSHA" not in server.verbs()

    def test_in_parts(self) -> None:
        """What one call cannot carry goes in several, in order."""
        server = Server(describe())
        slots = submit(make_calls(), server, [[1, 2]] * 2_500)
        assert [len(lane) for lane in server.lanes] == [1_000, 1_000, 500]
        assert [message["id"] for lane in server.lanes for message in lane] == [
            slot.id for slot in slots
        ]

    @pytest.mark.parametrize("refusal", [[-1, 5], QueueFull("memory")], ids=["limit", "memory"])
    def test_a_queue_that_fills_up(self, refusal: Any) -> None:
        """Whatever fills the queue, what was accepted before is told with the error."""
        server = Server(describe())
        outcomes = iter([None, refusal])

        def take(words: Words) -> Any:
            outcome = next(outcomes)
            return server.submit(words) if outcome is None else outcome

        server.answers["EVALSHA"] = take
        with pytest.raises(QueueFull) as raised:
            submit(make_calls(), server, [[1, 2]] * 1_500)
        accepted = raised.value.accepted
        assert [slot.id for slot in accepted] == [message["id"] for message in server.lanes[0]]

    def test_a_full_queue_says_how_full(self) -> None:
        """The refusal names the model, the length and the limit."""
        server = Server(describe())
        server.answers["EVALSHA"] = lambda _: [-1, 5]
        with pytest.raises(QueueFull, match="queue of m holds 5 requests, its limit is 6"):
            submit(make_calls(queue_limit=6), server, [[1, 2]])

    def test_one_wrong_input_stops_all(self) -> None:
        """Nothing is submitted when one of the inputs is wrong."""
        server = Server(describe())
        with pytest.raises(InvalidRequest, match="shape"):
            submit(make_calls(), server, [[1, 2], [1, 2, 3]])
        assert server.lanes == []

    def test_an_id_names_one_request(self) -> None:
        """An id of one's own goes with one request, and with no more."""
        server = Server(describe())
        (slot,) = submit(make_calls(), server, [[1, 2]], request_id="mine")
        assert slot.id == "mine"
        with pytest.raises(InvalidRequest, match="'mine' was given for 2 requests"):
            submit(make_calls(), server, [[1, 2], [3, 4]], request_id="mine")

    def test_too_large(self) -> None:
        """A message over the model's limit is refused with both numbers."""
        server = Server(describe(max_message_bytes=300))
        with pytest.raises(TooLarge, match=r"message of \d+ bytes is over m's limit of 300"):
            submit(make_calls(), server, [np.ones((100, 2))])

    @pytest.mark.parametrize(
        ("outputs", "words"), [(["w"], "unknown output 'w'"), (["y", "y"], "named twice")]
    )
    def test_outputs_the_model_does_not_have(self, outputs: list[str], words: str) -> None:
        """The outputs asked for are checked before anything is sent."""
        server = Server(describe())
        with pytest.raises(InvalidRequest, match=words):
            submit(make_calls(), server, [[1, 2]], outputs=outputs)
        assert server.lanes == []


class TestSubmitEach:
    @staticmethod
    def run(server: FakeServer, many: Sequence[object]) -> list[Slot | RequestError]:
        return server.carry_out(make_calls().submit_each(KEYS, many, terms(), expect))

    def test_errors_stand_in_their_places(self) -> None:
        """Wrong inputs are told where they were, and the others are submitted."""
        server = Server(describe(max_message_bytes=300))
        placed = self.run(server, [[1], [1, 2], np.ones((100, 2)), [3, 4], "x"])
        assert [type(each) for each in placed] == [
            InvalidRequest,
            Slot,
            TooLarge,
            Slot,
            InvalidRequest,
        ]
        (lane,) = server.lanes
        assert [message["id"] for message in lane] == [
            each.id for each in placed if isinstance(each, Slot)
        ]

    def test_only_wrong_inputs(self) -> None:
        """With nothing to submit nothing is submitted."""
        server = Server(describe())
        assert [type(each) for each in self.run(server, [[1], "x"])] == [InvalidRequest] * 2
        assert server.lanes == []

    def test_a_full_queue_accepts_a_first_part(self) -> None:
        """What was accepted ends in front of the first input that the queue has no room for."""
        server = Server(describe())
        server.answers["EVALSHA"] = lambda _: [-1, 5]
        with pytest.raises(QueueFull) as raised:
            self.run(server, [[1], "x", [1, 2], [1]])
        assert [type(each) for each in raised.value.accepted] == [InvalidRequest] * 2


class TestDescription:
    def test_it_is_read_once(self) -> None:
        """A description is trusted for a while, and not read again for each request."""
        calls, server = make_calls(), Server(describe())
        for _ in range(3):
            submit(calls, server, [[1, 2]])
        assert server.verbs().count("GET") == 1

    def test_it_is_read_again_in_the_end(self) -> None:
        """A description is not trusted for longer than the setting says."""
        calls, server = make_calls(metadata_ttl_s=0), Server(describe())
        for _ in range(3):
            submit(calls, server, [[1, 2]])
        assert server.verbs().count("GET") == 3

    def test_a_mismatch_asks_whether_the_model_has_changed(self) -> None:
        """Inputs that fit the model as it is now are sent, although it was another before."""
        calls, server = make_calls(), Server(describe(2), describe(3))
        submit(calls, server, [[1, 2]])
        submit(calls, server, [[1, 2, 3]])
        assert server.verbs().count("GET") == 2
        assert [lane[0]["inputs"][0]["shape"] for lane in server.lanes] == [[1, 2], [1, 3]]

    def test_a_limit_may_have_changed_too(self) -> None:
        """A message that was too large yesterday may be right today."""
        calls = make_calls()
        server = Server(describe(max_message_bytes=300), describe())
        submit(calls, server, [[1, 2]])
        submit(calls, server, [np.ones((100, 2))])
        assert len(server.lanes) == 2

    def test_a_fresh_one_is_believed(self) -> None:
        """A mismatch with what was read a moment ago is the caller's mistake; nobody asks again."""
        server = Server(describe())
        with pytest.raises(InvalidRequest):
            submit(make_calls(), server, [[1]])
        assert server.verbs().count("GET") == 1

    def test_unknown_model(self) -> None:
        """A model that nobody has published is refused, and the known ones are listed."""
        server = Server(None)
        with pytest.raises(NotFound, match="model 'm' here; known models: another, other"):
            submit(make_calls(), server, [[1, 2]])
        assert server.verbs() == ["GET", "SMEMBERS"]

    def test_no_models_at_all(self) -> None:
        """Where there are no models the sentence says so."""
        server = Server(None)
        server.answers["SMEMBERS"] = lambda _: set()
        with pytest.raises(NotFound, match="known models: none"):
            submit(make_calls(), server, [[1, 2]])

    def test_not_a_description(self) -> None:
        """Another program's value at the model's key is a setup error, not a crash."""
        server = Server(describe())
        server.answers["GET"] = lambda _: b"junk"
        with pytest.raises(InvalidSetting, match="not a model description"):
            submit(make_calls(), server, [[1, 2]])

    def test_the_cache(self) -> None:
        """A description is given until its time is over, or until it is dropped."""
        cache = DescriptionCache(ttl_s=10.0)
        assert cache.get("m", 0.0) is None
        cache.put("m", describe().to_json(), 100.0)
        assert cache.get("m", 109.9) == describe()
        assert cache.get("m", 110.0) is None
        cache.put("m", describe().to_json(), 200.0)
        cache.drop("m")
        cache.drop("m")
        assert cache.get("m", 200.0) is None


class TestClock:
    def test_it_is_asked_once_in_a_while(self) -> None:
        """The server's time is sampled a few times, and then kept by the local clock."""
        calls, server = make_calls(), Server(describe())
        for _ in range(3):
            submit(calls, server, [[1, 2]])
        assert server.verbs().count("TIME") == SAMPLES

    def test_it_is_not_asked_by_everybody(self) -> None:
        """Of calls that find the clock unset at once, those that come later use what was found."""
        calls, server = make_calls(), Server(describe())
        waiting = [calls.submit(KEYS, [[1, 2]], terms(), expect) for _ in range(20)]
        flights = [next(steps) for steps in waiting]
        # All have asked for the description; then each asks for the time, and only then is any
        # of them answered.
        flights = [
            steps.send(server.fly(flight)) for steps, flight in zip(waiting, flights, strict=True)
        ]
        for steps, flight in zip(waiting, flights, strict=True):
            while [words[0] for words, _ in flight] == ["TIME"]:
                flight = steps.send(server.fly(flight))  # noqa: PLW2901 - one flight after another
        assert server.verbs().count("TIME") == SAMPLES + 19

    def test_the_fastest_round_trip_counts(self) -> None:
        """The estimate is the sample whose error is bounded best."""
        clock = ServerClock()
        slow = [(0.0, 4.0, 1_000.0), (10.0, 10.2, 1_010.1), (20.0, 23.0, 1_029.0)]
        clock.adjust([ClockSample(*sample) for sample in slow])
        assert clock.now_ms(30.0) == 1_030_000
        assert not clock.is_stale(10.2 + REFRESH_S - 1)
        assert clock.is_stale(10.2 + REFRESH_S)


class TestResultAndCancel:
    @staticmethod
    def result(value: bytes | None) -> Any:
        server = FakeServer(GET=lambda _: value)
        found = server.carry_out(make_calls().result(KEYS, "r"))
        assert server.sent == [("GET", KEYS.reply("r"))]
        return found

    def test_pending(self) -> None:
        """An empty reply is a request that waits."""
        assert self.result(b"") is None

    def test_a_reply_keeps_its_batch_dimension(self) -> None:
        """Who asks by id need not have submitted, and gets the reply as it is."""
        output = {"name": "y", "datatype": "INT64", "shape": [1], "data": [4]}
        text = json.dumps({"id": "r", "model_name": "m", "outputs": [output]}).encode()
        assert self.result(text)["y"].tolist() == [4]

    def test_unknown(self) -> None:
        """No reply key is a request that nobody knows."""
        with pytest.raises(NotFound, match="no request 'r' of model 'm' is known"):
            self.result(None)

    def test_an_error_is_raised(self) -> None:
        """An error reply is raised as what it is."""
        with pytest.raises(Cancelled, match="why"):
            self.result(b'{"id":"r","error":"why","parameters":{"code":"cancelled"}}')

    @pytest.mark.parametrize(("answer", "in_time"), [(1, True), (0, False)])
    def test_cancelled_or_too_late(self, answer: int, *, in_time: bool) -> None:
        """The script's answer tells whether the withdrawal came in time."""
        server = FakeServer(EVALSHA=lambda _: answer)
        assert server.carry_out(make_calls().cancel(KEYS, "r")) is in_time

    def test_cancelling_the_unknown(self) -> None:
        """Withdrawing what nobody knows is an error."""
        server = FakeServer(EVALSHA=lambda _: -1)
        with pytest.raises(NotFound, match="'r'"):
            server.carry_out(make_calls().cancel(KEYS, "r"))

    def test_a_repeated_cancellation_is_the_same(self) -> None:
        """Two calls for one id write the same bytes, so that the second recognises the first's."""
        server = FakeServer(EVALSHA=lambda _: 1)
        for _ in range(2):
            server.carry_out(make_calls().cancel(KEYS, "r"))
        assert server.sent[0] == server.sent[1]

    @pytest.mark.parametrize("name", ["", "a b", "{x}", "x\n", None, 7])
    def test_bad_ids_stay_out_of_redis(self, name: Any) -> None:
        """An id outside the rules never becomes part of a key."""
        server = FakeServer()
        call: Callable[..., Any]
        for call in (make_calls().result, make_calls().cancel):
            with pytest.raises(InvalidRequest, match="is not allowed"):
                server.carry_out(call(KEYS, name))
        assert server.sent == []

    @pytest.mark.parametrize("name", ["", "a:b", "stats", "models", "x" * 129, None])
    def test_bad_models_stay_out_of_redis(self, name: Any) -> None:
        """Nor does a model's name."""
        with pytest.raises(InvalidRequest):
            make_calls().keys(name)

    def test_polls_become_rarer(self) -> None:
        """Looks at a reply start quick, since most come soon, and end at the pace of polling."""
        pauses = polls(0.05)
        assert [next(pauses) for _ in range(6)] == pytest.approx(
            [0.005, 0.01, 0.02, 0.04, 0.05, 0.05]
        )


class TestCut:
    @staticmethod
    def sized(*sizes: int) -> list[Outgoing]:
        return [Outgoing(str(place), bytes(size), single=True) for place, size in enumerate(sizes)]

    def test_by_count(self) -> None:
        """A part holds 1,000 requests at most."""
        parts = cut(self.sized(*[1] * 2_001))
        assert [len(part) for part in parts] == [1_000, 1_000, 1]

    def test_by_bytes(self) -> None:
        """A part holds 64 MiB at most, unless one request alone is larger."""
        mib = 1024**2
        parts = cut(self.sized(32 * mib, 32 * mib, 1, 100 * mib, 1))
        assert [[each.id for each in part] for part in parts] == [["0", "1"], ["2"], ["3"], ["4"]]

    def test_nothing(self) -> None:
        """Nothing is cut into nothing."""
        assert cut([]) == []


def test_composing_knows_no_surprise() -> None:
    """Every wrong input becomes an error of this call's requests, never an exception of its own."""
    strange: list[Any] = [None, object(), {}, {"y": 1}, {"x": None}, {"x": {}}, [[1], [1, 2]], b"x"]
    for each in Composer("box").compose(describe(), strange, terms(), 0):
        assert isinstance(each, InferqError), each
