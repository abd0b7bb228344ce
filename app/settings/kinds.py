"""Kinds of settings: how the value of each is read, and within which bounds."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from tidegate.keys.text.duration import Duration
from tidegate.keys.text.size import parse_size

DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class EnvironmentText(str):
    """A value from the environment, where numbers and lists are text."""

    __slots__ = ()


def _duration(value: object) -> Duration:
    if isinstance(value, Duration | str):
        return value if isinstance(value, Duration) else Duration.parse(value)
    raise ValueError('expected a duration in quotes such as "10s"')


def _size(value: object) -> int:
    if isinstance(value, str):
        return parse_size(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError('expected a size in quotes such as "8MiB", or a number of bytes')


def _count(value: object) -> int:
    if isinstance(value, EnvironmentText) and re.fullmatch("[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("expected a whole number")


def _flag(value: object) -> bool:
    if isinstance(value, EnvironmentText) and value in {"true", "false", "1", "0"}:
        return value in {"true", "1"}
    if isinstance(value, bool):
        return value
    raise ValueError("expected true or false")


def _text(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str) and value:
        return str(value)
    raise ValueError("expected a text, not empty")


def _names(value: object, pattern: str, expected: str) -> tuple[str, ...]:
    if isinstance(value, EnvironmentText):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(expected)
    if not all(isinstance(name, str) and re.fullmatch(pattern, name, re.ASCII) for name in value):
        raise ValueError(expected)
    return tuple(value)


def _host_names(value: object) -> tuple[str, ...]:
    expected = 'expected a list of host names without ports such as ["gateway.example"]'
    names = [name.lower() for name in _names(value, r"(?i:[a-z0-9.:_-]+)", expected)]
    # The port of a `Host` is not compared: a name with one would match none.
    if not all(":" not in name or _is_ipv6(name) for name in names):
        raise ValueError(expected)
    return tuple(name.removesuffix(".") for name in names)


def _is_ipv6(name: str) -> bool:
    try:
        ipaddress.IPv6Address(name)
    except ValueError:
        return False
    return True


def _origins(value: object) -> tuple[str, ...]:
    expected = 'expected a list of origins such as ["https://desk.example"], or ["*"] alone'
    pattern = r"\*|(?i:https?://[a-z0-9._\[\]:-]+)"
    origins = tuple(_origin(text.lower()) for text in _names(value, pattern, expected))
    if "*" in origins and len(origins) > 1:
        # Beside `*` the others could only mean more, such as credentials, which `*` cannot have.
        raise ValueError(expected)
    return origins


def _origin(text: str) -> str:
    """Return an origin as browsers name it: without the port that its scheme has anyway."""
    scheme, _, _ = text.partition("://")
    return text.removesuffix(DEFAULT_PORTS.get(scheme, ""))


def _networks(value: object) -> tuple[str, ...]:
    expected = 'expected a list of addresses or networks such as ["10.0.0.7", "10.1.0.0/16"]'
    try:
        # Strict: `10.0.0.7/8` may mean the one or the many.
        return tuple(
            str(ipaddress.ip_network(name)) for name in _names(value, "[0-9A-Fa-f.:/]+", expected)
        )
    except ValueError:
        raise ValueError(expected) from None


def _function_names(value: object) -> tuple[str, ...]:
    expected = 'expected a list of functions such as ["package.module:function"]'
    return _names(value, r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", expected)


DurationValue = Annotated[Duration, BeforeValidator(_duration)]
SizeValue = Annotated[int, BeforeValidator(_size)]
CountValue = Annotated[int, BeforeValidator(_count)]
FlagValue = Annotated[bool, BeforeValidator(_flag)]


def _without_brackets(address: str) -> str:
    is_bracketed = address.startswith("[") and address.endswith("]")
    return address[1:-1] if is_bracketed else address


TextValue = Annotated[str, BeforeValidator(_text)]
AddressValue = Annotated[str, BeforeValidator(_text), AfterValidator(_without_brackets)]
"""An address to listen on; one of IPv6 may stand in the brackets that URLs want."""
HostNames = Annotated[tuple[str, ...], BeforeValidator(_host_names)]
Origins = Annotated[tuple[str, ...], BeforeValidator(_origins)]
Networks = Annotated[tuple[str, ...], BeforeValidator(_networks)]
FunctionNames = Annotated[tuple[str, ...], BeforeValidator(_function_names)]


def duration_field(default: str, meaning: str, least: str = "1ms", most: str = "1d") -> Any:
    """Return the field of a duration within bounds."""
    return Field(
        default=Duration.parse(default),
        ge=Duration.parse(least),
        le=Duration.parse(most),
        description=meaning,
    )


def size_field(default: str, meaning: str, least: str = "1KiB", most: str = "4GiB") -> Any:
    """Return the field of a number of bytes within bounds."""
    return Field(
        default=parse_size(default), ge=parse_size(least), le=parse_size(most), description=meaning
    )


def count_field(default: int, meaning: str, least: int = 1, most: int = 1_000_000_000) -> Any:
    """Return the field of a plain number within bounds."""
    return Field(default=default, ge=least, le=most, description=meaning)
