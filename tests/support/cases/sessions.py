"""Bad requests about sessions; `known` is a session with one subscription, `s1` to `keyed`."""

from __future__ import annotations

from typing import Any

from tests.support.cases.case import JSON, NDJSON, Bad, bad

KNOWN = "/v1/sessions/known"
SUB = KNOWN + "/subscriptions/s1"


def sent(name: str, method: str, target: str, body: str, code: str, **more: Any) -> Bad:
    status = more.pop("status", 400)
    return bad(name, method, target, status, code, body=body, media_type=JSON, **more)


def opened(name: str, body: str, code: str = "options-invalid", **more: Any) -> Bad:
    return sent(f"open: {name}", "POST", "/v1/sessions", body, code, **more)


def asked(name: str, body: str, code: str = "options-invalid", **more: Any) -> Bad:
    return sent(f"subscribe: {name}", "POST", KNOWN + "/subscriptions", body, code, **more)


def changed(name: str, body: str, code: str = "options-invalid", **more: Any) -> Bad:
    return sent(f"change: {name}", "PATCH", SUB, body, code, **more)


def tuned(name: str, body: str, **more: Any) -> Bad:
    return sent(f"tune: {name}", "PATCH", KNOWN, body, "options-invalid", **more)


def unknown(method: str, target: str, code: str, **more: Any) -> Bad:
    return bad(f"{method} {target}", method, target, 404, code, **more)


OPENED = [
    opened("no JSON", "zzq", position=0),
    opened("not a number", '{"limits":{"messages":NaN}}', position=22),
    opened("a number that is none here", '{"limits":{"messages":1e400}}', position=22),
    opened("a lone surrogate", '{"zzq":"\\ud800"}'),
    opened("an array", "[]"),
    opened("an unknown field", '{"zzq":1}'),
    opened("limits that are none", '{"limits":"zzq"}', pointer="/limits"),
    opened("an unknown limit", '{"limits":{"zzq":1}}', pointer="/limits/zzq"),
    opened("more than the gateway has", '{"limits":{"messages":10001}}',
           pointer="/limits/messages"),
    opened("more bytes than it has", '{"limits":{"bytes":"1GiB"}}', pointer="/limits/bytes"),
    opened("a size that is none", '{"limits":{"bytes":"zzq"}}', pointer="/limits/bytes"),
    opened("a fraction", '{"limits":{"messages":1.5}}', pointer="/limits/messages"),
    opened("a flag that is none", '{"conflated":"zzq"}', pointer="/conflated"),
    opened("thresholds the wrong way", '{"limits":{"upper":5,"lower":6}}',
           pointer="/limits/lower"),
    opened("subscriptions that are none", '{"subscriptions":{"zzq":1}}',
           pointer="/subscriptions"),
    opened("one of several without a topic", '{"subscriptions":[{"topic":"keyed"},{}]}',
           "topic-invalid", pointer="/subscriptions/1/topic"),
    opened("one of several to no topic",
           '{"subscriptions":[{"topic":"keyed"},{"topic":"zzq"}]}', "topic-unknown", status=404,
           pointer="/subscriptions/1"),
    opened("one of several with bad options",
           '{"subscriptions":[{"topic":"keyed","options":"zzq"}]}', pointer="/subscriptions/0",
           position=0),
    opened("too large", '{"subscriptions":"' + "z" * 66_000 + '"}', "message-too-large",
           status=413),
    bad("open: of another type", "POST", "/v1/sessions", 415, "unsupported-media-type",
        body="{}", media_type=NDJSON),
    bad("open: with a query", "POST", "/v1/sessions?zzq=1", 400, "options-invalid"),
]  # fmt: skip

ASKED = [
    asked("no topic", "{}", "topic-invalid", pointer="/topic"),
    asked("a topic that is no text", '{"topic":["zzq"]}', "topic-invalid", pointer="/topic"),
    asked("a topic that is none", '{"topic":"z zq"}', "topic-invalid"),
    asked("a pattern that is none", '{"topic":"px.z*"}', "topic-invalid"),
    asked("an unknown topic", '{"topic":"zzq"}', "topic-unknown", status=404),
    asked("an unknown option", '{"topic":"keyed","options":"conflation=1s,zzq"}', position=14),
    asked("options that are no text", '{"topic":"keyed","options":5}', pointer="/options"),
    asked("long options", '{"topic":"keyed","options":"' + "z" * 4_097 + '"}',
          pointer="/options"),
    asked("a bad filter", '{"topic":"keyed","filter":"/a = \\"zzq"}', "filter-invalid",
          position=5),
    asked("a bad order", '{"topic":"keyed","order_by":"zzq"}'),
    asked("a bad command", '{"topic":"keyed","command":"zzq"}'),
    asked("a bad format", '{"topic":"keyed","format":"zzq"}'),
    asked("an unknown field", '{"topic":"keyed","zzq":1}'),
    asked("a field of a GET", '{"topic":"keyed","last_event_id":"zzq-1"}'),
    asked("an interval on a plain topic", '{"topic":"plain","options":"conflation=1s"}',
          position=0),
    asked("a window of a pattern", '{"topic":"key*","options":"top_n=1"}', "topic-invalid"),
    asked("a bookmark that must be found",
          '{"topic":"keyed","options":"bookmark=zzq-1,bookmark_not_found=fail"}',
          "bookmark-expired", status=410),
]  # fmt: skip

CHANGED = [
    changed("nothing", "{}"),
    changed("no JSON", "", position=0),
    changed("an array", "[1]"),
    changed("an unknown field", '{"zzq":1}'),
    changed("its topic", '{"topic":"plain"}'),
    changed("a bad interval", '{"conflation":"zzq"}'),
    changed("two options for one", '{"conflation":"1s,oof"}', pointer="/conflation"),
    changed("the interval twice", '{"conflation":"1s","options":"oof"}', pointer="/conflation"),
    changed("a conflict", '{"options":"conflation=none,pace=key"}', position=16),
    changed("a beginning", '{"options":"bookmark=epoch"}', position=0),
    changed("a bad filter", '{"filter":"/a ="}', "filter-invalid", position=4),
    changed("a good interval and a bad filter", '{"conflation":"2s","filter":"/a ="}',
            "filter-invalid"),
    changed("a pause that is none", '{"paused":"zzq"}', pointer="/paused"),
    changed("to pause and to go on", '{"paused":true,"options":"resume"}', pointer="/paused"),
    changed("null", '{"conflation":null}', pointer="/conflation"),
]  # fmt: skip

TUNED = [
    tuned("nothing", "{}"),
    tuned("an unknown field", '{"zzq":1}'),
    tuned("more than the gateway has", '{"limits":{"bytes":"9MiB"}}', pointer="/limits/bytes"),
    tuned("null", "null"),
]

UNKNOWN = [
    unknown("GET", "/v1/sessions/zzq", "session-unknown"),
    unknown("GET", "/v1/sessions/z.zq", "session-unknown"),
    unknown("GET", "/v1/sessions/" + "z" * 65, "session-unknown"),
    unknown("DELETE", "/v1/sessions/zzq", "session-unknown"),
    unknown("GET", "/v1/sessions/zzq/events", "session-unknown"),
    unknown("GET", "/v1/sessions/zzq/subscriptions", "session-unknown"),
    unknown("DELETE", "/v1/sessions/zzq/subscriptions/s1", "session-unknown"),
    unknown("GET", KNOWN + "/subscriptions/zzq", "subscription-unknown"),
    unknown("DELETE", KNOWN + "/subscriptions/s1%20", "not-found"),
    unknown("GET", KNOWN + "/zzq", "not-found"),
    unknown("GET", KNOWN + "/events?last_event_id=zzq-1", "session-unknown"),
    unknown("GET", KNOWN + "/events", "session-unknown", headers=("Last-Event-ID: known-zzq",)),
    bad("an id that is none", "GET", KNOWN + "/events", 400, "bookmark-invalid",
        headers=("Last-Event-ID: $zzq",)),
    bad("events by what", "GET", KNOWN + "/events?zzq=1", 400, "options-invalid"),
    bad("events as what", "GET", KNOWN + "/events", 406, "not-acceptable",
        headers=("Accept: text/zzq",)),
    bad("a list of too many", "GET", "/v1/sessions?limit=1001", 400, "options-invalid"),
    bad("a list behind what", "GET", "/v1/sessions?after=z!zq", 400, "options-invalid"),
    bad("another method", "PUT", KNOWN, 405, "method-not-allowed"),
]  # fmt: skip

SESSIONS = [*OPENED, *ASKED, *CHANGED, *TUNED, *UNKNOWN]
