"""What can be set from outside on the answering side."""

from pydantic import Field, model_validator

from inferq.contract.errors import InvalidSetting
from inferq.settings import ConnectionSettings
from inferq.units import Bytes, Seconds

MAX_MESSAGE_BYTES = 16 * 1024**2
"""Size of the largest request and reply, unless set otherwise."""

# Times beyond it are slips of the pen, and some would not fit into the server's clock.
_YEAR_S = 365 * 86_400


class WorkerSettings(ConnectionSettings):
    """How a worker claims, runs and answers.

    Attributes:
        max_batch_size: rows in one model call and messages in one claim; the model's own by
            default.
        lease_s: a worker that has not renewed its lease for so long is taken for dead. It is
            renewed every third of it, and an idle block lasts a third.
        max_attempts: deaths a request may be involved in before it is answered ``crashed``.
        batch_timeout_s: a supervised process whose batch runs longer is killed; 0 for no limit.
        drain_timeout_s: how long a stopping worker may take to finish what runs.
        reply_ttl_s, reply_ttl_max_s: how long a reply is kept, and the most a sender may ask for.
        inbox_ttl_s, inbox_limit: how long an unread inbox is kept, and how many hints it holds.
        dead_limit: entries kept in the dead list.
        max_message_bytes: size of the largest request and the largest reply; at most 512 MiB, the
            longest string that Redis takes.
        claim_bytes: size at which a claim is closed, whatever its count.
    """

    max_batch_size: int | None = Field(default=None, ge=1, le=100_000)
    lease_s: Seconds = Field(default=15.0, ge=0.3, le=86_400)
    max_attempts: int = Field(default=4, ge=1)
    batch_timeout_s: Seconds = Field(default=300.0, ge=0, le=_YEAR_S)
    drain_timeout_s: Seconds = Field(default=30.0, ge=0, le=_YEAR_S)
    reply_ttl_s: Seconds = Field(default=600.0, ge=60, le=_YEAR_S)
    reply_ttl_max_s: Seconds = Field(default=86_400.0, ge=60, le=_YEAR_S)
    inbox_ttl_s: Seconds = Field(default=600.0, ge=1, le=_YEAR_S)
    inbox_limit: int = Field(default=100_000, ge=1)
    dead_limit: int = Field(default=1_000, ge=1)
    max_message_bytes: Bytes = Field(default=MAX_MESSAGE_BYTES, ge=1, le=512 * 1024**2)
    claim_bytes: Bytes = Field(default=64 * 1024**2, ge=1)

    @model_validator(mode="after")
    def _replies_live_within_bounds(self) -> "WorkerSettings":
        if self.reply_ttl_s > self.reply_ttl_max_s:
            raise InvalidSetting(
                f"reply_ttl_s {self.reply_ttl_s:g} is above reply_ttl_max_s "
                f"{self.reply_ttl_max_s:g}"
            )
        return self

    @property
    def lease_ms(self) -> int:
        """The lease in whole milliseconds."""
        return int(self.lease_s * 1000)

    @property
    def block_s(self) -> float:
        """How long an idle claim blocks: a third of the lease, so that it never outlasts it."""
        return self.lease_s / 3
