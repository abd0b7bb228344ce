"""docs/settings.md says what the settings are."""

import re
from pathlib import Path

from tidegate.app.cli.settings import settings_page
from tidegate.app.settings.settings import SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_the_one_the_settings_write() -> None:
    assert PAGE.read_text("utf-8") == settings_page(), (
        "write it anew: python -m tidegate.app.cli.settings > docs/settings.md"
    )


def test_every_setting_has_a_row_with_a_meaning() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert list(rows) == list(SETTINGS)
    for name, row in rows.items():
        assert len(row.split(" | ")[-1]) > len("Topics"), name
