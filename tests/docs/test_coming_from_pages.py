"""The pages for users of other systems leave out nothing that has a counterpart here."""

from __future__ import annotations

from tests.docs.site import DOCS
from tidegate.app.definitions.topic import FIELDS
from tidegate.conflation.definition import QueuePolicy
from tidegate.conflation.options.table import TABLE

AMPS = (DOCS / "coming-from" / "amps.md").read_text("utf-8")
DIFFUSION = (DOCS / "coming-from" / "diffusion.md").read_text("utf-8")
# Fields of a topic without a counterpart among Diffusion's properties.
OF_OURS = {"key", "options", "type", "source", "description"}


def test_every_option_of_amps_is_on_its_page() -> None:
    table = AMPS.split("## Options")[1].split("\n## ")[0]
    names = [name for name, option in TABLE.items() if option.source == "AMPS"]
    assert len(names) > 20
    assert [name for name in names if f"`{name}" not in table] == []


def test_every_option_of_ours_is_named_there() -> None:
    names = [name for name, option in TABLE.items() if option.source == "Tidegate"]
    assert [name for name in names if f"`{name}" not in AMPS and f"{name}=" not in AMPS] == []


def test_every_policy_and_field_is_on_the_page_of_diffusion() -> None:
    assert [it.value for it in QueuePolicy if f"| `{it.value}` |" not in DIFFUSION] == []
    assert [it for it in sorted(set(FIELDS) - OF_OURS) if f"`{it}" not in DIFFUSION] == []
