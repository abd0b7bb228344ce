"""The gateway that `--gateway` names."""

from __future__ import annotations

import argparse

import pytest

from app.cli.connection import gateway_at
from app.cli.errors import UsageInvalid


def test_an_address_becomes_a_client_that_has_sent_nothing() -> None:
    with gateway_at(argparse.Namespace(gateway="http://127.0.0.1:1/")) as gateway:
        assert gateway.base_url == "http://127.0.0.1:1"


def test_what_is_no_address_is_wrong_usage() -> None:
    with pytest.raises(UsageInvalid, match="--gateway: an address"):
        gateway_at(argparse.Namespace(gateway="127.0.0.1"))
