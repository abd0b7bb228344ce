"""HTTP clients of Python that know nothing of events read a stream.

Those of other languages need their registries, and follow one each night.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.third_party.checks import REMOVALS, check_rows, define
from tests.clients.third_party.libraries import COMMANDS, reading
from tests.support.commands import serving_here
from tidegate.clients.gateway import Gateway


@pytest.mark.system
@pytest.mark.parametrize("library", ["httpx", "aiohttp"])
def test_it_reads_rows_and_removals(library: str, tmp_path: Path) -> None:
    with serving_here() as address, Gateway(address) as gateway:
        define(gateway)
        with reading(COMMANDS[library](address + REMOVALS, tmp_path)) as client:
            check_rows(client, gateway)
