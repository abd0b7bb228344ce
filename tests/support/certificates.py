"""A certificate authority for tests, and the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Signed:
    """Files of a certificate and its key; `both` has the two."""

    cert: Path
    key: Path
    both: Path
    number: int


class Authority:
    """Signs certificates, and keeps all files in a folder."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        self._folder = folder / name.replace(" ", "-")
        self._folder.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = (
            self._builder(self._name, self._key.public_key(), DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.cert = self._folder / "ca.pem"
        self.cert.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = "server", host: str = "localhost") -> Signed:
        """A certificate of a host and of 127.0.0.1."""
        alternatives = [
            x509.DNSName(host),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        return self._signed(name, name, alternatives, ExtendedKeyUsageOID.SERVER_AUTH, DAY)

    def client(
        self, common_name: str = "", dns: str = "", life: datetime.timedelta = DAY
    ) -> Signed:
        """A certificate of a client, by its common name, an alternative name or both."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(dns)] if dns else []
        file = common_name or dns
        return self._signed(file, common_name, alternatives, ExtendedKeyUsageOID.CLIENT_AUTH, life)

    def trusting(self, client: Signed | None = None) -> ssl.SSLContext:
        """What a client needs that trusts this authority, and perhaps has a certificate."""
        context = ssl.create_default_context(cafile=str(self.cert))
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + life)
        )

    def _signed(
        self,
        file: str,
        common_name: str,
        alternatives: list[x509.GeneralName],
        purpose: x509.ObjectIdentifier,
        life: datetime.timedelta,
    ) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        builder = (
            self._builder(x509.Name(attributes), key.public_key(), life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=not common_name
            )
        made = builder.sign(self._key, hashes.SHA256())
        cert_pem = made.public_bytes(serialization.Encoding.PEM)
        key_pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        signed = Signed(
            self._folder / f"{file}.pem",
            self._folder / f"{file}.key",
            self._folder / f"{file}-both.pem",
            made.serial_number,
        )
        signed.cert.write_bytes(cert_pem)
        signed.key.write_bytes(key_pem)
        signed.both.write_bytes(cert_pem + key_pem)
        return signed


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=signs, crl_sign=signs,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
