"""The settings' page, cell by cell; tests/docs compares it with the one that is published."""

from tidegate.app.settings_page import settings_page


def row(name: str) -> list[str]:
    [line] = [line for line in settings_page().splitlines() if line.startswith(f"| `{name}` |")]
    return [cell.strip() for cell in line.strip("|").split("|")][:-1]


def test_values_are_shown_as_they_are_written() -> None:
    assert row("port") == ["`port`", "`TIDEGATE_PORT`", "`8080`", "0", "65535"]
    assert row("queue_bytes_max")[2:] == ["`8MiB`", "1KiB", "4GiB"]
    assert row("write_timeout")[2:] == ["`10s`", "100ms", "1h"]
    assert row("insecure")[2:] == ["`false`", "", ""]
    assert row("allowed_hosts")[2:] == ["`[]`", "", ""]


def test_the_store_has_its_name_outside() -> None:
    assert row("data")[:2] == ["`data`", "`TIDEGATE_DATA`"]
