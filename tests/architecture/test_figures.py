"""The figures of `tests.architecture.figures` keep to their bounds."""

from __future__ import annotations

from tests.architecture.figures import BOUNDS, figures


async def test_every_figure_keeps_to_its_bound() -> None:
    found = await figures()
    assert found.keys() == BOUNDS.keys()
    assert [name for name, figure in found.items() if not BOUNDS[name].admits(figure)] == []
