"""Merge patches become whole records, one building on the other."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.place import parsed
from tests.support.rules import rule
from tidegate.app.refusals import Refused
from tidegate.app.stores.items import Message
from tidegate.app.stores.store import TopicRecord
from tidegate.app.topics.bodies import MERGED_AT_ONCE, Delta, merged
from tidegate.app.topics.registry import CatalogTopic
from tidegate.conflation.boards.board import Board
from tidegate.conflation.frame import Frame

KEYED = CatalogTopic(TopicRecord("px", parsed(key=["/k"]), "e"))


def board_of(*payloads: bytes) -> Board:
    board = Board()
    assert KEYED.key_of is not None
    for offset, payload in enumerate(payloads, start=1):
        record_key = KEYED.key_of(payload)
        board.put(record_key, Frame(offset, payload, record_key))
    return board


async def records(board: Board, *patches: bytes) -> list[bytes]:
    assert KEYED.key_of is not None
    deltas = [Delta(patch, KEYED.key_of(patch)) for patch in patches]
    return [message.payload for message in await merged(KEYED, board, deltas, 1_000, 1 << 20)]


async def test_a_delta_is_merged_into_the_record_that_its_key_names() -> None:
    board = board_of(b'{"k":1,"a":1}', b'{"k":2,"a":2}')
    assert await records(board, b'{"k":2,"b":3}') == [b'{"k":2,"a":2,"b":3}']


@rule("topic-4")
async def test_several_for_one_record_build_on_each_other() -> None:
    patches = (b'{"k":1,"b":2}', b'{"k":1.0,"c":3}', b'{"k":1,"b":null}')
    assert await records(board_of(b'{"k":1,"a":1}'), *patches) == [
        b'{"k":1,"a":1,"b":2}',
        b'{"k":1.0,"a":1,"b":2,"c":3}',
        b'{"k":1,"a":1,"c":3}',
    ]


@rule("topic-4")
async def test_where_there_is_no_record_the_delta_is_the_record() -> None:
    """What it removes was not there."""
    assert await records(board_of(), b'{"k":1,"a":null,"b":{"c":null}}') == [b'{"k":1,"b":{}}']


async def test_untouched_numbers_keep_their_digits() -> None:
    board = board_of(b'{"k":1,"n":1234567890123456789012345.00}')
    assert await records(board, b'{"k":1,"m":2.50}') == [
        b'{"k":1,"n":1234567890123456789012345.00,"m":2.50}'
    ]


async def test_who_is_exempt_stays_exempt() -> None:
    [record] = await merged(
        KEYED, board_of(), [Delta(b'{"k":1}', "[1]", exempt=True)], 1_000, 1 << 20
    )
    assert record == Message(b'{"k":1}', "[1]", exempt=True)


async def test_a_record_that_grows_too_large_is_refused_with_the_line() -> None:
    board = board_of(b'{"k":1,"a":"xxxxxxxxxx"}')
    with pytest.raises(Refused) as refused:
        await merged(KEYED, board, [Delta(b'{"k":1,"b":2}', "[1]", line=3)], 25, 100)
    assert (refused.value.code, refused.value.line) == ("message-too-large", 3)


async def test_other_work_runs_while_many_messages_are_merged() -> None:
    deltas = [Delta(b'{"k":1}', "[1]")] * (3 * MERGED_AT_ONCE)
    task = asyncio.create_task(merged(KEYED, board_of(), deltas, 1_000, 1 << 20))
    iterations = 0
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    assert iterations >= 3


async def test_the_records_of_a_request_count_together_and_not_the_patches() -> None:
    # Each line makes a whole record: a small request on a large record is a large one.
    board = board_of(b'{"k":1,"b":"%s"}' % (b"x" * 500))
    deltas = [Delta(b'{"k":1,"a":%d}' % n, "[1]", line=n) for n in range(1, 20)]
    assert len(await merged(KEYED, board, deltas[:3], 1_000, 2_000)) == 3
    with pytest.raises(Refused) as refused:
        await merged(KEYED, board, deltas, 1_000, 2_000)
    assert (refused.value.code, refused.value.line) == ("message-too-large", 4)


async def test_a_delta_that_leaves_a_number_beyond_a_double_is_refused() -> None:
    """Such a number may be in a record that an earlier version stored."""
    board = board_of(b'{"k":1,"n":1e400}')
    with pytest.raises(Refused, match="has a number beyond a double"):
        await records(board, b'{"k":1,"m":2}')
    assert await records(board, b'{"k":1,"n":null}') == [b'{"k":1}']
