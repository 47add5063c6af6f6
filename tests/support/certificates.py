"""An authority of a test's own, and certificates that it signs, as PEM and PKCS12 files."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_UNTIL = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
_SHORT = {
    "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "C": NameOID.COUNTRY_NAME,
}
NO_OTHER_USAGE = dict.fromkeys(
    (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    ),
    False,
)


class Authority:
    """Signs certificates. `certificate` is its own, as PEM."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._own = self._sign(self._name, self._key.public_key(), is_authority=True, addresses=False)

    @property
    def certificate(self) -> bytes:
        return self._own.public_bytes(Encoding.PEM)

    def write_certificate(self, path: Path) -> Path:
        path.write_bytes(self.certificate)
        return path

    def write_identity(self, path: Path, subject: str, password: str | None = None) -> Path:
        """A PEM file of a new private key and its certificate; the subject is written CN=…,OU=…"""
        key, certificate = self._issue(subject)
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
            + certificate.public_bytes(Encoding.PEM)
            + self.certificate
        )
        return path

    def write_pkcs12(self, path: Path, subject: str, password: str) -> Path:
        """The same as a PKCS12 store."""
        key, certificate = self._issue(subject)
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"node", key, certificate, [self._own], BestAvailableEncryption(password.encode())
            )
        )
        return path

    def write_trust_store(self, path: Path, password: str) -> Path:
        """A PKCS12 store of this authority's certificate alone."""
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [self._own], encryption))
        return path

    def _issue(self, subject: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key = ec.generate_private_key(ec.SECP256R1())
        pairs = [part.split("=", 1) for part in reversed(subject.split(","))]
        name = x509.Name([x509.NameAttribute(_SHORT[short], value) for short, value in pairs])
        return key, self._sign(name, key.public_key(), is_authority=False, addresses=True)

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool, addresses: bool
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_FROM)
            .not_valid_after(_UNTIL)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if is_authority:
            usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **NO_OTHER_USAGE)
            builder = builder.add_extension(usage, critical=True)
        if addresses:
            hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return builder.sign(self._key, hashes.SHA256())
