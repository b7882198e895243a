"""Stands in for redis-cli where a test runs a document's shell lines: one command, its answer.

The real one is not on every machine that runs the suite.
"""

import os
import sys

import redis


def main() -> None:
    with redis.Redis.from_url(os.environ["INFERQ_REDIS_URL"]) as client:
        answer = client.execute_command(*sys.argv[1:])
    if isinstance(answer, bytes):
        sys.stdout.buffer.write(answer + b"\n")
    else:
        sys.stdout.write("(nil)\n" if answer is None else f"{answer}\n")


main()
