"""`tidegate publish` and `delete`: messages of NDJSON or CSV, and removals of records.

Messages are sent at once, at a rate, or as recorded. They come from a file, plain or gzipped, or
from standard input.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, cast

import click
import msgspec

from tidegate.app.cli.arguments import (
    connect,
    gateway_option,
    key_option,
    paths_of,
    topic_argument,
)
from tidegate.app.cli.terminal import (
    DONE,
    PROGRAM,
    CommandError,
    UsageInvalid,
    print_error,
    print_line,
    print_note,
    progress,
    standard_input,
)
from tidegate.clients import BODY_BYTES_MAX
from tidegate.keys.errors import PathInvalid
from tidegate.keys.path import FieldPath, getter
from tidegate.keys.text.time import SECOND_NS, parse_iso_ns

if TYPE_CHECKING:
    from tidegate.clients.answers import Published
    from tidegate.clients.errors import GatewayProblem
    from tidegate.clients.gateway import Gateway
    from tidegate.clients.requests import RecordKey

PATIENCE_S = 60.0  # a restart of the gateway, with a large store to read
LINES_PER_REQUEST = 1_000
TICK_S = 0.02  # messages due within one tick share a request: 50 requests a second at most
CELL_CHARACTERS_MAX = 4 << 30  # the greatest `message_bytes_max`; a gateway has its own limit

STDIN = "-"
READ_BYTES = 64 * 1024
EXPONENT = re.compile(r"[0-9][eE]")
JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


class Line(NamedTuple):
    """One message as JSON text, and its line in the file, from 1."""

    number: int
    text: bytes


class CsvRows(Protocol):
    """The type of `csv.reader`, which the standard library does not name."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


Lines = Iterator[Line | None]
"""None marks a pause in the input: send what has arrived so far."""


def read_lines(
    file: str, opened: list[IO[bytes]] | None = None, texts: Collection[str] = ()
) -> Lines:
    """Yield the messages of a file, or of standard input for `-`; blank lines are skipped.

    `opened` gets the file itself, which tells how much of it is read. `texts` are the columns of a
    CSV whose cells stay texts.

    Raises:
        UsageInvalid: the file cannot be read, or its content does not fit its name or `texts`.
    """
    name = "standard input" if file == STDIN else file
    if texts and not _is_csv(file):
        raise UsageInvalid(f"--text names columns of a CSV, and {name} is none")
    try:
        if file == STDIN:
            yield from _arriving_lines(standard_input())
            return
        with _opened(file, [] if opened is None else opened) as raw:
            yield from csv_lines(raw, texts) if _is_csv(file) else ndjson_lines(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise UsageInvalid(f"{name} is not a complete gzip file") from None
    except UnicodeDecodeError:
        raise UsageInvalid(f"{name} is not UTF-8") from None
    except csv.Error as error:
        raise UsageInvalid(f"{name} is not valid CSV: {error}") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageInvalid(f"cannot read {name}: {error.strerror or error}") from None


def ndjson_lines(raw: IO[bytes]) -> Lines:
    """Yield lines as they stand; the gateway checks that they are JSON."""
    for number, line in enumerate(raw, start=1):
        text = line.strip()
        if text:
            yield Line(number, text)


def csv_lines(raw: IO[bytes], texts: Collection[str] = ()) -> Lines:
    """Yield objects with the header's names; cells that are numbers become numbers.

    Not in the columns `texts`: `12E4`, `120000` and `120000.0` are one number, and so one key.
    Empty cells are left out. A file of blank lines needs no header.

    Raises:
        UsageInvalid: an empty or repeated name in the header, or none that `texts` names; a row
            longer or shorter than it.
    """
    csv.field_size_limit(CELL_CHARACTERS_MAX)
    # Spreadsheets begin a file with a byte order mark; `newline=""` leaves quoted line ends to csv.
    text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
    try:
        yield from _objects(csv.reader(text, strict=True), texts)
    finally:
        text.detach()  # the caller closes the file


def _objects(rows: CsvRows, texts: Collection[str]) -> Lines:
    header = next((row for row in rows if row), None)
    if header is None:
        return
    if not all(header) or len(set(header)) != len(header):
        raise UsageInvalid("the first row of the CSV must give each column a name of its own")
    if unknown := sorted({*texts} - {*header}):
        raise UsageInvalid(f"--text {unknown[0]}: the CSV has no column of that name")
    # Encoded once, not for each row.
    names = [msgspec.json.encode(name) + b":" for name in header]
    encode = [msgspec.json.encode if name in texts else _cell for name in header]
    watched = {at: name for at, name in enumerate(header) if name not in texts}
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise UsageInvalid(
                f"line {rows.line_num} of the CSV has {len(row)} cells, its header {len(header)}"
            )
        cells = zip(names, encode, row, strict=True)
        fields = [name + as_json(cell) for name, as_json, cell in cells if cell]
        _note_exponents(watched, row)
        yield Line(rows.line_num, b"{" + b",".join(fields) + b"}")


def _note_exponents(watched: dict[int, str], row: list[str]) -> None:
    """Note once for each column that `12E4` was read as a number: it may be a product code."""
    found = [at for at in watched if EXPONENT.search(row[at]) and JSON_NUMBER.fullmatch(row[at])]
    for at in found:
        name = watched.pop(at)
        print_note(f"{row[at]} of column {name} is a number; --text {name} keeps it as a text")


def _cell(text: str) -> bytes:
    """Return a cell as JSON: a number keeps its spelling, everything else is a string."""
    return text.encode() if JSON_NUMBER.fullmatch(text) else msgspec.json.encode(text)


def _arriving_lines(raw: IO[bytes]) -> Lines:
    """Yield lines as soon as they are whole, and None after each piece that arrived."""
    number, rest = 0, b""
    while piece := cast("io.BufferedReader", raw).read1(READ_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            number += 1
            if text := line.strip():
                yield Line(number, text)
        yield None  # what has arrived is published before the next read blocks
    if text := rest.strip():
        yield Line(number + 1, text)


@contextlib.contextmanager
def _opened(file: str, opened: list[IO[bytes]]) -> Iterator[IO[bytes]]:
    with open(file, "rb") as raw:  # noqa: PTH123 - the name is the user's, `Path` would change it
        opened.append(raw)
        if not file.lower().endswith(".gz"):
            yield raw
            return
        with gzip.open(raw) as unpacked:
            yield cast("IO[bytes]", unpacked)


def share_read(opened: list[IO[bytes]]) -> float | None:
    """Return the share of a file that is read; None for standard input and for a pipe."""
    if not opened or opened[0].closed:
        return 1.0 if opened else None
    size = os.fstat(opened[0].fileno()).st_size
    return opened[0].tell() / size if size else None


def _is_csv(file: str) -> bool:
    return file.lower().removesuffix(".gz").endswith(".csv")


Schedule = Callable[[Line], float]
"""Seconds after the first message at which a line is due."""


@click.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate publish prices prices.ndjson\n"
        "  tidegate publish prices day.csv.gz --rate 2x --time-field /ts\n"
        "  tail -f prices.ndjson | tidegate publish prices"
    )
)
@topic_argument
@click.argument("file", default="-")
@click.option(
    "--rate",
    metavar="RATE",
    help="5000 (messages a second) or 2x (twice the recorded speed); default: at once.",
)
@click.option(
    "--time-field",
    metavar="PATH",
    help="With --rate 2x: field with each message's time, such as /ts (milliseconds or ISO 8601).",
)
@click.option(
    "--text",
    "texts",
    metavar="COLUMN",
    multiple=True,
    help="A column of a CSV whose cells are texts, even those that look like numbers.",
)
@key_option
@gateway_option
def publish(
    topic: str,
    file: str,
    rate: str | None,
    time_field: str | None,
    texts: tuple[str, ...],
    key_paths: tuple[str, ...],
    gateway: str,
) -> int:
    """Publish messages from a file or standard input.

    FILE is NDJSON or CSV (.csv), optionally gzipped (.gz); without FILE, or with -, NDJSON is read
    from standard input. A request carries up to 1,000 lines. One that fails is retried for a
    minute, and no message is published twice. A topic that does not exist is created, with the
    fields of --key as its key.
    """
    schedule = parse_rate(rate, time_field)
    messages, last = 0, None
    opened: list[IO[bytes]] = []
    with connect(gateway, PATIENCE_S) as client, progress("publishing", "messages") as advance:
        is_new = _prepare(client, topic, paths_of(key_paths))
        started_at = time.monotonic()
        try:
            for batch in batches(read_lines(file, opened, texts), schedule):
                published = _publish(client, topic, batch)
                if is_new:
                    is_new = False
                    print_note(
                        f"Topic {topic} did not exist and was created without a key: it keeps "
                        f"messages and no records. For a key, delete it ({PROGRAM} topics delete "
                        f"{topic}) and publish with --key."
                    )
                messages, last = messages + published.messages, published.last
                advance(published.messages, share_read(opened))
        except BaseException:
            if messages:  # accepted messages stay published, whatever fails after them
                print_note(_summary(topic, messages, time.monotonic() - started_at, last))
            raise
    print_line(_summary(topic, messages, time.monotonic() - started_at, last))
    return DONE


@click.command(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate delete prices IBM\n"
        "  tidegate delete orders --filter \"/state = 'filled'\""
    )
)
@topic_argument
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--filter", "filter_text", metavar="FILTER", help="Delete all that match, not keys.")
@gateway_option
def delete(topic: str, keys: Sequence[str], filter_text: str | None, gateway: str) -> int:
    """Delete records: those of the keys, or all that match a filter.

    KEY is JSON, else text: AAPL, 7, and '["A1",7]' for a key of several fields. Subscribers with
    the option oof get a removal for each record.
    """
    if bool(keys) == (filter_text is not None):
        raise UsageInvalid("name the keys of records, or a --filter")
    with connect(gateway) as client:
        if filter_text is None:
            named = [_record_key(text) for text in keys]
            count = sum(client.delete_records(topic, record_key=each) for each in named)
        else:
            count = client.delete_records(topic, filter=filter_text)
    print_line(f"Deleted {count:,} record{'s' * (count != 1)} of {topic}")
    return DONE


def _prepare(client: Gateway, topic: str, key_paths: list[str]) -> bool:
    """Create a missing topic if it is to have a key.

    Returns:
        True if the topic is missing, and the first message will create it without a key.

    Raises:
        CommandError: the topic exists with another key.
    """
    from tidegate.clients.errors import GatewayError

    try:
        found = client.find_topic(topic)
    except GatewayError:
        if key_paths:
            raise
        return False  # the token may only write, or publishing retries in this outage
    if found is None and key_paths:
        client.administration.put_topic(topic, {"key": key_paths}, only_new=True)
        named = _listed(key_paths)
        print_note(f"Topic {topic} did not exist and was created with the key {named}.")
    elif found is not None and key_paths and found.get("key") != key_paths:
        present = f"the key {_listed(found['key'])}" if found.get("key") else "no key"
        raise CommandError(
            f"topic {topic} has {present}, and --key says {_listed(key_paths)}; to begin again "
            f"without its messages: {PROGRAM} topics delete {topic}"
        )
    return found is None and not key_paths


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(paths)


def _record_key(text: str) -> RecordKey:
    try:
        found = msgspec.json.decode(text)
    except ValueError:
        return text
    return tuple(found) if isinstance(found, list) else cast("RecordKey", found)


def _publish(gateway: Gateway, topic: str, batch: list[Line]) -> Published:
    """Send one request; a refusal names the line of the file, not of the request."""
    from tidegate.clients.errors import GatewayProblem

    try:
        return gateway.publish(topic, [line.text for line in batch], trouble=print_error)
    except GatewayProblem as problem:
        if problem.line is not None and 0 < problem.line <= len(batch):
            raise _located(problem, batch[problem.line - 1].number) from None
        raise


def _located(problem: GatewayProblem, line: int) -> GatewayProblem:
    from tidegate.clients.errors import GatewayProblem

    return GatewayProblem(
        problem.status,
        problem.code,
        problem.title,
        problem.detail,
        problem.position,
        line,
        about=problem.about,
    )


def _summary(topic: str, messages: int, took_s: float, last: str | None) -> str:
    rate = messages / max(took_s, 1e-3)
    return (
        f"Published {messages:,} message{'s' * (messages != 1)} to {topic} in {took_s:.1f} s "
        f"({rate:,.0f} a second), last bookmark {last or 'none'}"
    )


def parse_rate(rate: str | None, time_field: str | None) -> Schedule | None:
    """Parse `5000` messages a second, or `2x` the recorded speed.

    Returns None where neither is given: publish as fast as the gateway accepts.

    Raises:
        UsageInvalid: another text, a speed without a time field, a field without a speed.
    """
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([xX]?)", rate or "", re.ASCII)
    if rate is not None and (found is None or float(found[1]) <= 0):
        raise UsageInvalid(f"--rate takes 5000 (messages a second) or 2x, not {rate!r}")
    if found is not None and found[2]:
        if time_field is None:
            raise UsageInvalid(f"--rate {rate} needs --time-field, such as --time-field /ts")
        return recorded(_path(time_field), float(found[1]))
    if time_field is not None:
        raise UsageInvalid("--time-field needs a speed, such as --rate 2x")
    return None if found is None else steady(float(found[1]))


def steady(per_second: float) -> Schedule:
    """Return a schedule of so many messages a second."""
    sent = 0

    def due_s(line: Line) -> float:
        nonlocal sent
        sent += 1
        return (sent - 1) / per_second

    return due_s


def recorded(path: FieldPath, speed: float) -> Schedule:
    """Return the recorded schedule, `speed` times as fast.

    Numbers are milliseconds, texts are ISO 8601 times. A time that goes back counts as the latest
    before it.
    """
    field = getter(path.steps)
    first_s: float | None = None
    latest_s = 0.0

    def due_s(line: Line) -> float:
        nonlocal first_s, latest_s
        at_s = _seconds(field, path, line)
        first_s = at_s if first_s is None else first_s
        latest_s = max(latest_s, (at_s - first_s) / speed)
        return latest_s

    return due_s


def batches(lines: Lines, schedule: Schedule | None = None) -> Iterator[list[Line]]:
    """Yield the lines of each request when it is due."""
    held: list[Line] = []
    held_bytes, started_at = 0, time.monotonic()
    for line in lines:
        due_at = started_at
        if line is not None and schedule is not None:
            due_at += schedule(line) // TICK_S * TICK_S  # rounded down, so no message is late
        added_bytes = len(line.text) if line is not None else 0
        full = len(held) >= LINES_PER_REQUEST or held_bytes + added_bytes > BODY_BYTES_MAX
        if held and (full or line is None or time.monotonic() < due_at):
            yield held
            held, held_bytes = [], 0
        wait_s = due_at - time.monotonic()  # publishing took a part of it
        if wait_s > 0:
            time.sleep(wait_s)
        if line is not None:
            held.append(line)
            held_bytes += len(line.text) + 1  # with its line break
    if held:
        yield held


def _path(text: str) -> FieldPath:
    try:
        return FieldPath.parse(text)
    except PathInvalid as error:
        raise UsageInvalid(f"--time-field: {error.detail}") from None


def _seconds(field: Callable[[bytes], bytes | None], path: FieldPath, line: Line) -> float:
    try:
        found = field(line.text)
        moment = None if found is None else msgspec.json.decode(found, type=float | str)
        if isinstance(moment, str):
            return parse_iso_ns(moment) / SECOND_NS
    except (ValueError, msgspec.MsgspecError):
        moment = None
    if moment is None:
        raise UsageInvalid(f"line {line.number} has no time in {path} (milliseconds or ISO 8601)")
    return moment / 1000
