"""Text embeddings without a download: hashed words and letter triples, projected at random.

Every feature of a text, a word or three letters in a row, is hashed to 64 bits, and these are its
direction: +1 or -1 in each of 64 dimensions. A text is the sum of its features' directions, so
texts that share features point the same way. Nothing is learned: it knows spelling, not meaning.
"""

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inferq_worker import Model, TensorSpec

DIMENSIONS = 64
_WORD = re.compile(r"\w+")


class Embedder(Model):
    """``text`` in UTF-8 to ``embedding``, a vector of length 1, or 0 for a text without words."""

    inputs = [TensorSpec("text", "BYTES", [])]
    outputs = [TensorSpec("embedding", "FP32", [DIMENSIONS])]
    max_batch_size = 256

    def predict(self, text: NDArray[np.object_]) -> dict[str, NDArray[np.float32]]:
        """Return ``embedding`` float32 ``[N, 64]`` for ``text``, ``[N]`` objects of ``bytes``."""
        features = [features_of(one.decode(errors="replace")) for one in text]
        owners = np.repeat(np.arange(len(features)), [len(own) for own in features])
        sums = np.zeros((len(features), DIMENSIONS), dtype=np.float32)
        np.add.at(sums, owners, directions_of([feature for own in features for feature in own]))
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        # Sums are whole numbers: what is shorter than 1 is 0, and stays 0.
        return {"embedding": sums / np.maximum(lengths, 1)}


def features_of(text: str) -> list[str]:
    """Cut a text into its words and their letter triples; word ends count as letters."""
    words = [f" {word} " for word in _WORD.findall(text.lower())]
    triples = [word[start : start + 3] for word in words for start in range(len(word) - 2)]
    return words + triples


def directions_of(features: Sequence[str]) -> NDArray[np.float32]:
    """Return the direction of each feature, ``[F, 64]`` of +1 and -1, the same in any process."""
    # Python's own hash() is salted per process: two workers would disagree about every text.
    digests = b"".join(
        hashlib.blake2b(feature.encode(), digest_size=DIMENSIONS // 8).digest()
        for feature in features
    )
    bits = np.unpackbits(np.frombuffer(digests, dtype=np.uint8)).reshape(-1, DIMENSIONS)
    return bits.astype(np.float32) * 2 - 1
