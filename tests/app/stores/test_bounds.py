"""Bounds of what is kept of senders: up to them there is room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.rules import rule
from tidegate.app.refusals import Refused
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.store import Bounds

BOUNDS = Bounds(stages_max=2, staged_bytes_max=100, retry_keys_max=3, producers_max=4)


@rule("publish-6")
@pytest.mark.parametrize(
    ("check", "most", "beyond"),
    [
        (BOUNDS.check_stages, (2, 100), (3, 1)),
        (BOUNDS.check_stages, (2, 100), (1, 101)),
        (BOUNDS.check_retry_keys, (3,), (4,)),
        (BOUNDS.check_producers, (4,), (5,)),
    ],
)
def test_beyond_the_bounds_the_answer_says_when_to_retry(
    check: Callable[..., None], most: tuple[int, ...], beyond: tuple[int, ...]
) -> None:
    check(*most)
    with pytest.raises(Refused, match="limit-reached") as refused:
        check(*beyond)
    assert refused.value.retry_after_s


def test_settings_have_them() -> None:
    assert Bounds.of(Settings()) == Bounds()
    assert Bounds.of(Settings(stages_max=7)).stages_max == 7
