"""A throw-away certificate authority with a server's and a client's certificate, for testing TLS.

Lives here: making them. Does not live here: how a server or a client is told to use them.

Invariant: the certificates are good for 127.0.0.1 and localhost only and for two days, unless a
test asks for bad ones; their authority's key is forgotten when `make_certificates` returns.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY: Final = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """PEM files: the authority that both trust, and what server and client show and keep."""

    ca: Path
    certificate: Path
    key: Path
    client: Path
    client_key: Path


def make_certificates(
    folder: Path,
    *,
    names: Sequence[str] = ("127.0.0.1", "localhost"),
    good_for: datetime.timedelta = _DAY,
    self_signed: bool = False,
) -> Certificates:
    """Write a new authority and certificates signed by it into `folder`.

    Args:
        folder: made if need be.
        names: the addresses and host names that the certificates are for.
        good_for: how long from now on.
        self_signed: whether the server's is signed by its own key, and not by the authority.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Ratchet lab authority")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    ca = (
        _draft(authority, authority, authority_key.public_key(), _DAY)
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
        alone = self_signed and name == "server"
        issuer, signer = (subject, own_key) if alone else (authority, authority_key)
        draft = _draft(subject, issuer, own_key.public_key(), good_for)
        if not alone:
            draft = _signed_by(draft, identifier)
        signed = _user(draft, names, use).sign(signer, hashes.SHA256())
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
    draft: x509.CertificateBuilder, names: Sequence[str], use: x509.ObjectIdentifier
) -> x509.CertificateBuilder:
    """A certificate that signs no others, for these hosts."""
    return (
        draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_name(one) for one in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _signed_by(
    draft: x509.CertificateBuilder, authority: x509.SubjectKeyIdentifier
) -> x509.CertificateBuilder:
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority)
    return draft.add_extension(identifier, critical=False)


def _draft(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    good_for: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)  # clocks of client and server may differ a little
        .not_valid_after(now + good_for)
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
