"""Targets: event streams: encoded and read by a browser's rules, compressed, and negotiated."""

from __future__ import annotations

import base64
import json
import zlib
from random import Random
from typing import Any, Final, NamedTuple

from tests.fuzz.documents import a_value, strict
from tests.fuzz.languages import PATHS
from tests.fuzz.mutating import BYTES, CHARACTERS, chunks, mutated
from tests.fuzz.reference import Refused, events
from tests.fuzz.target import Target
from tests.support.compressed import Decoder, zstd_decompressed
from tidegate.app.streams.compression import Coding, block, encoder_of, negotiate
from tidegate.app.streams.cursor import parse_cursor
from tidegate.app.streams.encoding import EventIds, Format, Style, chunk, encode
from tidegate.app.streams.subscribe_request import place_of, places_of
from tidegate.clients.errors import AnswerInvalid
from tidegate.clients.sse import Parser
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Batch, Frame, RemovalReason, Row, Tombstone
from tidegate.conflation.outputs import GroupBegin, GroupEnd, Output, Rows
from tidegate.conflation.steps import finished
from tidegate.conflation.subscription import Command, FeedId, LaneId, Shown, Subscription
from tidegate.keys.errors import KeysError
from tidegate.keys.jsontext import one_line
from tidegate.keys.spec import KeySpec
from tidegate.keys.text.bookmark import Bookmark

TEXTS: Final = (
    "", "a", "\n", "\r", "\r\n", "\n\n", "data: x", "event: goodbye", "id: 7", "retry: 1", ":",
    " a",
    "\ufeff", "\u2028", "\0", "\x85", "a\rb", "\xe9", "\U0001f600", "</script>", "  ",
    "\n\nevent: x",
)  # fmt: skip
LANE: Final = LaneId(FeedId(KeySpec.of(["/k"])), 1_000_000_000)


class Flush(NamedTuple):
    """Rows, the type of their topic, and how they are to be written."""

    kind: Kind
    form: Format
    shown: Shown
    frames: tuple[Frame, ...]
    low_water: int | None
    has_ids: bool


def a_flush(random: Random) -> Flush:
    """Rows with hostile payloads."""
    kind = random.choice((Kind.JSON, Kind.JSON, Kind.TEXT, Kind.BINARY, Kind.SERIES))
    frames = tuple(_frame(random, kind, offset) for offset in range(1, random.randint(2, 5)))
    return Flush(
        kind,
        random.choice(list(Format)),
        Shown(timestamp=random.random() < 0.3, receipt=random.random() < 0.3,
              no_sowkey=random.random() < 0.3),
        frames,
        random.choice((None, 4)),
        random.random() < 0.6,
    )  # fmt: skip


def _frame(random: Random, kind: Kind, offset: int) -> Frame:
    payload, key = _payload(random, kind), ""
    if kind is Kind.JSON:
        key = random.choice(('["a"]', '["\\u2028",7]', '["\\n"]', '["\\\\\\""]'))
        chance = random.random()
        if chance < 0.1:
            return Tombstone(offset, payload, key, reason=RemovalReason.DELETED)
        if chance < 0.2:
            return Row(offset, payload, key, messages=2, first=offset, patch=b'{"a":1}')
    return Frame(offset, payload, key, random.randrange(1 << 40))


def _payload(random: Random, kind: Kind) -> bytes:
    if kind in (Kind.TEXT, Kind.BINARY):
        text = "".join(random.choices(TEXTS, k=random.randrange(5)))
        return text.encode() if kind is Kind.TEXT else mutated(random, text.encode(), BYTES)
    while strict(data := a_value(random, 2).encode()) is Refused:
        pass
    return one_line(data)


def check_flush(flush: Flush) -> bool:
    """A browser reads out of the bytes what was put in, in format and order."""
    wanted = Subscription("px", Command.SUBSCRIBE, LANE, shown=flush.shown)
    style = Style(flush.form, flush.kind, wanted, Bookmark("e1", 0), ids=flush.has_ids)
    ids = None if flush.has_ids else EventIds(lambda _, mark: f"s-1~{mark}", lambda *_: "")
    rows = Rows("s1", "px", "e1", "publish", Batch(flush.frames, 0, 4, flush.low_water))
    outputs: list[Output] = [GroupBegin("s1", "px", 1), rows, GroupEnd("s1", "px", 1, "e1-4")]
    stream = encode(outputs, {("s1", "px"): style}, 1_000, ids=ids)
    read = events(stream)
    assert [read[0][0], read[-1][0]] == ["group_begin", "group_end"], read
    between = read[1:-1]
    parser = Parser()
    ours = [event for piece in (stream[:7], stream[7:]) for event in parser.feed(piece)]
    assert [(it.name, it.text, it.id) for it in ours] == read
    last_ids = {last_id for _, _, last_id in between[:-1]}
    assert last_ids <= {""}, "only the last event of a flush has an id"
    if flush.form is Format.BATCH:
        assert len(between) == 1
        document = json.loads(between[0][1])
        envelopes = document["rows"]
        assert (document.get("sub") == "s1") != flush.has_ids
    else:
        assert len(between) == len(flush.frames), between
        if flush.form is Format.VALUE:
            _check_values(flush, between)
            return True
        envelopes = [json.loads(text) for _, text, _ in between]
    for frame, envelope in zip(flush.frames, envelopes, strict=True):
        _check_envelope(flush, frame, envelope)
    return True


def _check_values(flush: Flush, read: list[tuple[str, str, str]]) -> None:
    for frame, (name, text, _) in zip(flush.frames, read, strict=True):
        if isinstance(frame, Tombstone):
            assert name == "oof"
            document = json.loads(text)
            assert document["value"] == json.loads(frame.payload)
        elif isinstance(frame, Row):
            assert (name, text) == ("delta", '{"a":1}')
        elif flush.kind is Kind.BINARY:
            assert base64.b64decode(text) == frame.payload
        elif flush.kind is Kind.TEXT:
            # A stream has one line end; the kind of it is lost, as the contract says.
            lines = frame.payload.decode().replace("\r\n", "\n").replace("\r", "\n")
            assert text == lines
        else:
            assert (name, text.encode()) == ("message", frame.payload)


def _check_envelope(flush: Flush, frame: Frame, envelope: dict[str, Any]) -> None:
    assert envelope["bookmark"].startswith("e1-")
    assert ("key" in envelope) != flush.shown.no_sowkey
    if not flush.shown.no_sowkey:
        assert envelope["key"] == (json.loads(frame.key) if frame.key else None)
    value: Any
    if isinstance(frame, Row):
        value = {"a": 1}
    elif flush.kind is Kind.TEXT:
        value = frame.payload.decode()
    elif flush.kind is Kind.BINARY:
        value = base64.b64encode(frame.payload).decode()
    else:
        value = json.loads(frame.payload)
    assert repr(envelope["value"]) == repr(value)  # which tells 1 from 1.0, and knows infinity


# Streams, as our own client reads them


def a_stream(random: Random) -> list[bytes]:
    """Bytes of an event stream, cut anywhere."""
    lines = []
    for _ in range(random.randrange(8)):
        name = random.choice(("data", "event", "id", "retry", "", "dat", "data ", "zzq"))
        lines.append(name + random.choice((":", ": ", "", ":  ")) + random.choice(TEXTS))
        lines += [""] * random.choice((0, 0, 1, 2))
    text = random.choice(("", "", "\ufeff")) + random.choice(("\n", "\r\n", "\r")).join(lines)
    data = text.encode()
    if random.random() < 0.4:
        data = mutated(random, data, (*BYTES, b"\r\n\r\n", b"\n\n", b"data: ", b"id: "))
    return chunks(random, data)


def check_stream(pieces: list[bytes]) -> bool:
    """The client's parser reads what a browser reads, or says that it is no UTF-8."""
    parser, found = Parser(), []
    data = b"".join(pieces)
    try:
        for piece in pieces:
            found += parser.feed(piece)
    except AnswerInvalid:
        assert b"\xef\xbf\xbd" not in data
        assert "\ufffd" in data.decode("utf-8", "replace")
        return False
    expected = events(data)
    if data.endswith(b"\r"):  # it may be half of a line end: the parser waits for the next byte
        return True
    # A browser drops an event whose data is empty lines alone only where there is none at all.
    assert [(it.name, it.text, it.id) for it in found] == expected, (found, expected)
    return True


# Compression


def some_texts(random: Random) -> tuple[Coding, list[bytes], int]:
    """Texts of a stream, and how often it is cut."""
    texts = [
        random.choice((b"", b"x", b"data: 1\n\n", random.randbytes(random.randrange(2_000)),
                       b"data: " + b"abc" * random.randrange(900) + b"\n\n"))
        for _ in range(random.randrange(6))
    ]  # fmt: skip
    return random.choice((Coding.GZIP, Coding.ZSTD)), texts, random.randrange(1 << 30)


def check_texts(given: tuple[Coding, list[bytes], int]) -> bool:
    """Each text can be read once its block has come, cut in any way, and joined at any block."""
    coding, texts, seed = given
    encoder = encoder_of(coding)
    assert encoder is not None
    decoder, sent = Decoder(coding), bytearray(encoder.header)
    assert decoder.decompress(bytes(encoder.header)) == b""
    for number, text in enumerate(texts):
        if number % 2:
            piece = encoder.block(text)
        else:
            piece = block(text, coding)
            encoder.add_to_checksum(text)
        assert decoder.decompress(piece) == text
        sent += piece
    sent += encoder.end()
    whole = b"".join(texts)
    if coding is Coding.GZIP:
        assert zlib.decompress(sent, wbits=zlib.MAX_WBITS | 16) == whole
    elif sent:
        assert zstd_decompressed(bytes(sent)) == whole
    late, found = Decoder(coding), b""
    for piece in chunks(Random(seed), bytes(sent)):
        found += late.decompress(piece)
    assert found == whole
    assert all(chunk(text).endswith(b"\r\n") for text in texts)
    return True


def a_header(random: Random) -> str:
    """A value of Accept-Encoding."""
    words = ("gzip", "zstd", "br", "identity", "*", "deflate", ";q=0", ";q=1", ";q=0.5", ", ", ",",
             ";", " ", "q=", "GZIP", ";q=1.1", ";q=-1", ";q=0.0000")  # fmt: skip
    return "".join(random.choices(words, k=random.randrange(7)))


def check_header(value: str) -> bool:
    """A coding is used only if the client names it."""
    found = negotiate(value)
    if found is Coding.GZIP:
        assert "gzip" in value.lower() or "*" in value
    if found is Coding.ZSTD:
        assert "zstd" in value.lower()
    return found is not Coding.IDENTITY


# Where a reader continues


def a_place(random: Random) -> str:
    """An event's id, or several bookmarks."""
    one = random.choice(("e1-7", "abc-0", "s1.x-12~e1-7", "s-1", "s-01", "a-" + "9" * 20, "-1",
                         "a-",
                         "px=e1-7", "px.a=e1-7,px.b=e2-9", "px=e1-7,px=e1-7"))  # fmt: skip
    return mutated(random, one, (*CHARACTERS, *PATHS)) if random.random() < 0.7 else one


def check_place(text: str) -> bool:
    """An id is a bookmark or a cursor or neither; bookmarks print as they are read."""
    mark = place_of(text)
    assert isinstance(mark, Bookmark)
    cursor = parse_cursor(text)
    if cursor is not None:
        assert text.startswith(f"{cursor[0]}-{cursor[1]}")
    try:
        places = finished(places_of(text))
    except KeysError as error:
        raise AssertionError("a problem with a code of its own") from error
    except Exception as error:
        assert getattr(error, "code", "") == "bookmark-invalid", error
        return str(mark) == text or cursor is not None
    assert places
    return True


TARGETS: Final = (
    Target("sse", a_flush, check_flush),
    Target("sse-client", a_stream, check_stream),
    Target("compression", some_texts, check_texts),
    Target("encodings", a_header, check_header),
    Target("places", a_place, check_place),
)
