"""What a model does not know of is a failed assertion, and nothing else becomes one."""

from __future__ import annotations

from collections import deque

import pytest

from tests.support.models.expected import expected


def test_an_end_of_what_is_expected_is_a_failed_assertion() -> None:
    with pytest.raises(AssertionError, match="does not expect IndexError"), expected():
        deque[int]().popleft()


def test_an_entry_that_is_not_there_is_a_failed_assertion() -> None:
    with pytest.raises(AssertionError, match="does not expect ValueError"), expected():
        [1].remove(2)


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(TypeError), expected():
        len(1)  # type: ignore[arg-type] # that is what is tried
