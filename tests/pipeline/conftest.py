"""One Spark session for all of these tests: starting it is what costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.journals import Journals, serving
from tests.support.outside import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two local cores, as the command line starts it."""
    require_java()
    from tidegate.pipeline.spark.session import open_session

    session = open_session("local[2]")
    yield session
    session.stop()


@pytest.fixture
def journals() -> Iterator[Journals]:
    """A server with the journal side of a gateway."""
    with serving() as server:
        yield server
