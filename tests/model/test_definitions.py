"""Every order of changes and takeovers: no definition is missed or replaced unseen."""

from __future__ import annotations

import pytest

from tests.model.definitions import FIRST, Definitions
from tests.model.search import Violation, search
from tests.support.rules import rule

pytestmark = rule("cluster-16")


def test_no_definition_is_missed_whatever_takes_over() -> None:
    assert search(FIRST, Definitions(changes=3, faults=1).steps) > 1_000


@pytest.mark.nightly
def test_no_definition_is_missed_whatever_takes_over_twice() -> None:
    assert search(FIRST, Definitions().steps) > 50_000


def test_a_version_alone_does_not_say_which_definitions_were_seen() -> None:
    with pytest.raises(Violation, match="lacks a definition") as found:
        search(FIRST, Definitions(ids_of_lives=False).steps)
    assert "takes over" in str(found.value)
