"""Lines for people, each on standard error, and carets under the character at fault."""

from __future__ import annotations

import pytest

from tidegate.app.cli.terminal import (
    AFTER_MAX,
    BEFORE_MAX,
    CommandError,
    caret_under,
    pointing,
    print_error,
    print_excerpt,
    print_line,
    print_note,
    progress,
)
from tidegate.clients.errors import GatewayProblem


def test_lines_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("one\n two")
    print_error("three")
    print_line("four")
    said = capsys.readouterr()
    assert said.err == "one two\ntidegate: three\n"
    assert said.out == "four\n"


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("publishing", "messages") as advance:
        advance(1000, 0.5)
    assert capsys.readouterr() == ("", "")


def test_progress_shows_the_count_and_the_share_where_it_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    for share, shown in ((0.25, True), (None, False)):
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        with progress("publishing", "messages") as advance:
            advance(1000)
            advance(500, share)
        said = capsys.readouterr().err
        assert "1,500 messages" in said
        assert ("25%" in said) is shown


def test_places_are_pointed_at_on_terminals_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_excerpt(["  a", "  ^"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    print_excerpt(["  a", "  ^"])
    assert capsys.readouterr().err == "  a\n  ^\n"


GIVEN: dict[str, str | None] = {
    "options": "conflation=1s,zzq", "filter": "/a = ", "order_by": "/a UP"
}  # fmt: skip


def problem(code: str, position: int | None, detail: str = "") -> GatewayProblem:
    return GatewayProblem(400, code, "Not valid", detail, position)


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (
            problem("options-invalid", 14, "unknown option"),
            ["  conflation=1s,zzq", "                ^"],
        ),
        (problem("options-invalid", 0, "conflation: no"), ["  conflation=1s,zzq", "  ^"]),
        (problem("filter-invalid", 5), ["  /a = ", "       ^"]),
        (problem("options-invalid", 3, "order_by: no direction"), ["  /a UP", "     ^"]),
        (problem("options-invalid", None), []),
        (problem("options-invalid", 18), []),
        (problem("topic-unknown", 0), []),
    ],
)
def test_the_text_at_fault_and_a_caret(error: GatewayProblem, lines: list[str]) -> None:
    assert caret_under(error, GIVEN) == lines


def test_what_was_not_given_is_not_shown() -> None:
    assert caret_under(problem("options-invalid", 0), {}) == []
    assert caret_under(problem("filter-invalid", 0), {"filter": None}) == []
    select = problem("options-invalid", 0, "select: no field")
    assert caret_under(select, {"options": "select=[x]"})[0] == "  select=[x]"


def test_a_long_text_is_cut_around_the_place() -> None:
    text = "x" * 500 + "!" + "y" * 500
    [shown, caret] = caret_under(problem("filter-invalid", 500), {"filter": text})
    assert shown[caret.index("^")] == "!"
    assert len(shown) == 2 + BEFORE_MAX + AFTER_MAX


def test_lines_of_a_text_are_shown_as_one() -> None:
    [shown, caret] = caret_under(problem("filter-invalid", 5), {"filter": "/a =\n!"})
    assert (shown, shown[caret.index("^")]) == ("  /a = !", "!")


def test_a_refusal_points_into_the_arguments() -> None:
    with pytest.raises(CommandError) as refused, pointing(filter="/a = "):
        raise problem("filter-invalid", 5)
    assert refused.value.lines == ["  /a = ", "       ^"]
    assert refused.value.exit_code == 1
    assert "[filter-invalid, position 5]" in str(refused.value)
