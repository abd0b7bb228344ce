"""The options language: what is taken, what is refused, and where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflation.errors import OptionsInvalid
from conflation.options import Options, options_text
from keys.spec import KeySpec
from tests.support.profiles import examples

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "interval_ns", "key", "pace"),
    [
        ("", None, None, None),
        ("  ", None, None, None),
        ("conflation=none", 0, None, None),
        ("conflation=1s", SECOND, None, None),
        ("conflation=1S,", SECOND, None, None),
        (" conflation = 1s , pace = key , ", SECOND, None, "key"),
        ("pace=batch,conflation=1d", 86_400 * SECOND, None, "batch"),
        ("conflation=1ms,conflation_key=[/a,/b/c]", SECOND // 1_000, "[/a,/b/c]", None),
        ("conflation=1s,conflation_key=[ /a , $.b ]", SECOND, "[/a,/b]", None),
        ("conflation=1s,conflation_key=[$['a,b'],$.c[0]]", SECOND, "[$['a,b'],$['c'][0]]", None),
    ],
)
def test_options_are_read(
    text: str, interval_ns: int | None, key: str | None, pace: str | None
) -> None:
    options = Options.parse(text)
    assert options.interval_ns == interval_ns
    assert options.key_spec == (None if key is None else KeySpec.parse(key))
    assert options.pace == pace


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (",", 0),
        (",conflation=1s", 0),
        ("conflation=1s,,", 14),
        ("conflation=1s,,pace=key", 14),
        ("Conflation=1s", 0),
        ("conflation", 10),
        ("conflation=", 11),
        ("conflation= ", 12),
        ("conflation=fast", 11),
        ("conflation=0ms", 11),
        ("conflation=999us", 11),
        ("conflation=25h", 11),
        ("conflation=1.5s", 11),
        ("conflation=-1s", 11),
        ("conflation=auto", 11),
        ("conflation=NONE", 11),
        ("conflation=1s=2s", 11),
        ("conflation=1s,conflation=2s", 14),
        ("conflation=1s;pace=key", 11),
        ("conflation=1s, speed=9", 15),
        ("conflation=1s, edge=leading", 15),
        ("oof", 0),
        ("conflation=1s,pace=", 19),
        ("conflation=1s,pace=slow", 19),
        ("conflation=1s,pace", 18),
        ("conflation=1s,conflation_key=/a", 29),
        ("conflation=1s,conflation_key=[]", 30),
        ("conflation=1s,conflation_key=[/a", 29),
        ("conflation=1s,conflation_key=[/a,]", 33),
        ("conflation=1s,conflation_key=[/a,b]", 33),
        ("conflation=1s,conflation_key=[/a,/a]", 33),
        ("conflation=1s,conflation_key=[/a,$.a]", 33),
        ("conflation=1s,conflation_key=[/a,  /b//c]", 37),
        ("conflation=1s,conflation_key=[$..a]", 30),
        ("=1s", 0),
        ("1s", 0),
        ("conflation\u00a0=1s", 0),
        ("conflation=\u0661s", 11),
    ],
)
def test_bad_options_are_refused_with_their_place(text: str, position: int) -> None:
    with pytest.raises(OptionsInvalid) as refused:
        Options.parse(text)
    assert (refused.value.code, refused.value.position) == ("options-invalid", position)


def test_options_have_a_length() -> None:
    assert Options.parse("conflation=1s" + " " * 4_083).interval_ns == SECOND
    with pytest.raises(OptionsInvalid) as refused:
        Options.parse("conflation=1s" + " " * 4_084)
    assert refused.value.position == 4_096


@examples(300, nightly=20_000)
@given(st.text(alphabet="conflati_key=,[]/$.'\"ab1s pe\\\u00e9", max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        Options.parse(text)
    except OptionsInvalid as error:
        refused = error
    else:
        return
    assert refused.position is not None
    assert 0 <= refused.position <= len(text)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@examples(100, nightly=5_000)
@given(
    st.integers(1_000_000, 86_400 * SECOND),
    st.lists(NAMES.filter(lambda name: name != "*"), min_size=1, max_size=3, unique=True),
    st.sampled_from(["batch", "key"]),
)
def test_the_normalised_spelling_says_the_same(
    interval_ns: int, names: list[str], pace: str
) -> None:
    quoted = [name.replace("\\", "\\\\").replace("'", "\\'") for name in names]
    spec = KeySpec.of(f"$['{name}']" for name in quoted)
    again = Options.parse(options_text(interval_ns, spec, pace))
    assert (again.interval_ns, again.key_spec, again.pace) == (interval_ns, spec, pace)
