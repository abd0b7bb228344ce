"""Lines that are read together are exactly those that would be accepted one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tidegate.keys.errors import KeysError
from tidegate.keys.jsontext import check_json, one_line
from tidegate.keys.lines import LineReader, Lines
from tidegate.keys.spec import KeySpec, record_key

BYTES_MAX = 250_000
SPECS = [["/k"], ["/k", "/j"], ["/k/a", "/j", "/k/b"], ["$['é ']"], []]


def one_by_one(spec: KeySpec, piece: bytes) -> Lines:
    """Read the lines with the functions for one message."""
    lines = Lines([], [])
    for text in filter(None, piece.split(b"\n")):
        check_json(text)
        lines.payloads.append(one_line(text))
        lines.keys.append(record_key(spec)(lines.payloads[-1]) if spec else "")
    return lines


def together(spec: KeySpec, piece: bytes) -> Lines | None:
    reader = LineReader.of(spec)
    assert reader is not None
    return reader.read(piece, BYTES_MAX)


READ = [
    (["/k"], b'{"k":"a"}\n{"k":"b","x":[{}]}'),
    (["/k"], b'\n{"k":1}\r\n \t{"k":-0} \n\n'),
    (["/k"], b'{"k":18446744073709551615}\n{"k":-9223372036854775808}'),
    (["/k"], b'{"k":"\\u0041\\n\\"\\ud83d\\ude00"}\n{"k":"a\\/b"}'),
    (["/k"], '{"k":"é€😀"}\n{"k":"\x7f"}'.encode()),
    (["/k"], b'{"k":"b","k":"a"}'),
    (["/k"], b'{"k":"a",\r"x":1}'),
    (["/j", "/k"], b'{"k":1,"j":"x"}\n{"j":"y","k":2}'),
    (["/k/a", "/j", "/k/b"], b'{"k":{"b":2,"a":1},"j":3}'),
    (["$['\u00e9 ']"], '{"é ":"x"}'.encode()),
    (["/k"], b"\n".join(b'{"k":%d,"x":{"y":[]}}' % at for at in range(200))),
    (["/k"], b'{"k":1,"x":' + b"[" * 63 + b"]" * 63 + b"}"),
    ([], b'null\n[]\n "x"\n{}\n1e99'),
    ([], b""),
]


@pytest.mark.parametrize(("paths", "piece"), READ, ids=lambda given: str(given)[:40])
def test_plain_lines_are_read_together_as_they_are_one_by_one(
    paths: list[str], piece: bytes
) -> None:
    spec = KeySpec.of(paths)
    assert together(spec, piece) == one_by_one(spec, piece)


LEFT = [
    b'{"k":1}\n{"k":',
    b'{"k":1} {"k":2}',
    b'{"k":1\n}',
    b'{"k":"a"}\n{"k":1}',
    b'{"k":1.0}',
    b'{"k":true}',
    b'{"k":null}',
    b'{"j":1}',
    b"7",
    b'{"k":18446744073709551616}',
    b'{"k":-9223372036854775809}',
    b'{"k":"\xff"}',
    b'{"k":"a","x":"\xff"}',
    b'{"k":"\\ud800"}',
    b'{"k":1}\n \n',
    b'{"k":1}\n\x0c\n',
    b'{"k":1,"x":' + b"[" * 64 + b"]" * 64 + b"}",
    b'{"k":1}\n' * 5 + b'{"k":1,"x":' + b'{"y":' * 64 + b"1" + b"}" * 65,
    b'{"k":1}\n{"k":1,"x":1e309}',
    b'{"k":1}\n{"k":1,"x":[-1E+400]}',
    b'{"k":1,"x":' + b"9" * 309 + b"}",
    b'{"k":1,"x":' + b"[" * 200_000,
    b'{"k":"' + b"x" * BYTES_MAX + b'"}',
    b"",
]


@pytest.mark.parametrize("piece", LEFT, ids=lambda given: f"{str(given)[:30]}…{len(given)}")
def test_other_lines_are_left_to_the_caller(piece: bytes) -> None:
    assert together(KeySpec.of(["/k"]), piece) is None


def test_lines_without_a_bracket_make_no_room_for_a_deeper_one() -> None:
    assert together(KeySpec(), b"1\n" * 100 + b"[" * 65 + b"]" * 65) is None


@pytest.mark.parametrize("paths", [["$[0]"], ["/k", "$.a[1]"], ["/k", "/k/a"], ["$['\"']"]])
def test_a_key_that_no_struct_has_is_read_one_by_one(paths: list[str]) -> None:
    assert LineReader.of(KeySpec.of(paths)) is None


SCRAPS = [
    b'{"k":', b'"a"', b"1", b"-0", b"1.0", b"}", b"{", b"\n", b"\r", b" ", b",", b'"j":', b'"x":',
    b"[", b"]", b"null", b"1e308", b"1e309", b"-1E+400", b"9" * 309,
    b"\\", b'"', b"\xc3\xa9", b"\xc3", b"\x0b", b"\\u0041", b'{"a":', b'"b":',
]  # fmt: skip
GOOD = [
    b'{"k":"a","j":1}',
    b'{"k":"a\\n","j":"b"}',
    b'{"k":{"a":1,"b":"x"},"j":7}',
    b'{"k":2,"j":3}',
]


@examples(60)
@given(
    st.sampled_from(SPECS),
    st.lists(st.sampled_from([*GOOD, *SCRAPS, *GOOD]), max_size=12),
    st.sampled_from([b"", b"\n"]),
)
def test_whatever_is_read_together_is_read_one_by_one_too(
    paths: list[str], parts: list[bytes], between: bytes
) -> None:
    spec, piece = KeySpec.of(paths), between.join(parts)
    found = together(spec, piece)
    if found is not None:
        try:
            assert found == one_by_one(spec, piece)
        except KeysError as error:
            pytest.fail(f"{piece!r} was read although {error}")
