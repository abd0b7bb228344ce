"""Envelopes that a publisher sends, read strictly: rules publish-8 and publish-9."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tidegate.app.topics.bodies import Envelope, read_envelope
from tidegate.conflation.frame import RemovalReason
from tidegate.keys.errors import KeysError

pytestmark = rule("publish-8", "publish-9")


MESSAGES = [
    (b'{"value":{"k":1}}', Envelope(b'{"k":1}', None, None)),
    (b'{"value":null}', Envelope(b"null", None, None)),
    (b'{"value": [1,\r2] ,"key":["a", 7.0]}', Envelope(b"[1, 2]", '["a",7]', None)),
    (
        b'{"topic":"t","op":"publish","key":[1],"bookmark":"e-1","timestamp":12,"value":"x"}',
        Envelope(b'"x"', "[1]", None),
    ),
    (
        b'{"topic":"t","op":"snapshot","key":null,"bookmark":"e-1","value":1}',
        Envelope(b"1", None, None),
    ),
    (b'{"value":' + b"[" * 64 + b"]" * 64 + b"}", Envelope(b"[" * 64 + b"]" * 64, None, None)),
]
REMOVALS = [
    (b'{"key":["a"],"reason":"deleted"}', Envelope(b"", '["a"]', RemovalReason.DELETED)),
    (b'{"key":[1.0,true],"reason":"match"}', Envelope(b"", "[1,true]", RemovalReason.MATCH)),
    (
        b'{"topic":"t","op":"oof","key":[1],"bookmark":"e-2","reason":"expired","value":{"k":1}}',
        Envelope(b"", "[1]", RemovalReason.EXPIRED),
    ),
]
REFUSED = [
    (b'{"key":[1],"reason":"match","value":"\xff"}', "message-invalid"),
    (b'{"key":[1],"reason":"match","value":' + b"[" * 65 + b"]" * 65 + b"}", "message-invalid"),
    (b"{}", "message-invalid"),
    (b"7", "message-invalid"),
    (b'{"value":1', "message-invalid"),
    (b'{"value":1}{"value":2}', "message-invalid"),
    (b'{"value":NaN}', "message-invalid"),
    (b'{"value":"\\ud800"}', "message-invalid"),
    (b'{"value":"\xff"}', "message-invalid"),
    (b'{"value":"\xff","value":1}', "message-invalid"),
    (b'{"value":' + b"[" * 65 + b"]" * 65 + b"}", "message-invalid"),
    (b'{"value":1,"reasons":"deleted"}', "message-invalid"),
    (b'{"value":1,"op":"delta"}', "message-invalid"),
    (b'{"value":1,"op":"oof"}', "message-invalid"),
    (b'{"key":[1],"op":"oof"}', "message-invalid"),
    (b'{"key":[1],"op":"publish","reason":"deleted"}', "message-invalid"),
    (b'{"key":[1],"reason":"entitlement"}', "message-invalid"),
    (b'{"key":[1],"reason":7}', "message-invalid"),
    (b'{"value":1,"topic":7}', "message-invalid"),
    (b'{"key":["\xff"],"reason":"deleted"}', "message-invalid"),
    (b'{"reason":"deleted"}', "key-invalid"),
    (b'{"key":null,"reason":"deleted"}', "key-invalid"),
    (b'{"key":"IBM","reason":"deleted"}', "key-invalid"),
    (b'{"key":[[1]],"reason":"deleted"}', "key-invalid"),
    (b'{"key":{"k":1},"value":1}', "key-invalid"),
]


@pytest.mark.parametrize(("text", "envelope"), MESSAGES + REMOVALS)
def test_an_envelope_is_a_message_or_with_a_reason_a_removal(
    text: bytes, envelope: Envelope
) -> None:
    assert read_envelope(text) == envelope


@pytest.mark.parametrize(("text", "code"), REFUSED, ids=lambda given: str(given)[:50])
def test_everything_else_is_refused(text: bytes, code: str) -> None:
    with pytest.raises(KeysError) as refused:
        read_envelope(text)
    assert refused.value.code == code
    assert "reasons" not in refused.value.detail
