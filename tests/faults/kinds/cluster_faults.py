"""Faults of a standalone cluster: what works for the pipeline's driver in other processes."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit

import psutil

from tests.faults.kinds.pipeline_faults import IN_STAGE, MESSAGES, finish, is_connected
from tests.faults.setups.gateway import Setup
from tests.faults.setups.pipeline import PipelineChild, publish
from tests.support.external.spark_cluster import ENVIRONMENT, spark_cluster
from tests.support.network.turnstile import turnstile

EXECUTOR = "CoarseGrainedExecutorBackend"


async def executor_killed(setup: Setup, short: bool) -> None:
    """`kill -9` of the Python worker that stages a batch, then of the executor of another.

    Spark gives the task to another; the stream itself is not started again.
    """
    await publish(setup.gateway.address, 0, MESSAGES)
    with spark_cluster(setup.folder) as cluster:
        async with turnstile(setup.gateway.address) as relay:
            words = ("--master", cluster.master, "--no-restart")
            hold = relay.hold(IN_STAGE(1))
            async with PipelineChild(
                setup.folder, relay.address, *words, before=ENVIRONMENT
            ) as running:
                for kills_executor in (False, True):
                    reached = await running.gets_to(hold.reached)
                    setup.expect(reached, f"no batch was staged: {running.logged[-500:]}")
                    worker, executor = _who_asks(relay.address)
                    (executor if kills_executor else worker).kill()
                    at_place, hold = hold, relay.hold(IN_STAGE(1))
                    at_place.released.set()
                setup.expect(await running.gets_to(hold.reached), "no batch was staged")
                hold.released.set()
                await finish(setup, running)
        setup.figures.append(f"{len(cluster.executors())} executors were started")
        setup.expect(len(cluster.executors()) > 2, "no executor was started for the one killed")


def _who_asks(address: str) -> tuple[psutil.Process, psutil.Process]:
    """The Python worker of a cluster that stands at an address, and its executor.

    Raises:
        LookupError: there is none.
    """
    port = urlsplit(address).port or 0
    for executor in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if EXECUTOR not in " ".join(executor.cmdline()):
                continue
            for worker in executor.children(recursive=True):
                if is_connected(worker, port):
                    return worker, executor
    raise LookupError("no task stands there")
