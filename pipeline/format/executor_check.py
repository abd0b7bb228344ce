"""What goes to executors says in a sentence what they lack.

Pickle names classes, and an executor without our package fails to find them with a traceback about
modules that its user has never heard of. The one function here goes along as code, and tells.
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
    import pickle
    import platform

    try:
        kind, fields = pickle.loads(packed)
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"the Python of executor {platform.node()} has no package {error.name}: "
            "install tidegate with its requirements on every node"
        ) from None
    traveller = object.__new__(kind)
    traveller.__dict__.update(fields)
    return traveller


class SentToExecutors:
    """Something that Spark takes to executors: its fields are plain."""

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return unpacked, (pickle.dumps((type(self), self.__dict__)),)


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # Spark's
