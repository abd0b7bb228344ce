"""`tidegate token`: creates a signing key and signs tokens with it, for small installations."""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import click

from tidegate.app.cli.arguments import SECONDS
from tidegate.app.cli.installation import need
from tidegate.app.cli.terminal import DONE, CommandError, UsageInvalid, print_line, print_note

KEY_FILE = "tidegate-key.json"
KEYS_FILE = "tidegate-keys.json"
SECRET_BYTES = 64
ALGORITHMS = ("EdDSA", "HS256")


@click.group(
    epilog=(
        "\b\nExamples:\n"
        "  tidegate token key\n"
        "  tidegate token create --sub ann --grant 'read prices.>'"
    ),
    no_args_is_help=False,
)
def token() -> None:
    """Create keys and tokens without an identity provider."""


@token.command(
    "key", epilog="\b\nExample:\n  tidegate token key --key signing-key.json --keys keys.json"
)
@click.option(
    "--algorithm",
    type=click.Choice(ALGORITHMS),
    default=ALGORITHMS[0],
    show_default=True,
    help="EdDSA: the gateway gets a public key. HS256: it shares a secret.",
)
@click.option(
    "--key",
    "key_file",
    metavar="FILE",
    default=KEY_FILE,
    show_default=True,
    help="Where the key that signs is written.",
)
@click.option(
    "--keys",
    "keys_file",
    metavar="FILE",
    default=KEYS_FILE,
    show_default=True,
    help="Where the set for `serve --auth-keys` is written.",
)
def make_key(algorithm: str, key_file: str, keys_file: str) -> int:
    """Make a key to sign tokens with, and the set of keys for the gateway."""
    need("token key", "server")
    key, public = _new_key(algorithm)
    # Both or none: a set without its key would let nobody in.
    for path in (Path(key_file), Path(keys_file)):
        if path.exists():
            raise UsageInvalid(f"{path} exists already; name another file, or remove it")
    _write(Path(key_file), key)
    _write(Path(keys_file), {"keys": [public]})
    print_line(f"{key_file} signs tokens; keep it to yourself")
    print_line(f"{keys_file} is for the gateway: tidegate serve --auth-keys {keys_file}")
    return DONE


@token.command(
    "create",
    epilog=(
        "\b\nExamples:\n"
        "  tidegate token create --sub ann --grant 'read prices.>' --for 8h\n"
        "  tidegate token create --sub feed --grant 'write prices.>' > token"
    ),
)
@click.option("--sub", required=True, metavar="TEXT", help="Who the token is for.")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="TEXT",
    help="Verbs and topics, such as 'read,write prices.>', or a grant in JSON; may be repeated.",
)
@click.option(
    "--claim",
    "claim_texts",
    multiple=True,
    metavar="NAME=VALUE",
    help="A claim for the policy, such as groups=traders; a repeated name makes a list.",
)
@click.option(
    "--for",
    "seconds",
    type=SECONDS,
    default="8h",
    show_default=True,
    metavar="TIME",
    help="Lifetime of the token.",
)
@click.option("--key", "key_file", metavar="FILE", default=KEY_FILE, show_default=True)
@click.option("--issuer", default="tidegate", show_default=True, metavar="TEXT")
@click.option("--audience", default="tidegate", show_default=True, metavar="TEXT")
def create(
    sub: str,
    grants: tuple[str, ...],
    claim_texts: tuple[str, ...],
    seconds: float,
    key_file: str,
    issuer: str,
    audience: str,
) -> int:
    """Print a token, signed with the local key."""
    need("token create", "server")
    import jwt

    key = _read_key(Path(key_file))
    now_s = int(time.time())
    claims: dict[str, Any] = {
        **_claims(claim_texts),
        "sub": sub,
        "iss": issuer,
        "aud": audience,
        "iat": now_s,
        "exp": now_s + int(seconds),
        "jti": secrets.token_urlsafe(12),
        "tidegate": {"grants": [_grant(text) for text in grants]},
    }
    named = {"kid": key.key_id} if key.key_id else None
    signed = jwt.encode(claims, key.key, key.algorithm_name, named)
    print_line(signed)
    if not grants and not claim_texts:
        print_note("The token grants nothing by itself: no --grant and no --claim was given.")
    return DONE


def _new_key(algorithm: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the signing key, and its public part for the gateway."""
    named = {"kid": secrets.token_hex(4), "alg": algorithm, "use": "sig"}
    if algorithm == "HS256":
        secret = {"kty": "oct", "k": _base64url(secrets.token_bytes(SECRET_BYTES)), **named}
        return secret, secret
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    public = {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": _base64url(private.public_key().public_bytes_raw()),
        **named,
    }
    return {**public, "d": _base64url(private.private_bytes_raw())}, public


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _write(path: Path, document: dict[str, Any]) -> None:
    """Write a new file that only its owner can read; fail if it exists."""
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(opened, "w") as file:  # noqa: PTH123 - a descriptor has no path
            json.dump(document, file, indent=1)
            file.write("\n")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def _read_key(path: Path) -> Any:
    import jwt

    try:
        document = json.loads(path.read_text("utf-8"))
        # A public key verifies, and signs nothing.
        if not isinstance(document, dict) or not {"d", "k"} & document.keys():
            raise ValueError
        return jwt.PyJWK(document)
    except OSError as error:
        detail = f"{path}: {error.strerror}; `tidegate token key` makes a key"
        raise UsageInvalid(detail) from None
    except (ValueError, jwt.PyJWTError):
        # The message repeats nothing of the file: it is a secret, or was meant to be one.
        raise UsageInvalid(f"{path} holds no key; `tidegate token key` makes one") from None


def _grant(text: str) -> dict[str, object]:
    from tidegate.app.access.grants import Grant, GrantInvalid

    try:
        found = Grant.parse(json.loads(text)) if text.startswith("{") else Grant.parse_text(text)
    except (GrantInvalid, ValueError) as error:
        raise click.BadParameter(f"{error}".rstrip(".") + ".", param_hint="--grant") from None
    return found.document()


def _claims(texts: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter("expected NAME=VALUE.", param_hint="--claim")
        before = found.get(name)
        found[name] = value if before is None else [*(_listed(before)), value]
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
