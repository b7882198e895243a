"""A worker's place among the workers of a model: its id, and which claim number comes next.

A seat is taken once and never again: whoever loses it (its lease lapsed, its parent buried it, the
server is another one) takes a new seat under a new id, and the old id stays fenced for ever.
"""

import os
import secrets
import socket
from dataclasses import dataclass

from inferq.contract.keys import Keys, worker_id


@dataclass
class Seat:
    """One incarnation of a worker.

    Attributes:
        keys: the model's keys.
        worker: the id, unique for ever.
        number: the claim that is open or will be opened next.
        floor: the lowest claim whose closing completion is not acknowledged.
    """

    keys: Keys
    worker: str
    number: int = 1
    floor: int = 1

    @staticmethod
    def take(keys: Keys) -> "Seat":
        """Take a seat under an id that nobody ever had."""
        return Seat(keys, worker_id(socket.gethostname(), os.getpid(), secrets.token_hex(4)))

    @property
    def claimed(self) -> str:
        """Key of the claim that is open or will be opened next."""
        return self.keys.claimed(self.worker, self.number)

    @property
    def has_company(self) -> bool:
        """Tell whether another claim of this seat may still be open."""
        return self.floor < self.number

    def open_lists(self) -> list[str]:
        """Keys of all claims that may still be open."""
        return [
            self.keys.claimed(self.worker, number) for number in range(self.floor, self.number + 1)
        ]
