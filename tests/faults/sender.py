"""A sender as a program, to be killed or to have another clock: ``sender.py HOW FIRST COUNT``.

It sends the numbers from FIRST on, and tells each acceptance on a line: id, number. ``one`` sends
most of them one at a time, under ids made of their numbers, some with a wait for the reply, and
every so often a block under ids of the producer's; ``many`` sends blocks with a ``timeout``, waits,
and tells each outcome behind the number.
"""

import sys

from inferq import InferqError, Producer

MODEL = "echo"
BLOCK = 10
BLOCK_EACH = 50
TIMEOUT_S = 60.0


def id_of(number: int) -> str:
    return f"own-{number}"


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def send_one_by_one(producer: Producer, first: int, count: int) -> None:
    number = first
    while number < first + count:
        if is_block(number - first):
            numbers = range(number, number + BLOCK)
            for handle, each in zip(producer.submit_many(MODEL, numbers), numbers, strict=True):
                tell(handle.id, each)
            number += BLOCK
            continue
        if number % 3:
            producer.submit(MODEL, number, request_id=id_of(number))
        else:
            producer.infer(MODEL, number, request_id=id_of(number))
        tell(id_of(number), number)
        number += 1


def is_block(place: int) -> bool:
    """Tell whether a block begins at this place of a sender's numbers."""
    return place % BLOCK_EACH == 0


def send_many(producer: Producer, first: int, count: int) -> None:
    for start in range(first, first + count, BLOCK):
        numbers = range(start, start + BLOCK)
        handles = producer.submit_many(MODEL, numbers, timeout=TIMEOUT_S)
        for handle, number in zip(handles, numbers, strict=True):
            try:
                handle.result(timeout=TIMEOUT_S)
            except InferqError as error:
                tell(handle.id, number, error.code)
            else:
                tell(handle.id, number, "succeeded")


def main(how: str, first: str, count: str) -> None:
    send = {"one": send_one_by_one, "many": send_many}[how]
    with Producer() as producer:
        send(producer, int(first), int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
