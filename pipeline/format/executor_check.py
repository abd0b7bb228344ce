"""Objects that Spark sends to executors, which say in a sentence what an executor lacks.

Pickle names classes, and an executor without our package fails to find them with a traceback about
modules unknown to its user. The function here travels as code and raises one sentence instead.
The whole module is pickled by value: keep it small, and free of imports of ours.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle


def unpacked(packed: bytes) -> Any:
    """Unpack on an executor, where only the standard library is sure to be installed.

    Raises:
        RuntimeError: the executor's Python has no such package; one sentence.
    """
    # Inside, because the function travels without its module.
    import pickle
    import platform

    try:
        kind, fields = pickle.loads(packed)
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"the Python of executor {platform.node()} has no package {error.name}: "
            "install tidegate with its requirements on every node"
        ) from None
    # Without `__init__`, as pickle itself does it: the time when a source started is the driver's.
    traveller = object.__new__(kind)
    traveller.__dict__.update(fields)
    return traveller


class SentToExecutors:
    """Base of objects that Spark sends to executors; their fields are plain."""

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return unpacked, (pickle.dumps((type(self), self.__dict__)),)


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # Spark's
