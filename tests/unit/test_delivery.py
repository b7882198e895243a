"""What each request is answered with."""

import json

import numpy as np
import pytest

from inferq.contract.replies import Reply, ReplyReader
from inferq.contract.requests import Address
from inferq_worker.delivery import Parcel
from support.batches import message
from support.completions import KEYS, NOW_MS, Bench, frame, read_call, text_request


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestSuccess:
    def test_frame_for_a_frame(self, bench: Bench) -> None:
        """A binary request is answered in binary, with model, version and id."""
        reply = bench.reply(frame())
        assert isinstance(reply, Reply)
        assert (reply.id, reply.model_name, reply.model_version) == ("r", "m", "7")
        assert {name: array.tolist() for name, array in reply.items()} == {
            "half": [2.5],
            "whole": [5],
            "text": [b"5"],
        }

    def test_json_for_json(self, bench: Bench) -> None:
        """A JSON request is answered in JSON."""
        reply = bench.reply(text_request())
        assert (reply["id"], reply["model_name"], reply["model_version"]) == ("r", "m", "7")
        assert [(out["name"], out["data"]) for out in reply["outputs"]] == [
            ("half", [2.5]),
            ("whole", [5]),
            ("text", ["5"]),
        ]

    def test_asked_for_the_other_form(self, bench: Bench) -> None:
        """``binary_data_output`` turns the form of the whole reply, either way."""
        assert isinstance(bench.reply(text_request(parameters={"binary_data_output": True})), Reply)
        assert isinstance(bench.reply(frame(binary_data_output=False)), dict)

    def test_form_of_one_output(self, bench: Bench) -> None:
        """``binary_data`` of an output turns the form of that output alone."""
        outputs = [{"name": "half", "parameters": {"binary_data": True}}, {"name": "text"}]
        reply = bench.reply(text_request(outputs=outputs))
        assert isinstance(reply, Reply)
        assert reply["half"].tolist() == [2.5]
        ((_, _, _, raw),) = bench.written(text_request(outputs=outputs)).replies
        assert b'"data":["5"]' in raw

    def test_selected_outputs(self, bench: Bench) -> None:
        """Only the outputs that were named come back, in the order in which they were named."""
        sent = message("r", ("x", "FP32", [5]), outputs=["text", "half"])
        reply = bench.reply(sent)
        assert list(reply) == ["text", "half"]
        assert reply["text"].tolist() == [b"5"]
        assert reply["half"].tolist() == [2.5]

    def test_empty_selection(self, bench: Bench) -> None:
        """An empty list of outputs asks for all of them, as no list does."""
        reply = bench.reply(text_request(outputs=[]))
        assert [out["name"] for out in reply["outputs"]] == ["half", "whole", "text"]

    def test_reasons(self, bench: Bench) -> None:
        """The parameters of a reply say how long it took, in what company, where and why."""
        sent = frame(submitted_ms=NOW_MS - 40)
        ((_, _, _, one), _) = bench.written(sent, frame("other")).replies
        reply = ReplyReader().read(one)
        assert isinstance(reply, Reply)
        compute_ms = reply.parameters.pop("compute_ms")
        assert isinstance(compute_ms, float)
        assert reply.parameters == {
            "queue_ms": 40,
            "batch_size": 2,
            "batch_rows": 2,
            "batch_reason": "idle",
            "attempt": 1,
            "worker": "w",
        }

    def test_reasons_without_a_stamp(self, bench: Bench) -> None:
        """Without the sender's stamp nobody knows how long a request waited."""
        assert "queue_ms" not in bench.reply(frame()).parameters

    def test_stamp_from_the_future(self, bench: Bench) -> None:
        """A stamp ahead of the server's clock is no negative wait."""
        assert bench.reply(frame(submitted_ms=NOW_MS + 9)).parameters["queue_ms"] == 0

    def test_no_rows(self, bench: Bench) -> None:
        """A request of no rows is answered without having been in a call."""
        reply = bench.reply(message("r", ("x", "FP32", np.zeros(0))))
        assert reply["half"].shape == (0,)
        assert (reply.parameters["batch_size"], reply.parameters["compute_ms"]) == (0, 0)

    def test_attempt_of_a_suspect(self, bench: Bench) -> None:
        """The attempt of a request that has seen two deaths is its third."""
        ((_, _, _, text),) = bench.written(frame(), deaths=2).replies
        reply = ReplyReader().read(text)
        assert isinstance(reply, Reply)
        assert reply.parameters["attempt"] == 3


class TestErrors:
    @pytest.mark.parametrize("value", ["nan", "inf"])
    def test_no_json_form(self, bench: Bench, value: str) -> None:
        """NaN or infinity in the reply of a JSON request is a model error that names the way out."""
        sent = message("r", ("x", "FP32", [float(value)]), parameters={"binary_data_output": False})
        reply = bench.reply(sent)
        assert reply["parameters"]["code"] == "model_error"
        assert "binary_data_output" in reply["error"]

    def test_nan_in_binary(self, bench: Bench) -> None:
        """In binary NaN travels like any number."""
        assert np.isnan(bench.reply(frame(value=float("nan")))["half"]).all()

    def test_no_json_form_of_an_output_nobody_asked_for(self, bench: Bench) -> None:
        """An output that does not come back cannot spoil the reply."""
        parameters = {"binary_data_output": False}
        sent = message("r", ("x", "FP32", [float("nan")]), parameters=parameters, outputs=["whole"])
        assert bench.reply(sent)["outputs"][0]["data"] == [0]

    def test_model_error(self, bench: Bench) -> None:
        """What the model raised is one line, with the reasons any reply has."""
        reply = bench.reply(frame(value=-1))
        assert reply["error"] == "the model raised ValueError: below"
        assert reply["id"] == "r"
        assert reply["parameters"]["code"] == "model_error"
        assert (reply["parameters"]["attempt"], reply["parameters"]["worker"]) == (1, "w")
        assert reply["parameters"]["batch_size"] == 1

    def test_reply_over_the_limit(self) -> None:
        """A reply over the byte limit becomes a typed error, and one at the limit does not."""
        request = message("r", ("x", "FP32", np.ones(50)))
        size = len(Bench().written(request).replies[0][3])
        exact = Bench(max_message_bytes=size)
        assert isinstance(exact.reply(request), Reply)
        reply = Bench(max_message_bytes=size - 1).reply(request)
        assert reply["parameters"]["code"] == "too_large"
        assert reply["error"] == f"the reply of {size} bytes is over the limit of {size - 1}"

    def test_refusal(self, bench: Bench) -> None:
        """A message that does not fit the model is answered, and counted by its code."""
        ((key, _, outcome, text),) = bench.written(message("r", ("y", "FP32", [1]))).replies
        reply = json.loads(text)
        assert key == KEYS.reply("r")
        assert outcome == "requests_invalid_request"
        assert reply["parameters"] == {"code": "invalid_request", "attempt": 1, "worker": "w"}

    def test_hostile_name_in_an_error(self, bench: Bench) -> None:
        """A name from outside cannot break out of the line, nor make the sentence endless."""
        sent = text_request().replace(b'"x"', b'"' + b"\\n\\u001b" * 128 + b'"')
        error = bench.reply(sent)["error"]
        assert error.startswith(r"unknown tensor '\n\x1b\n")
        assert error.isprintable()
        assert len(error) == 500

    def test_give_up(self, bench: Bench) -> None:
        """A request whose deaths are spent is answered as crashed and put on the dead list."""
        claim = bench.claim(frame(reply_to="box"), deaths=4)
        parcel = bench.delivery.open_parcel(claim, "w", NOW_MS)
        bench.delivery.give_up(parcel, claim, "w", NOW_MS)
        (sent,) = bench.delivery.complete(bench.seat, parcel)
        written = read_call(sent)
        ((_, _, outcome, text),) = written.replies
        assert outcome == "requests_crashed"
        assert json.loads(text)["parameters"] == {"code": "crashed", "attempt": 4, "worker": "w"}
        assert written.hints == {KEYS.inbox("box"): ["r"]}
        line, _, raw = written.dead[0].partition(b"\n")
        assert raw == frame(reply_to="box")
        assert json.loads(line) == {
            "reason": "the request was running when its worker died, 4 times; given up",
            "code": "crashed",
            "id": "r",
            "attempts": 4,
            "at_ms": NOW_MS,
            "bytes": len(raw),
        }

    def test_reminder(self, bench: Bench) -> None:
        """A request that was answered before is not written again; its inbox is told."""
        parcel = Parcel(3, 1)
        bench.delivery.remind(parcel, Address("r", "box"))
        (sent,) = bench.delivery.complete(bench.seat, parcel)
        written = read_call(sent)
        assert [reply[3] for reply in written.replies] == [b""]
        assert written.hints == {KEYS.inbox("box"): ["r"]}


class TestDeadEntries:
    def test_message_of_nobody(self, bench: Bench) -> None:
        """What cannot be answered goes to the dead list with its reason, and has no reply."""
        written = bench.written(b"\xffjunk", frame())
        assert [reply[0] for reply in written.replies] == [KEYS.reply("r")]
        (entry,) = written.dead
        line, _, raw = entry.partition(b"\n")
        assert raw == b"\xffjunk"
        assert json.loads(line) == {
            "reason": r"neither JSON nor a frame: begins b'\xffjunk'",
            "code": "invalid_request",
            "attempts": 0,
            "at_ms": NOW_MS,
            "bytes": 5,
        }
        assert written.counters["dead"] == 1

    def test_long_junk_is_cut(self, bench: Bench) -> None:
        """Of a megabyte of junk 64 KiB are kept, and the entry tells how much there was."""
        (entry,) = bench.written(b"?" * 1024**2).dead
        line, _, raw = entry.partition(b"\n")
        assert len(raw) == 64 * 1024
        assert json.loads(line)["bytes"] == 1024**2
