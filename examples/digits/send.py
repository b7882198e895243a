"""Send every held-out digit to whatever workers are there, and compare the answers.

Run ``inferq worker inferq_worker.demo.digits:Digits`` first, then this program. It finds the queue
as ``inferq`` does: ``INFERQ_REDIS_URL``, otherwise redis://localhost:6379.
"""

import argparse
import sys
import time

import numpy as np

from inferq import InferqError, Producer
from inferq_worker.demo.heldout import held_out


def main() -> int:
    """Send, count, print; return 1 if an answer failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how often to send each image")
    rounds = parser.parse_args().rounds
    pixels, labels = held_out()
    right = failed = 0
    sizes = []
    started_s = time.perf_counter()
    with Producer() as producer:
        images = (image for _ in range(rounds) for image in pixels)
        replies = producer.map("digits", images, return_errors=True)
        for label, reply in zip(np.tile(labels, rounds), replies, strict=True):
            if isinstance(reply, InferqError):
                failed += 1
                continue
            right += int(reply["label"] == label)
            sizes.append(reply.parameters["batch_size"])
    elapsed_s = time.perf_counter() - started_s
    answered = len(sizes)
    print(f"{answered} answered, {failed} failed, {answered / elapsed_s:.0f} requests per second")
    if answered:
        print(f"{right / answered:.1%} right, {np.mean(sizes):.1f} requests in a mean batch")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InferqError as error:
        sys.exit(f"send.py: {error}")
