"""The door through which Spark finds `format("tidegate")` by itself, without registration.

Spark looks for top-level modules named `pyspark_…` with a `DefaultSource`, on the driver and
on the executors.
"""

from tidegate.pipeline.format.source import TidegateSource as DefaultSource

__all__ = ["DefaultSource"]
