"""The demo's model and its held-out images, called directly."""

from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from inferq_worker.demo.digits import Digits, read_layers
from inferq_worker.demo.heldout import held_out

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "digits" / "train.py"


@pytest.fixture(scope="module")
def digits() -> Digits:
    model = Digits()
    model.load()
    return model


@pytest.fixture(scope="module")
def train() -> ModuleType:
    spec = spec_from_file_location("digits_train", TRAIN)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batches(pixels: np.ndarray, size: int) -> list[np.ndarray]:
    return [pixels[start : start + size] for start in range(0, len(pixels), size)]


def test_reads_held_out_digits(digits: Digits) -> None:
    """At least 97 % of the images that training never saw get the right label."""
    pixels, labels = held_out()
    answers = np.concatenate(
        [digits.predict(pixels=batch)["label"] for batch in batches(pixels, Digits.max_batch_size)]
    )
    assert (answers == labels).mean() >= 0.97


def test_label_does_not_depend_on_the_batch(digits: Digits) -> None:
    """An image gets the same label alone and among 63 others, so batching is invisible."""
    pixels, _ = held_out()
    together = [digits.predict(pixels=batch)["label"] for batch in batches(pixels, 64)]
    alone = [digits.predict(pixels=batch)["label"] for batch in batches(pixels, 1)]
    np.testing.assert_array_equal(np.concatenate(together), np.concatenate(alone))


@pytest.mark.parametrize("rows", [0, 1, 64])
def test_answers_as_described(digits: Digits, rows: int) -> None:
    """The model returns what its specs promise: one INT64 scalar for each row."""
    pixels, _ = held_out()
    assert [(spec.name, spec.datatype, list(spec.shape)) for spec in Digits.inputs] == [
        ("pixels", "FP32", [64])
    ]
    assert [(spec.name, spec.datatype, list(spec.shape)) for spec in Digits.outputs] == [
        ("label", "INT64", [])
    ]
    answer = digits.predict(pixels=pixels[:rows])
    assert list(answer) == ["label"]
    assert answer["label"].shape == (rows,)
    assert answer["label"].dtype == np.int64


def test_weights_fit_the_specs() -> None:
    """The layers lead from 64 pixels to 10 digits in float32, all of it finite."""
    layers = read_layers()
    assert [weights.shape for weights, _ in layers] == [(64, 128), (128, 128), (128, 10)]
    for weights, bias in layers:
        assert bias.shape == weights.shape[1:]
        assert weights.dtype == bias.dtype == np.float32
        assert np.isfinite(weights).all()
        assert np.isfinite(bias).all()


def test_held_out_images_are_distinct_digits() -> None:
    """The held-out part is float32 ink from 0 to 16 with int64 labels, no image twice."""
    pixels, labels = held_out()
    assert pixels.shape == (797, 64)
    assert pixels.dtype == np.float32
    assert pixels.min() == 0
    assert pixels.max() == 16
    assert len(np.unique(pixels, axis=0)) == 797
    assert labels.shape == (797,)
    assert labels.dtype == np.int64
    assert set(labels.tolist()) == set(range(10))


def test_held_out_part_is_the_one_of_the_split(train: ModuleType) -> None:
    """No held-out image was trained on: the file holds exactly what the seeded split kept back."""
    training, kept_back = train.split()
    with (files("inferq_worker.demo") / "digits_heldout.npz").open("rb") as file:
        positions = np.load(file, allow_pickle=False)["positions"]
    np.testing.assert_array_equal(positions, kept_back)
    assert not set(training.tolist()) & set(positions.tolist())
    assert sorted([*training.tolist(), *positions.tolist()]) == list(range(train.IMAGES))


def test_loads_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and images are found through the package, not through the working directory."""
    monkeypatch.chdir(tmp_path)
    model = Digits()
    model.load()
    pixels, _ = held_out()
    assert model.predict(pixels=pixels[:1])["label"].shape == (1,)


def test_stays_small() -> None:
    """Weights and images stay under 200 kB together, since every wheel carries them."""
    folder = files("inferq_worker.demo")
    names = ("digits_weights.npz", "digits_heldout.npz")
    assert sum(len((folder / name).read_bytes()) for name in names) < 200_000
