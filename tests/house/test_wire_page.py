"""The published page of the wire contract says what the code does."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from inferq.contract import counters, oip
from inferq.contract.description import MAX_EMPTY_ROWS, ModelDescription
from inferq.contract.errors import WIRE_ERRORS, InferqError
from inferq.contract.keys import (
    BOX_PATTERN,
    ID_PATTERN,
    LANES,
    MODEL_PATTERN,
    PREFIX_PATTERN,
    Keys,
    models_key,
)
from inferq.contract.replies import Reply, ReplyReader
from inferq.contract.requests import Request, RequestReader
from inferq.contract.tensors import MAX_DIMENSIONS
from inferq_worker.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "wire-contract.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Return the text below a heading, up to the next of its kind or above."""
    heading = re.search(rf"^(#+) [\d. ]*{re.escape(title)}$", PAGE, re.MULTILINE)
    assert heading is not None, title
    text = PAGE[heading.end() :]
    end = re.search(rf"^#{{1,{len(heading[1])}}} ", text, re.MULTILINE)
    return text[: end.start()] if end else text


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def first_cells(title: str) -> list[str]:
    """Return what is in backquotes in the first cell of each row of a section's tables."""
    rows = re.findall(r"^\| (`.+?) \|", section(title), re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def valid(schema: str, value: Any) -> bool:
    text = (ROOT / "docs" / "schema" / schema).read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text)).is_valid(value)


def test_examples_are_what_they_seem() -> None:
    """Each JSON block is a request, a reply, an error, a dead entry, a description: in this order."""
    request, reply, error, dead, model = blocks("json")
    assert isinstance(RequestReader(9_999).read(request.encode()), Request)
    assert isinstance(ReplyReader().read(reply.encode()), Reply)
    assert isinstance(ReplyReader().read(error.encode()), InferqError)
    assert ModelDescription.from_json(model.encode()).name == "digits"
    assert valid("request.json", json.loads(request))
    assert valid("reply.json", json.loads(reply))
    assert valid("reply.json", json.loads(error))
    assert valid("model.json", json.loads(model))
    assert json.loads(dead).keys() < set(first_cells("The dead list"))


def test_the_shell_example_is_a_request() -> None:
    """The first thing a reader copies works."""
    push, get = (shlex.split(line) for line in blocks("sh")[0].splitlines())
    keys = Keys("inferq", "double")
    assert push[:3] == ["redis-cli", "RPUSH", keys.normal]
    found = RequestReader(9_999).read(push[3].encode())
    assert isinstance(found, Request)
    assert get == ["redis-cli", "GET", keys.reply(found.id)]


def test_names() -> None:
    """The patterns on the page are the patterns of the code."""
    patterns = re.findall(r"`(\[[^`]+)`", section("Names"))
    code = (MODEL_PATTERN, ID_PATTERN, BOX_PATTERN, PREFIX_PATTERN)
    assert patterns == [each.removeprefix("^").removesuffix(r"\Z") for each in code]


def test_keys() -> None:
    """The page lists every key of a model, spelled as the code spells it."""
    keys = Keys("inferq", "MODEL")
    spelled = {
        *(keys.lane(lane) for lane in LANES), keys.returned, keys.suspects,
        keys.claimed("WORKER", 0)[:-1] + "N", keys.claims, keys.closed, keys.reply("ID"),
        keys.inbox("BOX"), keys.cancelled, keys.dead, keys.metrics, keys.description, keys.workers,
        keys.worker("WORKER"), models_key("inferq"),
    }  # fmt: skip
    assert set(first_cells("Keys")) == spelled


def test_members_and_datatypes() -> None:
    """The page lists every datatype, every parameter and what a reply tells of itself."""
    assert set(first_cells("Datatypes")) == set(get_args(oip.Datatype))
    assert set(first_cells("Parameters")) == oip.Parameters.model_fields.keys()
    told = oip.InferReply.model_json_schema()["properties"]["parameters"]["properties"]
    listed = set(first_cells("A reply")) - {"GET"} - WIRE_ERRORS.keys()
    assert told.keys() - {"code", "retry_after_ms"} == listed


def test_codes() -> None:
    """The page lists every code, and which may succeed later as the classes do."""
    rows = re.findall(r"^\| `(\w+)` \| (yes|no) \|", section("A reply"), re.MULTILINE)
    assert {code: again == "yes" for code, again in rows} == {
        code: error.retryable for code, error in WIRE_ERRORS.items()
    }


def test_counters() -> None:
    """The page lists every counter that the code documents, and the edges of the histograms."""
    assert counters.__doc__ is not None
    documented = set(re.findall(r"``(\w+)``", counters.__doc__))
    assert set(first_cells("Counters")) == documented
    text = " ".join(section("Counters").split())
    for edges in (counters.BATCH_EDGES, counters.LATENCY_EDGES_S):
        assert ", ".join(f"{edge:g}" for edge in edges) + ", `inf`" in text


@pytest.mark.parametrize(
    ("title", "figure"),
    [
        ("Members", f"{oip.MAX_TENSORS:,} tensors"),
        ("Members", f"1 to {MAX_DIMENSIONS} whole numbers"),
        ("Members", f"may have {MAX_EMPTY_ROWS:,}"),
        ("Limits", f"{WorkerSettings.model_fields['max_message_bytes'].default // 2**20} MiB"),
        ("Parameters", f"({WorkerSettings.model_fields['reply_ttl_max_s'].default:,.0f})"),
        ("Parameters", f"{WorkerSettings.model_fields['reply_ttl_s'].default:.0f} if absent"),
        ("Waiting", f"lives {WorkerSettings.model_fields['inbox_ttl_s'].default:.0f} seconds"),
        ("Waiting", f"newest {WorkerSettings.model_fields['inbox_limit'].default:,}"),
        ("The dead list", f"at most {WorkerSettings.model_fields['dead_limit'].default:,} entries"),
    ],
)
def test_figures(title: str, figure: str) -> None:
    """A figure on the page is the figure in the code."""
    assert figure in " ".join(section(title).split())


@pytest.mark.parametrize("target", re.findall(r"\]\((?!#)([^)]+)\)", PAGE))
def test_links(target: str) -> None:
    """What the page links to is there."""
    assert (ROOT / "docs" / target).exists()
