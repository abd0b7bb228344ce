"""The gateway's public HTTP API, as far as a stream needs it, with patience for outages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Self
from urllib.parse import quote

import httpx2
import msgspec

from pipeline.errors import (
    GatewayRefused,
    GatewayUnreachable,
    PipelineError,
    RunFenced,
    SourceLost,
    UsageInvalid,
)
from pipeline.patience import IN_SILENCE, PATIENCE_S, Answer, Trouble, Waiting, patiently

NDJSON = "application/x-ndjson"
DEFAULT_GATEWAY = "http://127.0.0.1:8080"
ANSWER_SECONDS_MAX = 60.0
CONNECT_SECONDS_MAX = 5.0
PIECE_BYTES = 4 * 1024 * 1024
_ADDRESS = re.compile(r"https?://[^\s/]\S*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Journal:
    """What a topic's journal holds.

    `first` and `last` are bookmarks, None while it holds nothing; `epoch` is the topic's life.
    """

    epoch: str | None
    first: str | None
    last: str | None


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """Some topics as `GET /v1/topics` tells them, the address of the next page, the entity tag."""

    topics: list[dict[str, Any]]
    following: str | None
    etag: str


class Gateway:
    """One gateway address and its connections, which end with the `with` block.

    Connection errors, 429 and 5xx are tried again with back-off for `patience_s` seconds:
    everything asked here may be asked twice, staging and commits included. `waiting` is told.

    Raises:
        UsageInvalid: no address of a gateway: nobody would ever answer there.
    """

    def __init__(
        self, address: str, patience_s: float = PATIENCE_S, waiting: Waiting = IN_SILENCE
    ) -> None:
        self.address = address.rstrip("/")
        self._patience_s = patience_s
        self._waiting = waiting
        # It is not shown: it may hold a password.
        wrong = UsageInvalid(f"the address of a gateway is such as {DEFAULT_GATEWAY}")
        if not _ADDRESS.fullmatch(self.address):
            raise wrong
        limits = httpx2.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
        secure = self.address.startswith("https:")
        # Loading certificates for nothing costs 20 ms a client, and every task makes one.
        try:
            self._http = httpx2.Client(
                base_url=self.address, timeout=limits, trust_env=False, verify=secure
            )
        except httpx2.InvalidURL:
            raise wrong from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def topic(self, topic: str) -> dict[str, Any] | None:
        """Definition and live figures of a topic; None if there is no such topic."""
        answer = self._ask("GET", _topic_path(topic), absent_allowed=True)
        found = _json_object(answer)
        if answer.status_code != 404:
            return found
        if found.get("code") != "topic-unknown":
            raise _not_a_gateway(answer)
        return None

    def create_topic(self, topic: str, definition: dict[str, Any]) -> None:
        """Create a topic from the fields of `PUT /v1/topics/{topic}`."""
        self._ask("PUT", _topic_path(topic), json=definition)

    def journal(self, topic: str) -> Journal:
        """The ends of a topic's journal.

        Raises:
            GatewayRefused: there is no such topic.
        """
        found = self.topic(topic)
        if found is None:
            raise GatewayRefused(
                f"{self.address} has no topic {topic} (topic-unknown): create it, or publish to "
                "it, before a stream reads it"
            )
        ends = found.get("journal") or {}
        return Journal(found.get("epoch"), ends.get("first"), ends.get("last"))

    def messages(self, topic: str, after: str, messages_max: int) -> bytes:
        """NDJSON envelopes of what follows bookmark `after`, at most `messages_max` lines.

        Raises:
            SourceLost: the journal no longer reaches back to `after`.
        """
        path = f"{_topic_path(topic)}/messages"
        answer = self._ask("GET", path, params={"from": after, "limit": messages_max})
        return answer.content

    def records(self, topic: str) -> Iterator[bytes]:
        """NDJSON envelopes of the records that a topic has, in the order of their last change.

        In pieces of whole lines: all of it is on the disk before the first, and never in memory.
        """
        path = f"{_topic_path(topic)}/sow"
        with TemporaryFile() as file:
            self._patiently(lambda: self._fetch(path, {"format": "envelope"}, file))
            file.seek(0)
            while piece := file.read(PIECE_BYTES):
                yield piece + file.readline()

    def topics(self, address: str, known: str) -> TopicsPage | None:
        """A page of the list of topics; None if it is still the one of the entity tag `known`."""
        headers = {"If-None-Match": known} if known else {}
        answer = self._ask("GET", address, headers=headers)
        if answer.status_code == 304:
            return None
        page = _json_object(answer)
        return TopicsPage(page["topics"], page["next"], answer.headers.get("ETag", ""))

    def stage(
        self, topic: str, body: bytes, producer: str, stage: str, *, enveloped: bool = False
    ) -> None:
        """Keep NDJSON aside under a name that a commit may give; what it held is forgotten.

        `enveloped`: each line is `{"value": …}`, or `{"key": […], "reason": "deleted"}`, which
        removes the record of that key.
        """
        headers = {
            "Content-Type": NDJSON,
            "Tidegate-Producer": producer,
            "Tidegate-Stage": stage,
        }
        form = {"format": "envelope"} if enveloped else None
        path = f"{_topic_path(topic)}/messages"
        self._ask("POST", path, content=body, headers=headers, params=form)

    def publish(
        self, topic: str, body: bytes, producer: str, sequence: int, media_type: str = NDJSON
    ) -> bool:
        """Publish under a number; False if that number had been published.

        `body`: NDJSON envelopes, or one message as it is where `media_type` says so.
        """
        headers = {
            "Content-Type": media_type,
            "Tidegate-Producer": producer,
            "Tidegate-Sequence": str(sequence),
        }
        path = f"{_topic_path(topic)}/messages"
        params = {"format": "envelope"} if media_type == NDJSON else None
        answer = self._ask("POST", path, content=body, headers=headers, params=params)
        return not _json_object(answer).get("duplicate", False)

    def commit(
        self, topic: str, producer: str, run: int, sequence: int, stages: Sequence[str]
    ) -> bool:
        """Publish stages in one step; False if that number of the producer had been published.

        Raises:
            GatewayRefused: a newer run has committed, or a stage is not there.
        """
        document = {"producer": producer, "run": run, "sequence": sequence, "stages": list(stages)}
        answer = _json_object(self._ask("POST", f"{_topic_path(topic)}/commits", json=document))
        return not answer.get("duplicate", False)

    def report(self, topic: str, producer: str, sequence: int, message: bytes) -> None:
        """Publish one JSON message as a numbered producer."""
        headers = {
            "Content-Type": "application/json",
            "Tidegate-Producer": producer,
            "Tidegate-Sequence": str(sequence),
        }
        self._ask("POST", f"{_topic_path(topic)}/messages", content=message, headers=headers)

    def knows(self, topic: str, producer: str, run: int, sequence: int) -> bool:
        """Whether that number of the producer, or one above it, was published.

        Raises:
            GatewayRefused: a newer run has committed.
        """
        try:  # a commit of nothing: only a number that is known is answered before the stages
            return not self.commit(topic, producer, run, sequence, [f"{producer}.nothing"])
        except GatewayRefused as error:
            if "[precondition-failed]" in str(error):
                return False
            raise

    def _ask(
        self, method: str, path: str, *, absent_allowed: bool = False, **request: Any
    ) -> httpx2.Response:
        return self._patiently(
            lambda: self._accepted(self._http.request(method, path, **request), absent_allowed)
        )

    def _fetch(self, path: str, params: dict[str, str], file: BinaryIO) -> None:
        """Have a file hold an answer, and nothing of one that broke off before."""
        file.seek(0)
        file.truncate()
        with self._http.stream("GET", path, params=params) as answer:
            if not answer.is_success:
                answer.read()
            self._accepted(answer)
            file.writelines(answer.iter_bytes())

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        def once() -> Answer:
            try:
                return ask()
            except httpx2.TransportError as error:
                said = str(error) or type(error).__name__
                raise Trouble(
                    GatewayUnreachable(f"cannot reach the gateway at {self.address}: {said}")
                ) from error

        return patiently(once, self._patience_s, self._waiting)

    def _accepted(self, answer: httpx2.Response, absent_allowed: bool = False) -> httpx2.Response:
        if answer.status_code == 429 or answer.status_code >= 500:
            raise Trouble(self._trouble(answer))
        is_same = answer.status_code == 304
        if answer.is_success or is_same or (absent_allowed and answer.status_code == 404):
            return answer
        said, line = _problem_text(answer), _problem(answer).get("line")
        if answer.status_code == 410:
            raise SourceLost(
                f"messages that the stream had still to read are gone from the journal: {said}"
            )
        refused = RunFenced if "[producer-fenced]" in said else GatewayRefused
        refusal = refused(f"the gateway at {self.address} said no: {said}")
        refusal.line = line if isinstance(line, int) else None
        raise refusal

    def _trouble(self, answer: httpx2.Response) -> PipelineError:
        said = _problem_text(answer)
        if answer.status_code == 429:
            return GatewayRefused(f"the gateway at {self.address} still says no: {said}")
        return GatewayUnreachable(f"the gateway at {self.address} is out of order: {said}")


def _topic_path(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"


def _json_object(answer: httpx2.Response) -> dict[str, Any]:
    try:
        return msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _not_a_gateway(answer) from error


def _not_a_gateway(answer: httpx2.Response) -> GatewayRefused:
    return GatewayRefused(f"{answer.request.url} did not answer as a Tidegate gateway does")


def _problem(answer: httpx2.Response) -> dict[str, Any]:
    """The members of an RFC 9457 problem; none where the answer is something else."""
    try:
        return msgspec.json.decode(answer.content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _problem_text(answer: httpx2.Response) -> str:
    problem = _problem(answer)
    if not problem:
        return f"HTTP {answer.status_code}"
    title, code, detail = (problem.get(name) for name in ("title", "code", "detail"))
    line = f" (line {problem['line']})" if "line" in problem else ""
    text = f"{title or f'HTTP {answer.status_code}'} [{code or answer.status_code}]: {detail or ''}"
    return " ".join(text.split()) + line
