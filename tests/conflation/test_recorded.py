"""The recorded timeline: an interval by the messages' own times (rule 34)."""

from conflation.duration import SECOND
from conflation.frame import Frame
from conflation.recorded import conflate_recorded


def rows(text: str) -> list[tuple[str, Frame]]:
    """`A0 B3` is A at 0 ms and B at 300 ms."""
    return [
        (token[0], Frame(offset, token.encode(), token[0], int(token[1:]) * 100))
        for offset, token in enumerate(text.split(), start=1)
    ]


def conflated(text: str, pace: str) -> str:
    return " ".join(f.payload.decode() for f in conflate_recorded(rows(text), SECOND, pace))


def test_together_the_first_message_opens_the_interval_for_all() -> None:
    assert conflated("A0 B2 A9 A10 B11 A19 C20", "batch") == "B2 A9 B11 A19 C20"


def test_key_by_key_each_has_its_own() -> None:
    assert conflated("A0 B2 A9 A10 B11 A19 C20 B12", "key") == "A9 B11 A19 B12 C20"


def test_a_gap_opens_no_empty_interval() -> None:
    assert conflated("A0 A99", "batch") == conflated("A0 A99", "key") == "A0 A99"


def test_nothing_recorded_is_nothing() -> None:
    assert conflate_recorded([], SECOND, "batch") == conflate_recorded([], SECOND, "key") == []
