"""The pure parts of the benchmark: what is computed from figures, and what is sent."""

import json

import numpy as np
import pytest
from bench import ceiling, models
from bench.drain import messages
from bench.report import Series, table, to_json
from bench.stage import Failed

from inferq.contract.requests import Request, RequestReader

CSV = '"test","rps","avg_latency_ms"\n"SET","4.0","1"\n"GET","4.0","1"\n"RPUSH","1.0","1"\n'


@pytest.mark.parametrize(
    ("rates", "expected"),
    [((4, 4, 4, 4), 1.0), ((1, 2, 4, 4), 0.5), ((1e6, 1e6, 1e6, 1), 1 / (1 + 3e-6))],
)
def test_ceiling(rates: tuple[float, ...], expected: float) -> None:
    """The ceiling is what four commands one after another allow: the slowest counts most."""
    by_name = dict(zip(ceiling.COMMANDS, rates, strict=True))
    assert ceiling.ceiling(by_name) == pytest.approx(expected)


def test_rates_are_read_by_name() -> None:
    """The rates are found by the names of the commands, in whatever order they are printed."""
    rates = ceiling.parse(CSV + '"LPOP","2.5","1"\n')
    assert rates == {"RPUSH": 1.0, "LPOP": 2.5, "SET": 4.0, "GET": 4.0}


def test_missing_rate() -> None:
    """A command that was not measured ends the run and is named, instead of counting as free."""
    with pytest.raises(Failed, match="LPOP"):
        ceiling.parse(CSV)


def test_ratio_is_to_the_ceiling_of_the_same_round() -> None:
    """A slow moment that halves rate and ceiling alike leaves the ratio as it is."""
    series = Series("drain", [50.0, 25.0, 60.0], [200.0, 100.0, 200.0])
    assert series.ratios == [0.25, 0.25, 0.3]
    known = series.to_dict()
    assert known["median_rps"] == 50.0
    assert (known["min_rps"], known["max_rps"]) == (25.0, 60.0)
    assert known["median_ratio_to_ceiling"] == 0.25


def test_table() -> None:
    """The table is Markdown with median, least, most and ratio, its columns aligned."""
    every = [
        Series("ceiling", [200_000.0, 300_000.0], [200_000.0, 300_000.0]),
        Series("drain", [50_000.0, 60_000.0], [200_000.0, 300_000.0]),
    ]
    assert table(every).splitlines() == [
        "| scenario |  median |     min |     max | of the ceiling (min to max) |",
        "|----------|--------:|--------:|--------:|----------------------------:|",
        "| ceiling  | 250,000 | 200,000 | 300,000 |      1.000 (1.000 to 1.000) |",
        "| drain    |  55,000 |  50,000 |  60,000 |      0.225 (0.200 to 0.250) |",
    ]


def test_json_holds_every_figure() -> None:
    """The JSON has the machine, the arguments and each round, not just what the table shows."""
    series = Series("drain", [1.0, 2.0], [4.0, 4.0])
    known = json.loads(to_json({"cores": 2}, {"rounds": 2}, [series]))
    assert known["machine"] == {"cores": 2}
    assert known["run"] == {"rounds": 2}
    assert known["scenarios"][0]["rates_rps"] == [1.0, 2.0]


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_answers_are_exact(rows: int) -> None:
    """A row's product has the same bytes in a batch of any size, so that replies can be compared."""
    model = models.Matrix()
    model.load()
    batch = np.tile(models.inputs()[7], (rows, 1))
    products = model.predict(batch)["product"]
    assert {row.tobytes() for row in products} == {models.answers()[7]}


def test_rows_differ() -> None:
    """No two rows have the same answer, so that a reply to another request is found out."""
    assert len(set(models.answers())) == len(models.inputs())


def test_only_the_last_request_asks_to_be_told() -> None:
    """Every message is a valid request with its own row, and the last names the inbox."""
    ids = ["a", "b", "c"]
    reader = RequestReader(1024**2)
    found = [reader.read(message) for message in messages(ids, submitted_ms=5)]
    requests = [each for each in found if isinstance(each, Request)]
    assert [each.id for each in requests] == ids
    assert [each.parameters.reply_to is not None for each in requests] == [False, False, True]
    sent = [each.layout.arrays(each.body)["x"] for each in requests]
    assert np.array_equal(np.concatenate(sent), models.inputs()[:3])
