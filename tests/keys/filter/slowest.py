"""The messages of 64 KB, and the filters, that are known to take the longest."""

from __future__ import annotations

from collections.abc import Callable

BYTES = 65_536


def filled(element: Callable[[int], str], shell: str = '{"a":[%s],"z":0}') -> bytes:
    """A message of 64 KB with an array of these elements in it."""
    found: list[str] = []
    left = BYTES - len(shell)
    while (left := left - len(following := element(len(found)).encode()) - 1) >= 0:
        found.append(following.decode())
    return (shell % ",".join(found)).encode()


def _shuffled(index: int) -> int:
    return index * 7_919 % 65_536


MESSAGES: dict[str, bytes] = {
    "ones": filled(lambda index: "1"),
    "10,000 integers": filled(lambda index: f"{_shuffled(index)}"),
    "doubles": filled(lambda index: f"{_shuffled(index) % 1_000}.{index % 10}"),
    "long doubles": filled(lambda index: repr(index / 7)),
    "words": filled(lambda index: f'"x{_shuffled(index):x}"'),
    "hexadecimals": filled(lambda index: f'"{_shuffled(index):x}"'),
    "numerals": filled(lambda index: f'"{_shuffled(index)}"'),
    "fractions in strings": filled(lambda index: f'"{_shuffled(index) % 10_000}.5"'),
    "letters beyond ASCII": filled(lambda index: f'"\u00e9{_shuffled(index):x}"'),
    "empty strings": filled(lambda index: '""'),
    "lines": filled(lambda index: f'"\\n{index:x}"'),
    "all kinds": filled(lambda i: (f'"{i:x}"', f"{i}", "null", f"{i}.5", "true", "{}")[i % 6]),
    "fractions and ones": filled(lambda index: ("1", f'".{index % 1_000}"')[index % 2]),
    "an infinity": filled(lambda index: "1" if index else "1e999"),
    "a huge integer": filled(lambda index: "1" if index else "1" * 5_000),
    "empty arrays": filled(lambda index: "[]"),
    "arrays of four levels": filled(lambda index: "[[[[1]]]]"),
    "few deep arrays": filled(lambda index: "1", '{"a":' + "[" * 60 + "%s" + "]" * 60 + "}"),
    "objects": filled(lambda index: f'{{"b":{index % 10}}}'),
    "objects in depth": filled(lambda index: '{"b":1}', '{"a":' + "[" * 60 + "%s" + "]" * 60 + "}"),
    "a long text": filled(lambda index: "ab" * 32_700 if not index else "", '{"a":"%s"}'),
    "8,192 letters": b'{"a":"' + b"a" * 8_192 + b'"}',
    "random letters": b'{"a":"%s"}'
    % "".join("ab"[index * index * 7_919 // 8 % 2] for index in range(65_000)).encode(),
}


def any_of(template: str, times: int) -> str:
    """An OR of `times` comparisons that are not TRUE, with 0, 1, ... in place of `#`."""
    return " OR ".join(template.replace("#", str(index)) for index in range(times))


FILTERS: tuple[str, ...] = (
    "/a = 70000",
    "/a = 'zz'",
    "/a < -5",
    "/a >= 'zzz'",
    "/a != 1 AND /z = 1",
    "/a IN (-1, 'q', -7.5)",
    "/a BETWEEN -5 AND -4",
    "/a BETWEEN 'zz' AND 'zzz'",
    "/a LIKE 'zzz'",
    "/a LIKE '^zzz$'",
    r"/a LIKE r'\Azzz'",
    "/a LIKE '(a|b)*a(a|b){30}c'",
    "/a LIKE '(a|b)*a(a|b){200}c'",
    "/a BEGINS WITH ('zzz')",
    "/a ENDS WITH ('zzz')",
    "/a ENDS WITH (" + ",".join(f"'{index}zz'" for index in range(500)) + ")",
    "ARRAY_SUM(/a) = -1.5",
    "ARRAY_MAX(/a) = -1",
    "ARRAY_SUM(/a) + ARRAY_MAX(/a) + ARRAY_MIN(/a) = -1.5",
    "ARRAY_TO_STRING(/a, '-') = 'x'",
    "ARRAY_COUNT(/a) + /a = -1",
    "/a = /b OR /a < /b",
    "/a/b = -1",
    any_of("/a#/b = -1", 25),
    " OR ".join(f"/a{'[0]' * index}/b = -1" for index in range(40)),
    " OR ".join(f"/a{'[0]' * index} = -1" for index in range(40)),
    any_of("/a < -# OR /a LIKE 'z#' OR /a ENDS WITH ('z#')", 12),
    any_of("/a LIKE 'zzz#.*q'", 70),
    any_of("REPLACE(/a, '" + "a" * 40 + "b#', 'x') = '#'", 36),
    any_of("INSTR(/a, '" + "a" * 30 + "b" + "a" * 30 + "#') = -1", 42),
    any_of("REGEXP_MATCH(LEFT(/a, #), '(a|b)*a(a|b){9}c')", 30),
    any_of("REGEXP_REPLACE(/a, 'a', '#') = 'q'", 36),
    any_of("MD5(REVERSE(UPPER(/a))) = '#' OR CRC32(LEFT(/a, 8#)) = -1", 18),
    any_of("STRFTIME('%Y %j %B', 1e9 + #) = 'x'", 31),
    any_of("ROUND(/z + #e100, -30) = POWER(/z + 1.#, 400)", 20),
    any_of("CONCAT(/a, '#', /a, /a) = ARRAY_TO_STRING(/a, '#')", 25),
)
