"""How running queries end: between two batches, told about, whatever ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipeline.errors import StreamFailed
from pipeline.operations.stop import CutOff, Stop
from pipeline.operations.supervised import Supervised
from pipeline.operations.watch import Onlooker, tell

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S = 0.05
LAST_BATCH_SECONDS_MAX = 4.0


def stop_queries(queries: Sequence[StreamingQuery | None]) -> None:
    """Stop each query between two batches; a batch that does not end is replayed next time."""
    give_up_at = time.monotonic() + LAST_BATCH_SECONDS_MAX
    for query in queries:
        if query is None:
            continue
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < give_up_at:
            time.sleep(LOOK_EVERY_S)
        query.stop()


@contextmanager
def ending_in_order(
    stop_all: Callable[[], None], members: Sequence[Supervised], onlookers: Sequence[Onlooker]
) -> Iterator[None]:
    """Whatever ends the block, queries end between two batches, and it is told how they stand.

    Not where a signal has cut off the start: then nothing more can be asked of Spark.
    """
    is_cut_off = False
    try:
        yield
    except CutOff:
        is_cut_off = True
        raise
    finally:
        if not is_cut_off:
            stop_all()
            for each in members:
                each.end()
            tell(members, onlookers)


@contextmanager
def outliving_its_jvm(stop: Stop) -> Iterator[None]:
    """Java may end before us, and the streams with it.

    Raises:
        StreamFailed: it did, and the end was not asked for.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if not stop.asked:
            raise StreamFailed("Spark's Java process has ended, or refuses to go on") from error
