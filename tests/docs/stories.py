"""The stories of docs/semantics: short scripts that an engine plays under a virtual clock.

The notation is defined in docs/semantics/README.md. A story that plays without an
AssertionError is true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from tests.support.manual_driver import ManualDriver, payload
from tidegate.conflation.definition import Definition, History, Kind, Priority, QueuePolicy
from tidegate.conflation.frame import Frame, Row, receipt_of
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.outputs import (
    Goodbye,
    GroupBegin,
    GroupEnd,
    Output,
    Resumed,
    Rows,
    Subscribed,
    Unsubscribed,
)
from tidegate.conflation.subscription import Subscription
from tidegate.keys.reducers import Reduce
from tidegate.keys.spec import KeySpec, record_key
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND, parse_duration

TOPIC = "t"
EPOCH = "e1"
COMMANDS = {
    *("subscribe", "sow", "sow_and_subscribe", "delta_subscribe", "sow_and_delta_subscribe"),
}
_TOKEN = re.compile(r"[a-z][A-Z]?\d+")
_SHORT = re.compile(r'\{"k":"([a-z])",(?:"g":"([A-Z])",)?"v":(\d+)\}')
_STATEMENT = re.compile(r"(?:([A-Z]) )?(\w+) ?(.*)", re.DOTALL)
_CLAUSE = re.compile(r" ?\b(filter|order|from) (\(.*?\)(?= |$)|\S+)")


class Story:
    """One story: an engine, its clock, and a session for each capital letter."""

    def __init__(self) -> None:
        self.driver = ManualDriver()
        self._names: dict[str, str] = {}
        self._sessions: set[str] = set()
        self._verbs: dict[str, Callable[[str, str], None]] = {
            "topic": self._topic,
            "publish": self._publish,
            "delete": self._delete,
            "wait": lambda _, text: self.driver.wait(text),
            "sleep": lambda _, text: self.driver.sleep(text),
            "session": self._session,
            "change": self._change,
            "unsubscribe": self._unsubscribe,
            "gets": self._gets,
            "takes": self._takes,
        }

    def play(self, text: str) -> None:
        """Play every statement of a story; they end with a semicolon or the line.

        Raises:
            AssertionError: a subscriber got something else.
        """
        statements = [part.strip() for part in re.split(r"[;\n]", text) if part.strip()]
        if not statements[0].startswith("topic"):
            self._topic("", "")
        for statement in statements:
            self._play(statement)

    def _play(self, statement: str) -> None:
        found = _STATEMENT.fullmatch(statement)
        assert found is not None, f"not a statement: {statement}"
        who, verb, rest = found[1] or "A", found[2], found[3].strip()
        if verb in COMMANDS:
            self._subscribe(who, verb, rest)
        else:
            assert verb in self._verbs, f"not a verb: {verb}"
            self._verbs[verb](who, rest)

    def _topic(self, _: str, text: str) -> None:
        fields = dict(word.split("=", 1) for word in text.split())
        key = fields.pop("key", "/k")
        definition = Definition(
            History(int(fields.pop("history", "1000"))),
            KeySpec() if key == "none" else KeySpec.parse(f"[{key}]"),
            QueuePolicy(fields.pop("conflation", "conflate")),
            Kind(fields.pop("type", "json")),
            retains=fields.pop("retain", str(key != "none").lower()) == "true",
            merge=Reduce.parse(merge) if (merge := fields.pop("merge", "")) else None,
            match=KeySpec.parse(f"[{match}]") if (match := fields.pop("match", "")) else None,
            replaces=fields.pop("placement", "append") == "replace",
            expiration_ns=parse_duration(age) if (age := fields.pop("expiration", "")) else None,
            priority=Priority(fields.pop("priority", "default")),
            tidies=fields.pop("tidy_on_unsubscribe", "false") == "true",
        )
        assert not fields, f"unknown fields: {fields}"
        self.driver.engine.define_topic(TOPIC, definition, EPOCH)

    def _publish(self, _: str, text: str) -> None:
        words = text.split()
        never = words[0] == "never"
        self._frames([_body(word) for word in words[never:]], never=never)

    def _frames(self, bodies: list[bytes], *, never: bool) -> None:
        topic = self.driver.engine.topic(TOPIC)
        spec = topic.definition.key_spec
        key_of = record_key(spec) if spec else lambda _: "[]" if topic.definition.retains else ""
        frames = [
            Frame(offset, body, key_of(body), self.driver.now // MILLISECOND, never)
            for offset, body in enumerate(bodies, topic.head + 1)
        ]
        self.driver.engine.publish(TOPIC, frames, self.driver.now)

    def _delete(self, _: str, text: str) -> None:
        self.driver.remove(" ".join(f"{word}0" for word in text.split()), topic=TOPIC)

    def _session(self, who: str, text: str) -> None:
        fields = dict(word.split("=", 1) for word in text.split())
        self.driver.session(
            who,
            messages_max=int(fields.pop("messages", "1000")),
            conflated=fields.pop("conflated", "true") == "true",
        )
        self._sessions.add(who)
        assert not fields, f"unknown fields: {fields}"

    def _request(self, command: str | None, text: str) -> Subscription:
        clauses = {name: value.strip("()") for name, value in _CLAUSE.findall(f" {text}")}
        options = _CLAUSE.sub("", f" {text}").strip()
        resume = clauses.get("from")
        return decide(
            TOPIC,
            self.driver.engine.topic(TOPIC).definition,
            Options.parse(options),
            command=command,
            filter_text=clauses.get("filter", ""),
            order_text=clauses.get("order", ""),
            resume=None if resume is None else Bookmark.parse(resume),
            counted="receipt" in options,
        )

    def _subscribe(self, who: str, command: str, text: str) -> None:
        if who not in self._sessions:
            self._session(who, "")
        wanted = self._request(None if "bookmark=" in text else command, text)
        self._names[who] = who.lower()
        self.driver.engine.subscribe(who, self._names[who], wanted, self.driver.now)

    def _change(self, who: str, text: str) -> None:
        command, _, rest = text.partition(" ") if text.split(" ")[0] in COMMANDS else ("", "", text)
        wanted = self._request(command or "subscribe", rest)
        self.driver.engine.change(who, self._names[who], wanted, self.driver.now)

    def _unsubscribe(self, who: str, _: str) -> None:
        self.driver.engine.unsubscribe(who, self._names[who])

    def _gets(self, who: str, text: str) -> None:
        self.driver.flush()
        self._compare(text, self.driver.take(who))

    def _takes(self, who: str, text: str) -> None:
        """One piece of one row: what a socket with little room takes."""
        self._compare(text, self.driver.take_once(1, who))

    def _compare(self, expected: str, outputs: Iterable[Output]) -> None:
        wanted = "" if expected == "nothing" else expected
        words = [word for output in outputs for word in _words(output, wanted)]
        got = " ".join(words)
        assert got == wanted, f"expected {wanted!r}, got {got!r}"


def _body(word: str) -> bytes:
    return payload(word) if _TOKEN.fullmatch(word) else word.encode()


def _words(output: Output, wanted: str) -> Iterable[str]:
    """An output as a story writes it; counts, ids and gaps only where the story shows them."""
    match output:
        case Rows(batch=batch):
            yield from (_row(frame, wanted) for frame in batch.frames)
            if "@" in wanted and batch.low_water is not None:
                yield f"@{batch.low_water}"
        case GroupBegin():
            yield "("
        case GroupEnd(bookmark=bookmark):
            yield ")"
            if "@" in wanted:
                yield f"@{bookmark.rpartition('-')[2]}"
        case Resumed(mode=mode, gap_messages=gap):
            yield f"resumed:{mode}"
            if "missed:" in wanted:
                yield f"missed:{gap}"
        case Subscribed(topic=topic):
            yield f"subscribed:{topic}"
        case Unsubscribed(reason=reason):
            yield f"unsubscribed:{reason}"
        case Goodbye(reason=reason):
            yield f"goodbye:{reason}"


def _row(frame: Frame, wanted: str) -> str:
    patch = frame.patch if isinstance(frame, Row) else None
    body = frame.payload if patch is None else patch
    text = body.decode() or msgspec.json.decode(frame.key)[0]
    text = _SHORT.sub(r"\1\2\3", text)
    mark = "-" if frame.removed else "" if patch is None else "~"
    number = f"*{receipt_of(frame).messages}" if "*" in wanted else ""
    return f"{mark}{text}{number}"


def play(text: str) -> None:
    """Play a story of its own.

    Raises:
        AssertionError: a subscriber got something else.
    """
    Story().play(text)
