"""Bad input inside good batches: a typed error or a dead entry, one log line, nobody else affected."""

import json
import logging
from typing import Any, NamedTuple

import pytest
import redis

from inferq.contract.tensors import Array
from inferq_worker import Model, TensorSpec
from support.bare import Bare, doubled
from support.batches import message
from support.waiting import until
from support.workers import Doubler, Gate, Workers

LIMIT = 4_096


class Pair(Model):
    """Adds a small number to two floats; notes every row it was given."""

    inputs = [TensorSpec("a", "FP32", [2]), TensorSpec("n", "UINT8", [])]
    outputs = [TensorSpec("y", "FP32", [2])]
    max_batch_size = 1_000

    def __init__(self) -> None:
        self.seen: list[int] = []

    def predict(self, a: Array, n: Array) -> dict[str, Array]:
        self.seen += n.tolist()
        return {"y": a + n[:, None].astype("f4")}


class Bad(NamedTuple):
    """A message, and what becomes of it: an error code and words of its sentence, or ``dead``."""

    title: str
    message: bytes
    code: str
    words: str

    def numbered(self, number: int) -> bytes:
        """Return the message under an id of its own, of the same length: frames count theirs."""
        return self.message.replace(b"bad##", b"bad%02d" % number)


A = '{"name":"a","datatype":"FP32","shape":[1,2],"data":[1,2]}'
N = '{"name":"n","datatype":"UINT8","shape":[1],"data":[1]}'


def text(inputs: str, more: str = "", request_id: str = '"bad##"') -> bytes:
    return f'{{"id":{request_id},"inputs":[{inputs}]{more}}}'.encode()


def of_a(**changes: Any) -> bytes:
    tensor = {**json.loads(A), **changes}
    return text(
        json.dumps({name: value for name, value in tensor.items() if value is not ...}) + "," + N
    )


def of_n(data: str, shape: str = "[1]") -> bytes:
    return text(A + ',{"name":"n","datatype":"UINT8","shape":' + shape + ',"data":' + data + "}")


FRAME = message("bad##", ("a", "FP32", [[1, 2]]), ("n", "UINT8", [1]))
INVALID = "invalid_request"
BAD = [
    Bad("not JSON", b"hello", "dead", "neither JSON nor a frame"),
    Bad("a JSON list", b"[]", "dead", "neither JSON nor a frame"),
    Bad("a number", b"5", "dead", "neither JSON nor a frame"),
    Bad("binary junk", bytes(range(256)), "dead", "neither JSON nor a frame"),
    Bad("invalid UTF-8", b'{"id":"\xff\xfe"}', "dead", "not JSON"),
    Bad("broken JSON", b'{"id":"bad##",,}', INVALID, "not JSON"),
    Bad("truncated JSON", text(A + "," + N)[:-9], INVALID, "not JSON"),
    Bad("nothing but braces", b"{}", "dead", "id: field required"),
    Bad("no inputs", b'{"id":"bad##"}', INVALID, "inputs: field required"),
    Bad("inputs of another type", b'{"id":"bad##","inputs":{}}', INVALID, "inputs: input should be"),
    Bad("empty inputs", text(""), INVALID, "inputs: "),
    Bad("input of another type", text('"a"'), INVALID, "inputs[0]"),
    Bad("deep JSON", b'{"id":"bad##","x":' + b"[" * 1_500 + b"]" * 1_500 + b"}", INVALID, "not JSON"),
    Bad("deep data", of_n("[" * 100 + "1" + "]" * 100), INVALID, "tensor 'n'"),
    Bad("no id", text(A + "," + N, request_id="null"), "dead", "id: "),
    Bad("id of another type", text(A + "," + N, request_id="5"), "dead", "id: "),
    Bad("empty id", text(A + "," + N, request_id='""'), "dead", "id: "),
    Bad("long id", text(A + "," + N, request_id=f'"{"i" * 129}"'), "dead", "id: "),
    Bad("id with a space", text(A + "," + N, request_id='"a b"'), "dead", "id: "),
    Bad("id with a brace", text(A + "," + N, request_id='"}:x"'), "dead", "id: "),
    Bad("id with a line break", text(A + "," + N, request_id='"a\\n"'), "dead", "id: "),
    Bad("id with a NUL", text(A + "," + N, request_id='"a\\u0000"'), "dead", "id: "),
    Bad("unknown tensor", text(A + "," + N + "," + A.replace('"a"', '"z"')), INVALID, "unknown tensor 'z'"),
    Bad("hostile tensor name", text(A.replace('"a"', '"\\nERROR\\u001b[31m"')), INVALID, r"unknown tensor '\nERROR\x1b[31m'"),
    Bad("missing tensor", text(A), INVALID, "missing tensor 'n'"),
    Bad("duplicated tensor", text(A + "," + A + "," + N), INVALID, "tensor 'a'"),
    Bad("unknown datatype", of_a(datatype="FLOAT"), INVALID, "inputs[0].datatype"),
    Bad("wrong datatype", of_a(datatype="FP64"), INVALID, "tensor 'a': expected FP32, got FP64"),
    Bad("no shape", of_a(shape=...), INVALID, "inputs[0].shape"),
    Bad("shape without a batch", of_a(shape=[]), INVALID, "inputs[0].shape"),
    Bad("wrong shape", of_a(shape=[2, 1]), INVALID, "tensor 'a': expected shape [-1, 2]"),
    Bad("wrong rank", of_a(shape=[2]), INVALID, "tensor 'a': expected shape [-1, 2]"),
    Bad("negative shape", of_a(shape=[-1, 2]), INVALID, "inputs[0].shape[0]"),
    Bad("fractional shape", of_a(shape=[1.5, 2]), INVALID, "inputs[0].shape[0]"),
    Bad("hundred dimensions", of_a(shape=[1] * 100, data=[1]), INVALID, "inputs[0].shape"),
    Bad("shape beyond memory", of_a(shape=[2**40, 2**40]), INVALID, "tensor 'a'"),
    Bad("empty but beyond memory", of_a(shape=[0, 2**63], data=[]), INVALID, "tensor 'a'"),
    Bad("rows that differ", of_n("[1,2]", "[2]"), INVALID, "'n' has 2 rows, 'a' has 1"),
    Bad("too few elements", of_a(data=[1]), INVALID, "tensor 'a': shape [1, 2] needs 2 elements"),
    Bad("too many elements", of_a(data=[1, 2, 3]), INVALID, "tensor 'a': shape [1, 2] needs 2"),
    Bad("no data", of_a(data=...), INVALID, "tensor 'a'"),
    Bad("data of another type", of_a(data="1,2"), INVALID, "inputs[0].data"),
    Bad("ragged data", of_a(data=[[1, 2], [3]], shape=[2, 2]), INVALID, "tensor 'a': data is ragged"),
    Bad("NaN", text(A.replace("[1,2]}", "[NaN,2]}") + "," + N), INVALID, "tensor 'a'"),
    Bad("Infinity", text(A.replace("[1,2]}", "[1,-Infinity]}") + "," + N), INVALID, "tensor 'a'"),
    Bad("number beyond double", text(A.replace("[1,2]}", "[1,1e999]}") + "," + N), INVALID, "tensor 'a'"),
    Bad("number beyond single", of_a(data=[1, 1e39]), INVALID, "tensor 'a': a number is out of the range"),
    Bad("text for numbers", of_a(data=["1", "2"]), INVALID, "tensor 'a': FP32 data must be numbers"),
    Bad("nothing for numbers", of_a(data=[None, 1]), INVALID, "tensor 'a': FP32 data must be numbers"),
    Bad("truth for numbers", of_n("[true]"), INVALID, "tensor 'n': UINT8 data must be whole numbers"),
    Bad("integer above its range", of_n("[256]"), INVALID, "tensor 'n': a number is out of the range"),
    Bad("integer below its range", of_n("[-1]"), INVALID, "tensor 'n': a number is out of the range"),
    Bad("integer beyond 64 bits", of_n("[9" + "0" * 40 + "]"), INVALID, "tensor 'n': a number is out"),
    Bad("fraction for an integer", of_n("[1.5]"), INVALID, "tensor 'n': UINT8 data must be whole"),
    Bad("unknown output", text(A + "," + N, ',"outputs":[{"name":"z"}]'), INVALID, "unknown output 'z'"),
    Bad("output twice", text(A + "," + N, ',"outputs":[{"name":"y"},{"name":"y"}]'), INVALID, "output 'y' is named twice"),
    Bad("outputs of another type", text(A + "," + N, ',"outputs":5'), INVALID, "outputs: "),
    Bad("parameters of another type", text(A + "," + N, ',"parameters":[]'), INVALID, "parameters: "),
    Bad("negative timeout", text(A + "," + N, ',"parameters":{"timeout":-1}'), INVALID, "parameters.timeout"),
    Bad("fractional timeout", text(A + "," + N, ',"parameters":{"timeout":1.5}'), INVALID, "parameters.timeout"),
    Bad("box with a colon", text(A + "," + N, ',"parameters":{"reply_to":"a:b"}'), INVALID, "parameters.reply_to"),
    Bad("box with a brace", text(A + "," + N, ',"parameters":{"reply_to":"}x"}'), INVALID, "parameters.reply_to"),
    Bad("nested parameter", text(A + "," + N, ',"parameters":{"mine":{}}'), INVALID, "parameters.mine"),
    Bad("frame without a length", b"OIP1", "dead", "the frame ends before its length"),
    Bad("frame that promises 4 GiB", b"OIP1\xff\xff\xff\xff{}", "dead", "promises a head of 4294967295"),
    Bad("frame without a head", b"OIP1\x00\x00\x00\x00", "dead", "not JSON"),
    Bad("frame cut in its tensors", FRAME[:-1], INVALID, "tensor 'n'"),
    Bad("frame with more behind", FRAME + b"x", INVALID, "1 bytes are left"),
    Bad("frame of a wrong size", FRAME.replace(b'size":8', b'size":7'), INVALID, "1 bytes are left"),
    Bad("bytes promised in JSON", text('{"name":"a","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}},' + N), INVALID, "tensor 'a'"),
    Bad("over the limit", text(A + "," + N, ',"x":"' + "x" * LIMIT + '"'), "too_large", f"over the limit of {LIMIT}"),
    Bad("junk over the limit", b"?" * 1024**2, "dead", f"over the limit of {LIMIT}"),
]  # fmt: skip


def good(number: int) -> bytes:
    if number % 2:
        return text(A + "," + N.replace("[1]}", f"[{number}]}}"), request_id=f'"good{number}"')
    return message(f"good{number}", ("a", "FP32", [[1, 2]]), ("n", "UINT8", [number]))


def test_every_bad_row_in_one_batch(
    client: redis.Redis, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """All kinds of bad messages between good ones in one batch: see each row of the table."""
    pair = Pair()
    bare = Bare(client, workers.keys(pair))
    for number, bad in enumerate(BAD):
        bare.push(good(number), b"", bad.numbered(number))
    with caplog.at_level(logging.WARNING):
        workers.serve(pair, max_message_bytes=LIMIT)
        until(bare.is_drained, 30.0)
    answered = [number for number, bad in enumerate(BAD) if bad.code != "dead"]
    for number in answered:
        bad = BAD[number]
        code, sentence = bare.error(f"bad{number:02}")
        assert (bad.title, code) == (bad.title, bad.code)
        assert bad.words in sentence, bad.title
        assert sentence.isprintable(), bad.title
    dead = bare.dead()
    buried = [bad for bad in BAD if bad.code == "dead"]
    assert len(dead) == len(buried)
    for bad, (told, raw) in zip(buried, dead, strict=True):
        assert bad.words in told["reason"], bad.title
        assert told["bytes"] == len(bad.message)
        assert raw == bad.message[: 64 * 1024]
    for number in range(len(BAD)):
        reply = bare.reply(f"good{number}")
        assert reply["y"].tolist() == [[1 + number, 2 + number]]  # type: ignore[index]
    assert pair.seen == list(range(len(BAD)))
    refusals = [record.getMessage() for record in caplog.records]
    assert len(refusals) == len(BAD)
    assert all(line.startswith("refused a message of ") for line in refusals)
    assert all(line.isprintable() for line in refusals)
    metrics = bare.metrics()
    assert metrics["requests_succeeded"] == metrics["rows"] == len(BAD)
    assert metrics["requests_invalid_request"] == len(answered) - 1
    assert metrics["requests_too_large"] == 1
    assert metrics["dead"] == len(buried)


def test_only_the_models_own_keys_are_touched(client: redis.Redis, workers: Workers) -> None:
    """Whatever ids and boxes a message names, nothing is written outside the model's own keys."""
    pair = Pair()
    bare = Bare(client, workers.keys(pair))
    before = set(client.scan_iter(count=1_000))
    for number, bad in enumerate(BAD):
        bare.push(bad.numbered(number))
    workers.serve(pair, max_message_bytes=LIMIT)
    until(bare.is_drained, 30.0)
    workers.stop()
    made = {raw.decode() for raw in set(client.scan_iter(count=1_000)) - before}
    tag = bare.keys.claims.removesuffix("claims")
    # The worker's own name stays on record for a minute.
    ours = {key for key in made if bare.keys.prefix in key and f"{tag}worker:" not in key}
    assert ours == {
        f"{bare.keys.prefix}:models",
        *(tag + name for name in ("metrics", "model", "dead")),
        *(tag + f"reply:bad{number:02}" for number, bad in enumerate(BAD) if bad.code != "dead"),
    }


def test_megabyte_of_junk(client: redis.Redis, workers: Workers) -> None:
    """A megabyte of junk under the limit is buried cut, and the request behind it answered."""
    bare = Bare(client, workers.keys(Doubler()))
    bare.push(b"\x00" * 1024**2, doubled("r1", 1))
    workers.serve(Doubler())
    assert bare.values("r1") == [2]
    ((told, raw),) = bare.dead()
    assert (told["bytes"], len(raw)) == (1024**2, 64 * 1024)


def test_queue_of_nothing_but_junk(client: redis.Redis, workers: Workers) -> None:
    """Ten thousand junk messages in one claim are buried, and the dead list keeps its limit."""
    bare = Bare(client, workers.keys(Doubler()))
    for first in range(0, 10_000, 1_000):
        bare.push(*(b"junk%d" % number for number in range(first, first + 1_000)))
    workers.serve(Doubler(), max_batch_size=10_000, dead_limit=100)
    until(bare.is_drained, 30.0)
    assert [raw for _, raw in bare.dead()] == [
        b"junk%d" % number for number in range(9_900, 10_000)
    ]
    assert bare.metrics()["dead"] == 10_000


def test_wake_up_tokens(client: redis.Redis, workers: Workers) -> None:
    """Empty elements wake a worker and are dropped, in a batch or alone."""
    gate = Gate(8)
    gate.open()
    bare = Bare(client, workers.keys(gate))
    workers.serve(gate)
    bare.push(b"", b"", b"")
    until(bare.is_drained)
    bare.push(b"", doubled("r1", 1), b"", doubled("r2", 2))
    assert (bare.values("r1"), bare.values("r2")) == ([2], [4])
    assert bare.dead() == []
    assert gate.seen == [1, 2]


@pytest.mark.parametrize("request_id", ["a", ".", ":", "..:..", "A-z_0.9:x", "i" * 128])
def test_odd_ids(client: redis.Redis, workers: Workers, request_id: str) -> None:
    """Every id that the rules allow can be used, odd as it looks."""
    bare = Bare(client, workers.keys(Doubler()))
    workers.serve(Doubler())
    bare.push(doubled(request_id, 21))
    assert bare.values(request_id) == [42]


def test_request_without_rows(client: redis.Redis, workers: Workers) -> None:
    """A leading dimension of 0 is legal and answered without a model call, beside others."""
    gate = Gate(8)
    gate.open()
    bare = Bare(client, workers.keys(gate))
    bare.push(doubled("none"), doubled("one", 1))
    workers.serve(gate)
    assert (bare.values("none"), bare.values("one")) == ([], [2])
    assert gate.sizes == [1]


def test_stamps_that_are_none(client: redis.Redis, workers: Workers) -> None:
    """Stamps in seconds, from the future or beyond all sense cost their own figures alone."""
    bare = Bare(client, workers.keys(Doubler()))
    stamps = [0, 1, bare.now_ms() // 1_000, bare.now_ms() + 10**9, 2**64 - 1]
    workers.serve(Doubler())
    for turn in range(20):
        for number, stamp in enumerate(stamps):
            bare.push(doubled(f"r{turn}-{number}", number, parameters={"submitted_ms": stamp}))
    for number in range(len(stamps)):
        assert bare.values(f"r19-{number}") == [2 * number]
    until(bare.is_drained)
    metrics = bare.metrics()
    assert metrics["requests_succeeded"] == 100
    assert metrics["queue_ns_sum"] == 60 * 86_400 * 10**9
    assert "unwritable" not in metrics


def test_keys_that_a_sender_made_something_else(client: redis.Redis, workers: Workers) -> None:
    """A reply key or inbox of another type costs its own request, and nobody else anything.

    Also while something was cancelled lately, when workers look at the reply keys first.
    """
    bare = Bare(client, workers.keys(Doubler()))
    client.hset(bare.keys.reply("taken"), "x", "1")
    client.hset(bare.keys.inbox("taken"), "x", "1")
    client.set(bare.keys.cancelled, "1", px=60_000)
    bare.push(
        doubled("taken", 1),
        doubled("no_box", 2, parameters={"reply_to": "taken"}),
        doubled("free", 3),
    )
    workers.serve(Doubler())
    assert (bare.values("no_box"), bare.values("free")) == ([4], [6])
    until(bare.is_drained)
    assert bare.metrics()["unwritable"] == 2
    bare.push(doubled("later", 4))
    assert bare.values("later") == [8]


def test_cancelled_in_the_queue(client: redis.Redis, workers: Workers) -> None:
    """A request whose reply is there already, with the flag up, is dropped without running."""
    gate = Gate(8)
    gate.open()
    bare = Bare(client, workers.keys(gate))
    client.set(bare.keys.reply("gone"), b'{"id":"gone","error":"withdrawn"}', px=60_000)
    client.set(bare.keys.cancelled, "1", px=60_000)
    bare.push(doubled("gone", 1, parameters={"reply_to": "box"}), doubled("stays", 2))
    workers.serve(gate)
    assert bare.values("stays") == [4]
    assert gate.seen == [2]
    assert bare.hints("box") == ["gone"]
    assert bare.metrics()["discarded"] == 1
