"""What can be set from outside on the asking side; the worker's settings build on it.

Each field is read from ``INFERQ_`` + its name in capitals unless given to the constructor.
Creating a settings object reads the environment; importing this module does not.
"""

from typing import Any

from pydantic import AliasChoices, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from inferq.contract.errors import InvalidSetting
from inferq.contract.keys import check_prefix
from inferq.contract.oip import describe
from inferq.endpoint import EMBEDDED, Endpoint, masked
from inferq.units import Seconds


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="INFERQ_", frozen=True, extra="ignore", populate_by_name=True
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidSetting(f"setting {describe(error)}") from None

    def __repr_args__(self) -> Any:
        for name, value in super().__repr_args__():
            yield name, masked(value) if name == "redis_url" else value


class ConnectionSettings(_Settings):
    """Where the queue is.

    Attributes:
        redis_url: ``redis://``, ``rediss://``, ``unix://``, or ``embedded`` for a private server;
            ``REDIS_URL`` counts where ``INFERQ_REDIS_URL`` is not set.
        prefix: first part of every key.
    """

    redis_url: str = Field(
        default="redis://localhost:6379/0",
        validation_alias=AliasChoices("INFERQ_REDIS_URL", "REDIS_URL"),
    )
    prefix: str = "inferq"

    @field_validator("prefix")
    @classmethod
    def _prefix_makes_keys(cls, prefix: str) -> str:
        return check_prefix(prefix)

    @field_validator("redis_url")
    @classmethod
    def _address_is_one(cls, url: str) -> str:
        if url != EMBEDDED:
            Endpoint.parse(url)
        return url


class ProducerSettings(ConnectionSettings):
    """How a producer submits and waits.

    Attributes:
        queue_limit: messages a lane may hold; more are refused with ``queue_full``.
        pending_ttl_s: how long an unanswered request is remembered.
        patience_s: how long a command is repeated while Redis is away.
        poll_s: a waiting client looks at the reply key at least this often.
        metadata_ttl_s: how long a model's description is trusted before it is read again.
        map_window: requests :meth:`Producer.map` keeps under way.
    """

    queue_limit: int = Field(default=1_000_000, ge=1)
    pending_ttl_s: Seconds = Field(default=86_400.0, ge=86_400, le=365 * 86_400)
    patience_s: Seconds = Field(default=10.0, ge=0, le=365 * 86_400)
    poll_s: Seconds = Field(default=1.0, ge=0.05, le=3_600)
    metadata_ttl_s: Seconds = Field(default=60.0, ge=0)
    map_window: int = Field(default=1_024, ge=1)
