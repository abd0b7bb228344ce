"""An MQTT broker, as definition files name it, and a client of it that is not connected yet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tidegate.pipeline.definitions.toml import TomlTable, hosts_of, read_file
from tidegate.pipeline.errors import EndpointUnavailable

ADDRESS = re.compile(r"mqtts?://([^\s/@]*@)?[^\s/@]+/?")
PORTS = {"mqtt": 1883, "mqtts": 8883}
VERSIONS = {"3.1.1": MQTTProtocolVersion.MQTTv311, "5": MQTTProtocolVersion.MQTTv5}
KEEP_ALIVE_S = 120  # longer than a gateway is waited for, when nothing is sent to the broker
CONNECT_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class MqttBroker:
    """The fields of a table that name a broker, and who connects to it.

    `client_id` is None for one made of the definition's name; `ca` is a file of authorities for
    `mqtts://`, None for those of the system.
    """

    address: str
    version: MQTTProtocolVersion
    client_id: str | None
    ca: Path | None

    @classmethod
    def read(cls, table: TomlTable, folder: Path) -> MqttBroker:
        """Take the fields from a table; a relative path of `ca` is below `folder`."""
        expected = "an address such as mqtt://USER:PASSWORD@127.0.0.1:1883"
        address = table.secret("address", ADDRESS, expected)
        try:
            _ = urlsplit(address).port
        except ValueError:
            raise table.wrong("address", expected, "a port that is none") from None
        version = table.text("version", default="5")
        if version not in VERSIONS:
            raise table.wrong("version", '"3.1.1" or "5"', version)
        return cls(
            address=address,
            version=VERSIONS[version],
            client_id=table.text("client_id", default="") or None,
            ca=read_file(table, "ca", folder),
        )

    @property
    def label(self) -> str:
        """The address without user and password."""
        return hosts_of(self.address)

    @property
    def is_v5(self) -> bool:
        """True if the client speaks MQTT 5."""
        return self.version == MQTTProtocolVersion.MQTTv5

    def client(self, client_id: str, *, clean: bool, manual_ack: bool = False) -> Client:
        """Return a client, which does not reconnect by itself.

        Args:
            client_id: where the definition names none.
            clean: the broker is to keep no session; of MQTT 3.1.1, 5 says so when it connects.
            manual_ack: the caller acknowledges each message.
        """
        parts = urlsplit(self.address)
        made = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id or client_id,
            clean_session=None if self.is_v5 else clean,
            protocol=self.version,
            reconnect_on_failure=False,
            manual_ack=manual_ack,
        )
        if parts.username is not None:
            made.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if parts.scheme == "mqtts":
            made.tls_set(ca_certs=str(self.ca) if self.ca else None)
        return made

    def connect(self, client: Client, **given: Any) -> None:
        """Connect a client; the broker's answer comes later.

        Raises:
            EndpointUnavailable: nobody answers there.
        """
        parts = urlsplit(self.address)
        host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
        try:
            client.connect(host, port, KEEP_ALIVE_S, **given)
        except OSError as error:
            said = error.strerror or str(error)
            raise EndpointUnavailable(
                f"cannot reach the broker at {host}:{port}: {said}"
            ) from error
