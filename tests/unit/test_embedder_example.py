"""The text embedding example, loaded from its folder and called directly."""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "embeddings" / "embedder.py"

Embed = Callable[..., NDArray[np.float32]]


@pytest.fixture(scope="module")
def embedder() -> Any:
    spec = spec_from_file_location("embedder_example", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Embedder()
    model.load()
    return model


@pytest.fixture(scope="module")
def embed(embedder: Any) -> Embed:
    def call(*texts: str | bytes) -> NDArray[np.float32]:
        rows = np.empty(len(texts), dtype=object)
        rows[:] = [text.encode() if isinstance(text, str) else text for text in texts]
        vectors: NDArray[np.float32] = embedder.predict(text=rows)["embedding"]
        return vectors

    return call


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_answers_as_described(embedder: Any, embed: Embed, rows: int) -> None:
    """BYTES scalars go in, and one FP32 vector of 64 comes out for each."""
    assert [(spec.name, spec.datatype, list(spec.shape)) for spec in embedder.inputs] == [
        ("text", "BYTES", [])
    ]
    assert [(spec.name, spec.datatype, list(spec.shape)) for spec in embedder.outputs] == [
        ("embedding", "FP32", [64])
    ]
    vectors = embed(*["some text"] * rows)
    assert vectors.shape == (rows, 64)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize(
    ("text", "similar", "unrelated"),
    [
        (
            "How do I reset my password?",
            "I forgot my password, how can I reset it?",
            "The weather in Oslo is cold and rainy",
        ),
        (
            "Cold and rainy weather expected tomorrow",
            "The weather in Oslo is cold and rainy",
            "Resetting a forgotten password",
        ),
        (
            "Tomatoes need plenty of sun and water",
            "How much water do tomato plants need?",
            "I forgot my password, how can I reset it?",
        ),
    ],
)
def test_similar_texts_are_closer(embed: Embed, text: str, similar: str, unrelated: str) -> None:
    """A text on the same subject is clearly nearer than one on another."""
    vectors = embed(text, similar, unrelated)
    near, far = vectors[1:] @ vectors[0]
    assert near > far + 0.2


def test_vectors_have_length_one(embed: Embed) -> None:
    """Vectors have length 1, so that a product of two is their cosine."""
    vectors = embed("short", "a text of several words", "a text of several words " * 100)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


def test_text_without_words_is_zero(embed: Embed) -> None:
    """Text without a word gives zeros and not NaN, which no JSON reply could carry."""
    np.testing.assert_array_equal(embed("", " ?! ", b"\xff\xfe"), np.zeros((3, 64)))


def test_vector_does_not_depend_on_the_batch(embed: Embed) -> None:
    """A text gets the same vector alone and among others, empty ones included."""
    texts = ["one text", "", "another, longer text", "one more"]
    alone = np.concatenate([embed(text) for text in texts])
    np.testing.assert_array_equal(embed(*texts), alone)


def test_vector_is_the_same_in_every_process(embed: Embed) -> None:
    """Two workers agree about a text: the directions come from a hash without a salt."""
    signs = "".join("+" if value > 0 else "-" for value in embed("inferq")[0, :16])
    assert signs == "-+-+-++--++-+--+"
