"""A command's way to Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inferq.cli.choices import Choices

if TYPE_CHECKING:
    from inferq.redis_link import Link


@contextmanager
def linked(choices: Choices) -> Iterator[tuple["Link", str]]:
    """Yield a link to the chosen server, and the prefix of its keys."""
    from inferq.endpoint import open_endpoint
    from inferq.redis_link import Link
    from inferq.settings import ConnectionSettings

    settings = choices.settings(ConnectionSettings)
    with open_endpoint(settings.redis_url) as endpoint:
        link = Link(endpoint)
        try:
            yield link, settings.prefix
        finally:
            link.close()
