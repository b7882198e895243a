"""A worker: one model, loaded, published, and served until it is told to stop."""

import logging
import math
import threading

from inferq.contract.description import ModelDescription
from inferq.contract.keys import Keys, check_model
from inferq.endpoint import open_endpoint
from inferq.redis_link import Link
from inferq.server_checks import check_server
from inferq_worker.delivery import Delivery
from inferq_worker.intake import Intake
from inferq_worker.lease import Keeper, ParentKeeper, ThreadKeeper
from inferq_worker.loop import Loop, Until
from inferq_worker.membership import Membership
from inferq_worker.model import Model, describe_model, load_model, model_name
from inferq_worker.progress import Unwatched, Watcher
from inferq_worker.runner import Runner
from inferq_worker.session import Session
from inferq_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

# Beyond the block time, the time an answer may take before the connection counts as dead.
_SOCKET_MARGIN_S = 5.0
# How long a worker that starts waits for a server that is not there yet.
_START_PATIENCE_S = 10.0


class Worker:
    """Serves one model: claims requests, runs them in batches, writes the replies.

    Args:
        model: a :class:`Model` instance; it is loaded by :meth:`run`, in its thread.
        settings: by default from the environment.
        name: how requests address the model; by default the model's own name.
        watcher: a parent process that watches the loop and renews the lease; by default there is
            none, and a thread renews it.

    Raises:
        ModelUnfit: the model's tensors or signature are unsound.
        InvalidRequest: its name is not allowed.
    """

    def __init__(
        self,
        model: Model,
        settings: WorkerSettings | None = None,
        *,
        name: str | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.settings = settings or WorkerSettings()
        self.name = model_name(model) if name is None else check_model(name)
        self._model = model
        self._stop = threading.Event()
        self._watcher: Watcher = watcher or Unwatched()
        if self.settings.max_batch_size is not None:
            # The model may look at its own limit in load().
            model.max_batch_size = self.settings.max_batch_size
        self.description: ModelDescription = describe_model(
            model, name=self.name, max_message_bytes=self.settings.max_message_bytes
        )

    def run(
        self,
        *,
        burst: bool = False,
        max_requests: float = math.inf,
        max_idle_s: float = math.inf,
    ) -> int:
        """Load the model and serve it; return how many requests were answered.

        Args:
            burst: end when nothing waits.
            max_requests: end between two batches, once so many were answered.
            max_idle_s: end once no request has come for so many seconds.

        Raises:
            ModelUnfit: ``load`` failed.
            Unavailable: Redis cannot be reached at the start. Later breaks are waited out.
            ServerUnfit: the server is too old, or the queue's key belongs to another program.
        """
        settings = self.settings
        keys = Keys(settings.prefix, self.name)
        with open_endpoint(settings.redis_url) as endpoint:
            link = Link(endpoint, socket_timeout_s=settings.block_s + _SOCKET_MARGIN_S)
            renewing = Link(endpoint)
            keeper = self._keeper(renewing)
            try:
                for warning in check_server(link, keys, patience_s=_START_PATIENCE_S):
                    log.warning("%s", warning)
                load_model(self._model)
                log.info(
                    "serving %s in batches of up to %d from %s",
                    self.name,
                    self.description.max_batch_size,
                    endpoint.shown,
                )
                keeper.start()
                return self._loop(link, keys, keeper).run(
                    Until.EMPTY if burst else Until.STOPPED, max_requests, max_idle_s
                )
            finally:
                keeper.stop()
                link.close()
                renewing.close()

    def stop(self) -> None:
        """Ask :meth:`run` to end, from any thread or a signal handler.

        The batch that runs is finished and its replies are written; nothing more is claimed.
        """
        self._stop.set()

    def _keeper(self, link: Link) -> Keeper:
        """Choose who renews the lease: the parent where there is one, which no model can starve."""
        if isinstance(self._watcher, Unwatched):
            return ThreadKeeper(link, self.settings.lease_ms)
        return ParentKeeper(self._watcher)

    def _loop(self, link: Link, keys: Keys, keeper: Keeper) -> Loop:
        settings = self.settings
        session = Session(link, self._stop, settings.drain_timeout_s, self._watcher)
        return Loop(
            session,
            Membership(keys, self.description.to_json(), session, keeper, settings),
            Intake(self.description, settings),
            Runner(self._model, self.description),
            Delivery(self.description, settings),
            settings,
            self._stop,
            self._watcher,
        )
