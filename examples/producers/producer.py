"""Ask the model "digits" which digit digit.json shows, with redis-py and without inferq.

Prints the label. Exit codes: 0 answered, 1 answered with an error, 75 no reply in time.
"""

import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import redis

WAIT_S = 10.0
POLL_S = 0.05


def enqueue(server: redis.Redis, pixels: list[float]) -> str:
    """Push one request for one image of 64 pixels and return its id."""
    # An id names one request for as long as its reply is kept: never use one twice.
    request_id = uuid.uuid4().hex
    tensor = {"name": "pixels", "datatype": "FP32", "shape": [1, 64], "data": pixels}
    server.rpush("inferq:digits", json.dumps({"id": request_id, "inputs": [tensor]}))
    return request_id


def wait(server: redis.Redis, request_id: str) -> Any:
    """Poll until the reply is there and return it, or ``None`` after ``WAIT_S`` seconds."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        # Reading a reply does not consume it. Before it is written there is None or b"".
        reply = server.get(f"{{inferq:digits}}:reply:{request_id}")
        if reply:
            return json.loads(reply)
        time.sleep(POLL_S)
    return None


def main() -> int:
    """Enqueue, wait, print; return the exit code."""
    pixels = json.loads(Path(__file__).with_name("digit.json").read_text())
    url = os.environ.get("INFERQ_REDIS_URL", "redis://localhost:6379/0")
    with redis.Redis.from_url(url) as server:
        request_id = enqueue(server, pixels)
        reply = wait(server, request_id)
    if reply is None:
        print(f"no reply to {request_id} after {WAIT_S:.0f} s: does a worker run?", file=sys.stderr)
        return 75
    if "error" in reply:
        print(f"{reply['parameters']['code']}: {reply['error']}", file=sys.stderr)
        return 1
    print(reply["outputs"][0]["data"][0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
