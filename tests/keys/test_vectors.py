"""The languages of `keys/` on the cases that gateway, clients and pipeline share."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from tests.support.vectors import Vector, each_vector
from tidegate.keys.errors import (
    BookmarkInvalid,
    JsonInvalid,
    KeyInvalid,
    KeysError,
    PathInvalid,
    TextInvalid,
)
from tidegate.keys.jsontext import are_equal, canonical_number, canonical_value, check_json
from tidegate.keys.order import Order
from tidegate.keys.patch import apply, diff, is_empty
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import KeySpec, canonical_key, canonical_scalar, group_key, record_key
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import duration_text, parse_duration, parse_interval, whole_ms

BEFORE = 10
"""Where a text stands in the one around it."""


@rule("key-4")
@each_vector("paths", "paths")
def test_a_path_names_a_place_and_has_one_spelling(vector: Vector) -> None:
    path = FieldPath.parse(vector["text"])
    assert path.steps == tuple(vector["steps"])
    assert str(path) == vector["spelling"]
    assert FieldPath.parse(vector["spelling"]) == path


@rule("key-4")
@each_vector("paths", "refused")
def test_what_is_no_path_to_one_place_is_refused_with_its_place(vector: Vector) -> None:
    with pytest.raises(PathInvalid) as refused:
        FieldPath.parse(vector["text"], BEFORE)
    assert (refused.value.code, refused.value.position) == (
        "key-invalid",
        BEFORE + vector["position"],
    )


def key_of(vector: Vector) -> str:
    payload = vector["record"].encode()
    check_json(payload)
    return record_key(KeySpec.of(vector["key"]))(payload)


@rule("key-1", "key-2")
@each_vector("keys", "records")
def test_a_record_has_its_key(vector: Vector) -> None:
    assert key_of(vector) == vector["text"]
    assert canonical_key(vector["text"].encode()) == vector["text"]


@rule("key-2", "key-3")
@each_vector("keys", "refused")
def test_a_record_without_a_key_is_refused(vector: Vector) -> None:
    with pytest.raises(KeysError) as refused:
        key_of(vector)
    assert refused.value.code == vector["code"]


@rule("key-1")
@each_vector("keys", "written")
def test_a_key_can_be_written_otherwise(vector: Vector) -> None:
    assert canonical_key(vector["text"].encode()) == vector["key"]


@each_vector("keys", "written_refused")
def test_what_is_no_key_is_refused(vector: Vector) -> None:
    with pytest.raises(KeyInvalid):
        canonical_key(vector["text"].encode())


@rule("interval-9")
@each_vector("keys", "groups")
def test_any_value_is_a_field_of_a_groups_key(vector: Vector) -> None:
    assert group_key(vector["text"].encode()) == vector["key"]
    assert group_key(vector["key"].encode()) == vector["key"]


@rule("view-7", "view-1")
@each_vector("order", "orders")
def test_rows_are_in_order(vector: Vector) -> None:
    rows = vector["rows"]
    token_of = Order.parse(vector["order"]).sort_token if vector["order"] else lambda _: ()
    shuffled = [*rows[1::2], *rows[::2]]
    found = sorted(shuffled, key=lambda row: (token_of(row[1].encode()), row[0]))
    assert found == rows


@rule("view-7")
@each_vector("order", "refused")
def test_what_is_no_order_is_refused_with_its_place(vector: Vector) -> None:
    with pytest.raises(PathInvalid) as refused:
        Order.parse(vector["order"], BEFORE)
    assert refused.value.position == BEFORE + vector["position"]


@rule("delta-5", "key-2")
@each_vector("numbers", "numbers")
def test_a_number_has_one_spelling_and_may_be_a_key(vector: Vector) -> None:
    text = vector["text"].encode()
    check_json(text)
    assert canonical_number(text) == vector["spelling"]
    assert are_equal(text, vector["spelling"].encode())
    if vector["key"] is None:
        with pytest.raises(KeyInvalid):
            canonical_scalar(text)
    else:
        assert f"[{canonical_scalar(text)}]" == vector["key"]


@rule("key-3")
@each_vector("numbers", "refused")
def test_a_number_beyond_a_double_is_refused_where_it_stands(vector: Vector) -> None:
    with pytest.raises(JsonInvalid, match="beyond a double") as refused:
        check_json(vector["text"].encode())
    assert refused.value.position == vector["position"]


@rule("key-3")
@each_vector("numbers", "not_json")
def test_what_is_no_number_of_json_is_refused(vector: Vector) -> None:
    with pytest.raises(JsonInvalid):
        check_json(vector["text"].encode())


@rule("delta-5")
@each_vector("numbers", "comparisons")
def test_values_are_compared_by_what_they_say(vector: Vector) -> None:
    one, other = vector["one"].encode(), vector["other"].encode()
    assert are_equal(one, other) is are_equal(other, one) is vector["are_equal"]
    assert (canonical_value(one) == canonical_value(other)) is vector["are_equal"]


@each_vector("durations", "durations")
def test_a_duration_is_read_and_written(vector: Vector) -> None:
    assert parse_duration(vector["text"]) == vector["ns"]
    assert duration_text(vector["ns"]) == vector["spelling"]
    assert parse_duration(vector["spelling"]) == vector["ns"]


@each_vector("durations", "refused")
def test_what_is_no_duration_is_refused_with_its_place(vector: Vector) -> None:
    with pytest.raises(TextInvalid) as refused:
        parse_duration(vector["text"], BEFORE)
    assert refused.value.position == BEFORE + vector["position"]


@each_vector("durations", "intervals")
def test_an_interval_is_from_a_millisecond_to_a_day(vector: Vector) -> None:
    interval_ns = parse_interval(vector["text"])
    assert (duration_text(interval_ns), whole_ms(interval_ns)) == (vector["granted"], vector["ms"])


@each_vector("durations", "intervals_refused")
def test_a_duration_out_of_these_bounds_is_no_interval(vector: Vector) -> None:
    with pytest.raises(TextInvalid, match="1ms to 1d") as refused:
        parse_interval(vector["text"], BEFORE)
    assert refused.value.position == BEFORE + vector["position"]


@rule("delta-5")
@each_vector("deltas", "patches")
def test_a_patch_is_applied(vector: Vector) -> None:
    record, patch = vector["record"].encode(), vector["patch"].encode()
    assert apply(record, patch) == vector["result"].encode()


@rule("delta-2", "delta-5")
@each_vector("deltas", "changes")
def test_a_patch_says_what_changed(vector: Vector) -> None:
    record, following = vector["record"].encode(), vector["next"].encode()
    delta = diff(record, following)
    assert delta == (None if vector["delta"] is None else vector["delta"].encode())
    if delta is not None:
        assert are_equal(apply(record, delta), following)
        assert is_empty(delta) is are_equal(record, following)


@each_vector("resume", "bookmarks")
def test_a_bookmark_is_an_epoch_and_a_place(vector: Vector) -> None:
    bookmark = Bookmark(vector["epoch"], vector["offset"])
    assert Bookmark.parse(vector["text"]) == bookmark
    assert str(bookmark) == vector["text"]


@each_vector("resume", "bookmarks_refused")
def test_what_is_no_bookmark_is_refused_with_its_place(vector: Vector) -> None:
    with pytest.raises(BookmarkInvalid) as refused:
        Bookmark.parse(vector["text"], BEFORE)
    assert (refused.value.code, refused.value.position) == (
        "bookmark-invalid",
        BEFORE + vector["position"],
    )
