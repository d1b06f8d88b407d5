"""What a runtime needs on this machine, checked before anything is created."""

from __future__ import annotations

import os
import shutil
import subprocess

from gangline.cluster.images.runtime.image_store import OCI_RUNTIMES, find_oci_runtime, last_line
from gangline.errors import UserError

PROGRAMS = {"containerd": ("containerd", "ctr"), "podman": ("podman",), "docker": ("docker",)}
_ASK_TIMEOUT_S = 10.0


def check_runtime(name: str, isolation: str) -> None:
    """Refuse a runtime that cannot work here.

    Args:
        name: one of ``PROGRAMS``.
        isolation: of the cluster, ``auto`` or empty when it is not chosen yet.

    Raises:
        UserError: with what is missing.
    """
    subject = f"--runtime {name} cannot be used here"
    ways = "--image NAME=FOLDER serves images from folders of yours, --context CONTEXT uses another cluster"
    if os.geteuid() != 0 or isolation in ("user", "plain"):
        what = f"the cluster has isolation `{isolation}`" if os.geteuid() == 0 else "you are not root"
        raise UserError(
            f"{subject}: containers need isolation `network`, which needs root; {what}", hint=ways
        )
    missing = [program for program in PROGRAMS[name] if not shutil.which(program)]
    if missing:
        raise UserError(
            f"{subject}: there is no program `{missing[0]}` on the PATH", hint=f"install it, or {ways}"
        )
    if not find_oci_runtime():
        raise UserError(
            f"{subject}: no `{'` or `'.join(OCI_RUNTIMES)}` is on the PATH to run containers with",
            hint="install runc",
        )
    if name == "docker":
        _check_docker(subject)


def _check_docker(subject: str) -> None:
    try:
        answer = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{subject}: the docker daemon does not answer") from None
    if answer.returncode:
        raise UserError(f"{subject}: {last_line(answer.stderr)}", hint="start the docker daemon")
