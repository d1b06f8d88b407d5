"""The ssh key pair of a job: ECDSA on P-521, as the images of MPI jobs expect it.

Source: RFC 5915 (``EC PRIVATE KEY``), RFC 5656 (``ecdsa-sha2-nistp521``), RFC 5280 (the certificate).
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from gangline.jobs.names import CERTIFICATE_KEY, PRIVATE_KEY, PUBLIC_KEY

_ALWAYS = (datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))
"""The key ends with its job; clocks of nodes differ."""


def generate_key_pair(has_certificate: bool = False) -> dict[str, str]:
    """Return the data of a Secret with a fresh key pair, base64.

    Args:
        has_certificate: whether to sign a certificate of the key by itself, for the rank agent.

    Cost: 0.3 ms; the first call imports ``cryptography``: 45 ms, so call it in a thread.
    """
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ec.generate_private_key(ec.SECP521R1())
    data = {
        PRIVATE_KEY: key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        PUBLIC_KEY: key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n",
    }
    if has_certificate:
        data[CERTIFICATE_KEY] = _certificate(key)
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


def certify(private_key: str) -> dict[str, str]:
    """Return the certificate alone of a key that pods have; a fresh pair where the key cannot be read.

    Args:
        private_key: base64, as in a Secret.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(base64.b64decode(private_key), password=None)
        return {CERTIFICATE_KEY: base64.b64encode(_certificate(key)).decode()}
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return generate_key_pair(has_certificate=True)


def _certificate(key: Any) -> bytes:
    """Return a certificate of a key, signed by itself, in PEM: who has the key is of the job."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA512
    from cryptography.hazmat.primitives.serialization import Encoding

    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gangline-job")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(_ALWAYS[0]).not_valid_after(_ALWAYS[1])
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.sign(key, SHA512()).public_bytes(Encoding.PEM)
