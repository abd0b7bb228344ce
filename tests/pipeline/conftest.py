"""One Spark session and one journal server for all of these tests: starting them is slow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests.pipeline.journals import Journals, JournalServer, serving
from tests.support.outside import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two local cores, as the command line starts it.

    Temporary files of Java are in a folder of the tests. Its variables, and those that the session
    sets for Python workers, do not reach the commands that other tests start.
    """
    require_java()
    from tidegate.pipeline.spark.session import end_java, open_session

    folder = tmp_path_factory.mktemp("spark")
    variables = {
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder} -XX:-UsePerfData",
    }
    with mock.patch.dict(os.environ, variables):
        session = open_session("local[2]")
    yield session
    session.stop()
    end_java()


@pytest.fixture(scope="session")
def journal_server() -> Iterator[JournalServer]:
    """A server that the tests use one after the other."""
    with serving() as server:
        yield server


@pytest.fixture
def journals(journal_server: JournalServer) -> Journals:
    """The journal side of a gateway, without any topic."""
    return journal_server.clear()
