"""As many connections as file descriptors allow, with some to spare."""

import resource
from collections.abc import Iterator

import pytest

from tidegate.app.http.admission import WAITING_CONNECTIONS_MAX
from tidegate.app.http.transport.listener import (
    OTHER_DESCRIPTORS,
    ask_for_descriptors,
    connections_that_fit,
)

SPARE = WAITING_CONNECTIONS_MAX + OTHER_DESCRIPTORS


@pytest.fixture(name="hard")
def hard_fixture() -> Iterator[int]:
    """The hard limit; the soft one is put back at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("soft", "wanted", "fitting"),
    [(1024, 500, 500), (1024, 12_000, 1024 - SPARE), (256, 12_000, 256 - SPARE), (100, 9, 1)],
)
def test_a_bound_keeps_descriptors_to_spare(
    hard: int, soft: int, wanted: int, fitting: int
) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert connections_that_fit(wanted) == fitting


def test_the_soft_limit_is_raised_as_far_as_needed_and_never_lowered(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    ask_for_descriptors(100)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, hard)
    ask_for_descriptors(600)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (600 + SPARE, hard)
    assert connections_that_fit(600) == 600


def test_more_than_the_hard_limit_is_not_asked_for(hard: int) -> None:
    ask_for_descriptors(1_000_000_000)
    soft, now = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert now == hard
    assert hard in (soft, resource.RLIM_INFINITY)
