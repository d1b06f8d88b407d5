"""The cluster's own certificate authority and the certificates that it signs: EC P-256, kept in ``pki``.

Clients that check strictly (Python 3.13 and later) want a critical basicConstraints, keyUsage keyCertSign and
an AuthorityKeyIdentifier on the leaf: all are there. A certificate that lacks a wanted address, or ends soon,
is made anew; the authority stays. cryptography is imported only when something is made.

``python -m gangline.cluster.certificates FOLDER ADDRESS ...`` does that in a process of its own:
what cryptography takes (11 MB) is not kept by a server that runs for weeks.
"""

from __future__ import annotations

import ipaddress
import json
import ssl
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gangline import clock
from gangline.cluster.private_files import write_private
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS = 3650
SERVER_DAYS = 800
RENEW_BEFORE_DAYS = 60
BACKDATE_S = 300
TOKEN_KEY_FILE = "tokens.key"
"""Where the key lies that signs the tokens of service accounts."""

NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
ADDRESSES = ("127.0.0.1", "::1", "10.96.0.1")


class Identity(msgspec.Struct, frozen=True):
    """Whom a certificate is for.

    Attributes:
        user: common name: the user that a client is.
        groups: organizations: the groups of that user.
        names: addresses and names that a server is reached by; none for a client.
    """

    user: str
    groups: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Certificates:
    """The files of one cluster's ``pki`` folder.

    Args:
        folder: created when absent, mode 0700.
        addresses: further IP addresses and names that the server is reached by.
    """

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        self._folder = folder
        self._wanted = sorted({*NAMES, *ADDRESSES, *addresses})

    @property
    def authority_file(self) -> Path:
        """The authority's certificate, PEM."""
        return self._folder / "ca.crt"

    @property
    def authority_pem(self) -> bytes:
        """The authority's certificate, PEM."""
        return self.authority_file.read_bytes()

    def ensure(self) -> None:
        """Make what is missing or about to end. Cost: 60 ms when something is made, else reads one file."""
        if not self.are_current():
            self._make()

    def ensure_of(self, name: str, identity: Identity) -> tuple[Path, Path]:
        """Return the files of another certificate and of its key, made where missing or about to end."""
        if not self.is_current(name, identity):
            self._issue(name, identity)
        return self._folder / f"{name}.crt", self._folder / f"{name}.key"

    def ssl_context(self) -> ssl.SSLContext:
        """Return the server's TLS context; a certificate that is damaged is made anew.

        Raises:
            ClusterError: the authority's is damaged.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        files = (self._folder / "server.crt", self._folder / "server.key")
        try:
            context.load_cert_chain(*files)
        except ssl.SSLError:
            self._make()
            context.load_cert_chain(*files)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def are_current(self) -> bool:
        """Whether every file is there, names all that is wanted and does not end soon."""
        return self.is_current("server", Identity("", names=tuple(self._wanted)))

    def is_current(self, name: str, identity: Identity) -> bool:
        """Whether that certificate is there, names all that is wanted and does not end soon."""
        try:
            facts = json.loads((self._folder / f"{name}.json").read_text())
            ends = datetime.fromisoformat(facts["not_after"])
        except (OSError, ValueError, KeyError):
            return False
        names = ("ca.crt", "ca.key", f"{name}.crt", f"{name}.key")
        return (
            all((self._folder / name).exists() for name in names)
            and set(identity.names) <= set(facts.get("names", ()))
            and ends - clock.now() > timedelta(days=RENEW_BEFORE_DAYS)
        )

    def _make(self) -> None:
        self._issue("server", Identity("gangline-apiserver", names=tuple(self._wanted)))

    def _issue(self, name: str, identity: Identity) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _issue(self._folder, name, identity, *self._authority())

    def _authority(self) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key_file = self._folder / "ca.key"
        if self.authority_file.exists() and key_file.exists():
            try:
                key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
                assert isinstance(key, ec.EllipticCurvePrivateKey)
                return x509.load_pem_x509_certificate(self.authority_pem), key
            except (ValueError, AssertionError) as error:
                raise ClusterError(
                    f"the certificate authority in `{self._folder}` is damaged: {error}",
                    hint="remove that folder: it and the kubeconfig are made anew at the next start",
                ) from error
        certificate, key = _make_authority()
        write_private(key_file, _pem_of_key(key))
        write_private(self.authority_file, certificate.public_bytes(serialization.Encoding.PEM))
        return certificate, key


def _pem_of_key(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _make_authority() -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gangline-ca")])
    now = clock.now()
    usage = _key_usage(is_authority=True)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(seconds=BACKDATE_S))
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _issue(
    folder: Path,
    name: str,
    identity: Identity,
    authority: x509.Certificate,
    authority_key: EllipticCurvePrivateKey,
) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    now = clock.now()
    ends = now + timedelta(days=SERVER_DAYS)
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if identity.names else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, identity.user)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(seconds=BACKDATE_S))
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value), critical=False
        )
    )
    if identity.names:
        names = x509.SubjectAlternativeName([_general_name(one) for one in identity.names])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    write_private(folder / f"{name}.key", _pem_of_key(key))
    write_private(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))
    facts = {"names": identity.names, "not_after": ends.isoformat()}
    write_private(folder / f"{name}.json", json.dumps(facts).encode())


def ensure_signing_key(path: Path) -> None:
    """Make the key that signs the tokens of service accounts, unless it is there and whole."""
    if not path.exists() or not path.read_bytes().startswith(b"-----BEGIN EC PRIVATE KEY-----"):
        from cryptography.hazmat.primitives.asymmetric import ec

        write_private(path, _pem_of_key(ec.generate_private_key(ec.SECP256R1())))


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


if __name__ == "__main__":
    Certificates(Path(sys.argv[1]), sys.argv[2:]).ensure()
    ensure_signing_key(Path(sys.argv[1]) / TOKEN_KEY_FILE)
