"""Which format an answer has, by Accept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from starlette.types import Scope

from tidegate.app.http.formats.columns import Known, columns_in, names_in
from tidegate.app.http.formats.csv_text import CsvEncoder
from tidegate.app.http.formats.records import JsonEncoder, NdjsonEncoder, RecordEncoder, Text
from tidegate.app.http.problems import HttpRefused
from tidegate.app.http.requests import JSON, NDJSON, preferred
from tidegate.app.streams.scheduler import in_turns
from tidegate.conflation.frame import Frame

CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
# `*/*` of curl and of browsers gets NDJSON, which needs no end to be read.
FORMATS: Final = (NDJSON, JSON, CSV, ARROW)
VARY: Final = {"Vary": "Accept"}


def chosen_format(scope: Scope, formats: tuple[str, ...] = FORMATS) -> str:
    """Return the media type of the answer that Accept weighs most, the first one of equal weights.

    Raises:
        HttpRefused: not-acceptable.
    """
    found = preferred(scope, formats)
    lacks_arrow = found == ARROW and find_spec("pyarrow") is None
    if lacks_arrow:
        found = preferred(scope, tuple(each for each in formats if each != ARROW))
    if found is not None:
        return found
    if lacks_arrow:
        detail = f"{ARROW} needs pyarrow here: install the extra archive of Tidegate."
    else:
        names = f"{', '.join(formats[:-1])} or {formats[-1]}"
        detail = f"The answer is {names}, which Accept leaves out."
    raise HttpRefused("not-acceptable", detail, headers=VARY)


async def encoder_for(
    media_type: str, rows: Sequence[Frame], text: Text, known: Known
) -> RecordEncoder:
    """Return the encoder of rows; one that writes columns has looked at all rows before.

    Args:
        media_type: one of `FORMATS`.
        rows: what it will encode.
        text: returns the JSON text of a row.
        known: columns that are there whatever the rows have.

    Raises:
        HttpRefused: not-acceptable, as the rows have too many different fields.
    """
    if media_type == NDJSON:
        return NdjsonEncoder()
    if media_type == JSON:
        return JsonEncoder()
    if media_type == CSV:
        return CsvEncoder(await in_turns(names_in(rows, text, known)))
    # In a thread: the import takes half a second.
    module = await asyncio.to_thread(import_module, "tidegate.app.http.formats.arrow_stream")
    encoder: RecordEncoder = module.ArrowEncoder(await in_turns(columns_in(rows, text, known)))
    return encoder
