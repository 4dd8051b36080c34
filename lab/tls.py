"""A throw-away certificate authority with a server's and a client's certificate, for testing TLS.

Lives here: making them. Does not live here: how a server or a client is told to use them.

Invariant: the server's certificate is good for 127.0.0.1 and localhost only, all are for two days,
and their authority's key is forgotten when `make_certificates` returns.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """PEM files: the authority that both trust, and what server and client show and keep."""

    ca: Path
    certificate: Path
    key: Path
    client: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Write a new authority and a certificate signed by it into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Ratchet lab authority")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    ca = (
        _draft(authority, authority, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signing_use(), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    made = Certificates(
        ca=folder / "ca.pem",
        certificate=folder / "server.pem",
        key=folder / "server-key.pem",
        client=folder / "client.pem",
        client_key=folder / "client-key.pem",
    )
    made.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    for name, use, certificate, key in (
        ("server", ExtendedKeyUsageOID.SERVER_AUTH, made.certificate, made.key),
        ("client", ExtendedKeyUsageOID.CLIENT_AUTH, made.client, made.client_key),
    ):
        own_key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Ratchet lab {name}")])
        draft = _user(_draft(subject, authority, own_key.public_key()), identifier, use)
        signed = draft.sign(authority_key, hashes.SHA256())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        key.touch(mode=0o600)
        key.write_bytes(
            own_key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    return made


def _user(
    draft: x509.CertificateBuilder, authority: x509.SubjectKeyIdentifier, use: x509.ObjectIdentifier
) -> x509.CertificateBuilder:
    """A certificate that signs no others, for this machine."""
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    )
    return (
        draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority),
            critical=False,
        )
    )


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)  # clocks of client and server may differ a little
        .not_valid_after(now + day)
    )


def _signing_use() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
