"""The ssh key pair of a job: ECDSA on P-521, as the images of MPI jobs expect it.

Source: RFC 5915 (``EC PRIVATE KEY``), RFC 5656 (``ecdsa-sha2-nistp521``).
"""

from __future__ import annotations

import base64

from gangline.jobs.names import PRIVATE_KEY, PUBLIC_KEY


def generate_key_pair() -> dict[str, str]:
    """Return the data of a Secret with a fresh key pair, base64.

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
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    return {
        PRIVATE_KEY: base64.b64encode(private).decode(),
        PUBLIC_KEY: base64.b64encode(public).decode(),
    }
