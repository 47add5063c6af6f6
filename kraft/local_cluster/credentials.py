"""Certificates and users of a cluster that `kraft cluster start --secure` makes (`identities`).

One authority signs the nodes' certificates; its key is forgotten at once, so that nobody signs another one. A module of
its own: no command but the one that makes a cluster has to load what it needs.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kraft.local_cluster.identities import (
    ADMIN,
    AUTHORITY_FILE,
    BROKER,
    CERTIFICATE_FILE,
    MECHANISM,
    Identities,
    write_private,
)
from kraft.security.sasl_servers import CODES
from kraft.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, salted_password, scram_keys
from quorum.metadata.records import UserScramCredential

VALID_FOR: Final = timedelta(days=3650)
_CLOCKS_MAY_DIFFER: Final = timedelta(days=1)
LOOPBACK: Final = ("127.0.0.1", "::1")


def scram_users(identities: Identities) -> list[UserScramCredential]:
    """What the metadata of a new cluster say of its users; the salts are new each time."""
    passwords = {ADMIN: identities.admin_password, BROKER: identities.broker_password}
    return [_credential(name, password) for name, password in passwords.items()]


def write_certificates(
    directory: Path, node_dirs: Mapping[int, Path], now_s: float, *, addresses: Iterable[str] = LOOPBACK
) -> None:
    """A new authority's certificate in the cluster's folder, and a key with a certificate of it in each node's. They
    name `addresses`, and this host as localhost. Raises OSError."""
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses)]
    begins = datetime.fromtimestamp(now_s, UTC) - _CLOCKS_MAY_DIFFER
    authority_key = ec.generate_private_key(ec.SECP256R1())
    folder = directory.name.encode("ascii", "replace").decode()  # a name has 64 bytes at most
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"kraft cluster in {folder}"[:64])])
    own = (
        _builder(authority, authority, authority_key.public_key(), begins)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    for node_id, node_dir in node_dirs.items():
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"node-{node_id}")])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        certificate = (
            _builder(name, authority, key.public_key(), begins)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(issuer, critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_private(node_dir / CERTIFICATE_FILE, private + _pem(certificate))
    (directory / AUTHORITY_FILE).write_bytes(_pem(own))


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _credential(name: str, password: str) -> UserScramCredential:
    salt = secrets.token_bytes(SALT_BYTES)
    keys = scram_keys(MECHANISM, salted_password(MECHANISM, password, salt, DEFAULT_ITERATIONS))
    return UserScramCredential(name, CODES[MECHANISM], salt, keys.stored, keys.server, DEFAULT_ITERATIONS)
