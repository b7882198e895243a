"""All rows of the matrix, in order."""

from faults.matrix import (
    bad_rows,
    clocks,
    connections,
    frozen,
    killed,
    memory,
    poison,
    replies,
    senders,
    servers,
    slow,
    stopped,
)

ROWS = (
    killed.ROW,
    frozen.ROW,
    replies.ROW,
    connections.ROW,
    servers.ROW,
    memory.ROW,
    stopped.ROW,
    poison.ROW,
    bad_rows.ROW,
    senders.ROW,
    slow.ROW,
    clocks.ROW,
)
