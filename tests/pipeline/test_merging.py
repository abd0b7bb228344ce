from __future__ import annotations

import pytest

from tests.pipeline.merged import MERGER, by_value
from tidegate.pipeline.errors import DefinitionInvalid
from tidegate.pipeline.merging import registered


def test_a_merger_is_found_by_its_name() -> None:
    assert registered(MERGER) is by_value


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such.module:f", "cannot be imported: ModuleNotFoundError"),
        ("tests.pipeline.merged:nothing", "cannot be imported: AttributeError"),
        ("tests.pipeline.merged:MERGER", "is not a function"),
        (":", "cannot be imported"),
    ],
)
def test_one_that_is_not_there_is_one_sentence(name: str, reason: str) -> None:
    with pytest.raises(DefinitionInvalid, match=f"^merger {name} {reason}") as refused:
        registered(name)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 78
