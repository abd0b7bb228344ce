"""Which functions there are, how many arguments they take, and why others are refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from keys.errors import FilterInvalid

MANY = 256


class Written(StrEnum):
    """What an argument that must be a literal is."""

    PATTERN = "pattern"
    FORMAT = "format"


@dataclass(frozen=True, slots=True)
class Signature:
    """How often and with what a function is called; `written` says what argument is a literal."""

    least: int
    most: int
    literal: int | None = None
    written: Written | None = None


SIGNATURES: dict[str, Signature] = {
    **dict.fromkeys(
        ("LENGTH", "TRIM", "LTRIM", "RTRIM", "REVERSE", "UPPER", "LOWER", "MD5", "CRC32"),
        Signature(1, 1),
    ),
    **dict.fromkeys(("INSTR", "INSTR_I", "STREQUAL_I", "LEFT", "RIGHT"), Signature(2, 2)),
    **dict.fromkeys(
        ("ABS", "CEILING", "FLOOR", "SIGN", "EXP", "LN", "LOG2", "LOG10", "SQRT"), Signature(1, 1)
    ),
    **dict.fromkeys(
        ("RADIANS", "DEGREES", "SIN", "COS", "TAN", "COT", "ASIN", "ACOS", "ATAN"), Signature(1, 1)
    ),
    **dict.fromkeys(("SINH", "COSH", "TANH", "CHAR_VALUE"), Signature(1, 1)),
    **dict.fromkeys(("ARRAY_COUNT", "ARRAY_MAX", "ARRAY_MIN", "ARRAY_SUM"), Signature(1, 1)),
    **dict.fromkeys(("GREATEST", "LEAST", "CONCAT", "COALESCE"), Signature(1, MANY)),
    **dict.fromkeys(("POWER", "ATAN2"), Signature(2, 2)),
    **dict.fromkeys(("TRUE_VALUE", "FALSE_VALUE", "NAN_VALUE"), Signature(0, 0)),
    **dict.fromkeys(("TOPIC_NAME", "MESSAGE_SIZE", "SOW_KEY"), Signature(0, 0)),
    "SUBSTR": Signature(2, 3),
    "REPLACE": Signature(3, 3),
    "REGEXP_MATCH": Signature(2, 2, 1, Written.PATTERN),
    "REGEXP_REPLACE": Signature(3, 3, 1, Written.PATTERN),
    "ROUND": Signature(1, 2),
    "WIDTH_BUCKET": Signature(4, 4),
    "ARRAY_TO_STRING": Signature(2, 3),
    "IF": Signature(3, 3),
    "STRFTIME": Signature(2, 2, 0, Written.FORMAT),
    "STRPTIME": Signature(2, 2, 1, Written.FORMAT),
    "GEO_DISTANCE": Signature(4, 4),
}

_NOT_DETERMINISTIC = frozenset(
    {"UNIX_TIMESTAMP", "UUID7", "LAST_READ", "VALUE_LOOKUP", "TODAY", "NOW", "RANDOM", "RAND"}
)
_NOT_AVAILABLE = frozenset(
    {
        *("CORRELATION_ID", "BOOKMARK", "LAST_UPDATED", "SOW_KEY_HASH", "LAST_LEASED"),
        *("LEASE_COUNT", "CLIENT_NAME", "USER", "REMOTE_ADDRESS", "CLIENT_VERSION"),
        *("CONNECTION_NAME", "AMPS_INSTANCE_NAME", "AMPS_GROUP_NAME"),
    }
)
_AGGREGATES = frozenset(
    {
        *("AVG", "ANY", "COUNT", "COUNT_DISTINCT", "GROUP_CONCAT", "MIN", "MAX", "STDDEV_POP"),
        *("STDDEV_SAMP", "SUM", "UNIQUE"),
    }
)


def signature_of(name: str, position: int) -> Signature:
    """The signature of a function named in capitals.

    Raises:
        FilterInvalid: there is none, with the reason.
    """
    if name in SIGNATURES:
        return SIGNATURES[name]
    if name in _NOT_DETERMINISTIC:
        raise FilterInvalid("this function is not deterministic", position)
    if name in _NOT_AVAILABLE:
        raise FilterInvalid("this function is not available in a filter", position)
    if name in _AGGREGATES:
        raise FilterInvalid("an aggregate is not available in a filter", position)
    raise FilterInvalid("there is no function of this name", position)
