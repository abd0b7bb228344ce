"""Lines that are cut behind their key are read as whole lines are, whatever is in them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.columns.test_decoding import TIME, line_by_line, read, values
from tests.pipeline.members.test_texts import decoded
from tests.support.profiles import examples
from tidegate.keys.spec import KeySpec, record_key
from tidegate.pipeline.columns import heads as heads_module
from tidegate.pipeline.columns.decoding import LineDecoder
from tidegate.pipeline.columns.heads import FAILURES_MAX, HEAD_BYTES_MAX, HeadDecoder
from tidegate.pipeline.columns.reading import MessageReader

KEY = KeySpec.of(["/k", "/n"])
HEADED = [b'{"k":"x","n":%d,"t":%d}\n' % (n % 3, n) for n in range(40)]

# A line whose key stands in front, with whatever may be mistaken in its tail or its head.
tails = st.sampled_from(
    [
        *("", ',"v":3', ',"k":"z"', ',"k":null', ',"\\u006b":"z"', ',"o":{"k":1}', "}", ","),
        *(',"v":[1,{"n":2}]', ',"n":1,"t":7', ',"t":8', ',"v":"}\\n{"', ',"v":"é"', ',"v":NaN'),
        *(', "v" : 1', ',"":0'),
    ]
)  # fmt: skip
heads = st.builds(
    '{}{{{}"k":{},{}"n":{}'.format,
    st.sampled_from(["", "", " "]),
    st.sampled_from(["", "", ' "a":[1,2],', '"k":"y",', '"a":"{,",']),
    st.one_of(st.sampled_from(['"x"', '"y,z"']), values),
    st.sampled_from(["", "", " ", '"o":{"n":3},']),
    st.one_of(st.sampled_from("123"), values),
)
headed = st.builds(
    '{},{}"t":{}{}}}{}'.format, heads, st.sampled_from(["", "", " ", "  "]),
    st.one_of(st.integers(0, 9).map(str), values), tails,
    st.sampled_from(["\n", "\n", "\n", "\r\n", " \n", ""]),
)  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
@examples(80)
@given(
    st.lists(st.one_of(st.sampled_from(HEADED[:5]), headed.map(str.encode)), max_size=4),
    st.sampled_from([b"\n", b""]),
    st.booleans(),
)
def test_heads_give_what_each_line_gives(
    strict: bool, written: list[bytes], ending: bytes, same_break: bool
) -> None:
    if same_break:
        written = [line.rstrip() + ending for line in written]
    # Among plain lines, so that a cut is found and a new head is one of few.
    written = [*HEADED[:20], *written, *HEADED[20:]]
    found = read(MessageReader([KEY], TIME, strict=strict), written)
    with pytest.MonkeyPatch.context() as patch:
        line_by_line(patch)
        patch.setattr(HeadDecoder, "decode", lambda decoder, lines: None)
        assert found == read(MessageReader([KEY], TIME, strict=strict), written)


flat = st.sampled_from(
    ['"v":1', '"v":"a,b"', '"v":"x,"', '"v":null', '"u":2', '"u":"é"', '"":0', '"v": 1', '"o":{}']
)
evens = st.builds('{{"k":"x",{}"n":1,"t":{},{},{}}}\n'.format, st.sampled_from(["", '"v":"y",']),
                  st.sampled_from("12"), flat, flat)  # fmt: skip


@examples(80)
@given(st.lists(evens.map(str.encode), max_size=4))
def test_members_are_found_beside_heads(written: list[bytes]) -> None:
    plain = [b'{"k":"x","n":1,"t":%d,"v":3,"u":4}\n' % n for n in range(40)]
    names = ["v", "u", "k"]
    reader = MessageReader([KEY], TIME, names=names)
    lines = plain[:20] + written + plain[20:]
    found = reader.read(pa.array(lines, pa.binary())).members
    assert {*found} in ({"t", *names}, set()) if written else {*found} == {"t", *names}
    for name, member in found.items():
        assert member.texts.array().to_pylist() == [decoded(line, name) for line in lines]


times = st.sampled_from(
    ["7", "1.5", "2.0", "-3", '"2013-10-08T09:30:00Z"', "1381224600000", "1e3", "99999999", "0"]
)


@examples(80)
@given(st.lists(times, min_size=1, max_size=3))
def test_a_time_that_is_found_is_that_which_is_decoded(written: list[str]) -> None:
    lines = [b'{"k":"x","n":1,"t":%b,"v":1}\n' % time.encode() for time in written * 30]
    found = read(MessageReader([KEY], TIME), lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeadDecoder, "decode", lambda decoder, lines: None)
        assert found == read(MessageReader([KEY], TIME), lines)


def decoder(seen: list[bytes]) -> HeadDecoder:
    """A decoder of `t` behind the key, which notes the heads that it has read."""
    key_of = record_key(KEY)

    def code_of(text: bytes) -> int:
        seen.append(text)
        return int(key_of(text).rpartition(",")[2].rstrip("]"))

    found = HeadDecoder.of(["k", "n"], code_of, {"t": int})
    assert found is not None
    return found


def test_each_head_is_read_once() -> None:
    seen: list[bytes] = []
    heads = decoder(seen)
    for _ in range(2):
        found = heads.decode(pa.array(HEADED, pa.binary()))
        assert found is not None
        codes, fields = found
        assert codes.tolist() == [n % 3 for n in range(40)]
        assert fields.members["t"].texts.array().to_pylist() == [b"%d" % n for n in range(40)]
    assert sorted(seen) == [b'{"k":"x","n":%d}' % n for n in range(3)]


ODD = {
    "the key stands behind": b'{"t":1,"k":"x","n":1}\n',
    "the key comes again": b'{"k":"x","n":1,"t":1,"n":2}\n',
    "the key comes again as null": b'{"k":"x","n":1,"t":1,"n":null}\n',
    "the key comes again by an escape": b'{"k":"x","n":1,"t":1,"\\u006e":2}\n',
    "nothing behind the comma": b'{"k":"x","n":1,}\n',
    "a comma too many": b'{"k":"x","n":1,,"t":1}\n',
    "no comma": b'{"k":"x","n":1 "t":1}\n',
    "a key of no scalar": b'{"k":"x","n":[1],"t":1}\n',
    "no object": b'["k","x","n",1,"t"]\n',
    "a blank": b"\n",
    "a cut inside an object": b'{"o":{"k":"x","n":1,"t":1}}\n',
    "a cut inside a text": b'{"k":"x\\",","n":1,"t":1}\n',
}


@pytest.mark.parametrize("line", ODD.values(), ids=ODD)
def test_odd_lines_are_left_to_whole_lines(line: bytes) -> None:
    lines = [*HEADED, line, *HEADED]
    assert decoder([]).decode(pa.array(lines, pa.binary())) is None


def test_heads_that_do_not_come_again_are_given_up() -> None:
    heads = decoder([])
    many = pa.array([b'{"k":"x","n":%d,"t":1}\n' % n for n in range(100)], pa.binary())
    for _ in range(FAILURES_MAX + 1):
        assert heads.decode(many) is None
    assert heads.decode(pa.array(HEADED, pa.binary())) is None


def test_one_failure_is_not_the_end() -> None:
    heads = decoder([])
    assert heads.decode(pa.array([b"[]\n"], pa.binary())) is None
    assert heads.decode(pa.array(HEADED, pa.binary())) is not None


def test_a_head_has_a_bound_and_so_has_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    long = b'{"a":"%b","k":"x","n":1,"t":1}' % (b"a" * HEAD_BYTES_MAX)
    assert decoder([]).decode(pa.array([long], pa.binary())) is None
    monkeypatch.setattr(heads_module, "HEADS_MAX", 2)
    seen: list[bytes] = []
    heads = decoder(seen)
    for _ in range(2):
        assert heads.decode(pa.array(HEADED, pa.binary())) is not None
    assert len(seen) == 6


def test_a_field_of_the_key_cannot_be_read_from_a_tail() -> None:
    assert HeadDecoder.of(["k"], lambda text: 0, {"k": int}) is None
    assert HeadDecoder.of([], lambda text: 0, {"t": int}) is None
    assert LineDecoder.of({"t": int}, absent={'a"b': int}) is None
