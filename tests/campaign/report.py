"""What campaigns came to, as text: the table, and each finding with what is needed to repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.campaign.campaign import Result
from tests.campaign.judge import Finding, Kind

SHOWN_MAX = 6  # of a kind
BEFORE_S, AFTER_S = 8.0, 2.0
COUNTED = (Kind.LOST, Kind.REMOVAL, Kind.DIFFERS, Kind.BACKWARD)
"""The table has these also where nothing was found."""


def table(results: Sequence[Result]) -> str:
    """Return one table with the sums of all results."""
    sums, faults = Counter({f"found: {kind}": 0 for kind in COUNTED}), Counter[str]()
    for result in results:
        sums.update(result.sums)
        faults.update(result.faults)
    seeds = ", ".join(str(result.seed) for result in results)
    rows = [
        ("seeds", seeds),
        ("seconds", f"{sum(result.seconds for result in results):,.0f}"),
        *((name, f"{count:,}") for name, count in sums.items() if not name.startswith("found")),
        *((name, f"{count:,}") for name, count in sorted(faults.items())),
        ("findings", f"{sum(len(result.findings) for result in results):,}"),
        *((name, f"{count:,}") for name, count in sums.items() if name.startswith("found")),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"| {name.ljust(width)} | {count} |" for name, count in rows)


def story(result: Result) -> Iterator[str]:
    """Yield lines about the findings of a result, each with the faults around it."""
    shown = Counter[str]()
    for finding in result.findings:
        shown[finding.kind] += 1
        if shown[finding.kind] > SHOWN_MAX:
            continue
        yield line(result, finding)
        if finding.at_s:
            for at_s, note in result.notes:
                if finding.at_s - BEFORE_S < at_s < finding.at_s + AFTER_S:
                    yield f"    {at_s - result.began_at_s:8.2f} s: {note}"
    for kind, count in shown.items():
        if count > SHOWN_MAX:
            yield f"{kind}: {count - SHOWN_MAX} more"
    if result.folder is not None:
        yield f"seed {result.seed}: logs and notes are in {result.folder}"


def line(result: Result, finding: Finding) -> str:
    """Return a finding in one line."""
    at = f" at {finding.at_s - result.began_at_s:.2f} s" if finding.at_s else ""
    where = " ".join(filter(None, (finding.topic, finding.key)))
    return f"seed {result.seed}{at}: {finding.kind}: {where}: {finding.what}"
