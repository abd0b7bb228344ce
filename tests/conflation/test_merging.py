"""Registered functions are known by their names."""

from __future__ import annotations

from conflation.merging import Matcher, Merger, Verdict


def test_two_of_one_name_are_one_so_that_their_subscribers_share_a_lane() -> None:
    assert Merger("m:f", lambda current, new: new) == Merger("m:f", lambda current, new: current)
    assert hash(Matcher("m:f", lambda held, new: True)) == hash(Matcher("m:f", lambda a, b: False))
    assert Merger("m:f", lambda current, new: new) != Merger("m:g", lambda current, new: new)
    assert (str(Merger("m:f", max)), str(Matcher("m:g", max))) == ("m:f", "m:g")


def test_there_are_three_answers_beside_a_merged_value() -> None:
    assert [verdict.value for verdict in Verdict] == ["keep current", "keep new", "no conflation"]
