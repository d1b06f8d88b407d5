"""Images that Kubernetes' end-to-end suite asks for: its own programs, busybox, Debian's tools.

``python tests/conformance/images.py PROGRAMS`` packs them (PROGRAMS: the folder that build.sh prints) and
prints their tars. The suite finds them under ``localhost/e2e`` by the list that ``registries`` writes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from debian import lay_out_packages
from pack import pack

REGISTRY = "localhost/e2e"
PACKAGES = "busybox-static bash bash-static dash curl netcat-openbsd iproute2 bind9-dnsutils libc-bin"
AGNHOST_TAGS = ("2.55", "2.59")
"""Version 1.35 of the suite uses both; one program serves as either."""
NGINX_TAGS = ("1.14-4", "1.15-4")
"""Cases only want that something runs; agnhost's web server does."""


def registries(path: Path) -> Path:
    """Write the list of registries that ``KUBE_TEST_REPO_LIST`` names."""
    names = (
        "promoterE2eRegistry",
        "buildImageRegistry",
        "gcEtcdRegistry",
        "gcRegistry",
        "sigStorageRegistry",
    )
    path.write_text(
        "".join(f"{name}: {REGISTRY}\n" for name in names) + "invalidRegistry: invalid.localhost\n"
    )
    return path


def images(programs: Path) -> list[Path]:
    """Return the tars of all images, packed where this file has not packed them yet.

    Args:
        programs: folder that build.sh fills; the tars lie beside them.
    """
    folder = programs / "images"
    done = folder / "complete"
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if not done.exists() or done.read_text() != recipe:
        with tempfile.TemporaryDirectory(prefix="gangline-image-") as scratch:
            _pack_all(programs, folder, Path(scratch))
        done.write_text(recipe)
    return sorted(folder.glob("*.tar"))


def _pack_all(programs: Path, out: Path, scratch: Path) -> None:
    tools = scratch / "tools"
    lay_out_packages(tools, PACKAGES)
    # Its installation links it; busybox has an ``nc`` too, which knows none of the options in use.
    (tools / "usr/bin/nc").symlink_to("/bin/nc.openbsd")
    _applets(tools / "usr/bin/busybox", tools / "usr/bin")
    _users(tools)
    agnhost, plain, nnp, page = (scratch / name for name in ("agnhost", "busybox", "nnp", "page"))
    for layer in (agnhost, plain / "bin", nnp):
        layer.mkdir(parents=True)
    shutil.copy2(programs / "agnhost", agnhost / "agnhost")
    for name in ("localhost.crt", "localhost.key"):
        shutil.copy2(programs / name, agnhost / name)
    (agnhost / "agnhost-2").symlink_to("agnhost")
    (agnhost / "uploads").mkdir()
    for tag in AGNHOST_TAGS:
        pack(
            f"{REGISTRY}/agnhost:{tag}",
            out / f"agnhost-{tag}.tar",
            [tools, agnhost],
            entrypoint=["/agnhost"],
            command=["pause"],
        )
    for tag in NGINX_TAGS:
        server = ["/agnhost", "test-webserver"]
        pack(f"{REGISTRY}/nginx:{tag}", out / f"nginx-{tag}.tar", [agnhost], entrypoint=server)
    page.mkdir()
    (page / "data.json").write_text('{"image": "nautilus.jpg"}\n')
    pack(f"{REGISTRY}/nautilus:1.7", out / "nautilus.tar", [agnhost, page], entrypoint=server)
    pack(
        f"{REGISTRY}/pause:3.10.1",
        out / "pause.tar",
        [agnhost],
        entrypoint=["/agnhost", "pause"],
    )
    pack(
        f"{REGISTRY}/jessie-dnsutils:1.7",
        out / "dnsutils.tar",
        [tools, agnhost],
        entrypoint=["/agnhost", "pause"],
    )
    shutil.copy2(tools / "usr/bin/busybox", plain / "bin/busybox")
    # busybox before 1.37 drops variables whose names are no names to a shell
    shutil.copy2(tools / "usr/bin/bash-static", plain / "bin/sh")
    _applets(plain / "bin/busybox", plain / "bin")
    _users(plain)
    pack(f"{REGISTRY}/busybox:1.37.0-1", out / "busybox.tar", [plain], command=["sh"])
    shutil.copy2(programs / "nonewprivs", nnp / "nnp")
    (nnp / "nnp").chmod(0o4755)
    pack(f"{REGISTRY}/nonewprivs:1.3", out / "nonewprivs.tar", [plain, nnp], command=["/nnp"])


def _applets(busybox: Path, folder: Path) -> None:
    """Link every program of busybox that the folder has not."""
    listed = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout
    for name in listed.split():
        if not (folder / name).exists() and not (folder / name).is_symlink():
            (folder / name).symlink_to("busybox")


def _users(folder: Path) -> None:
    """Write the users that cases about groups expect in an image."""
    (folder / "etc").mkdir(exist_ok=True)
    (folder / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/home/user:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/bin/false\n"
    )
    (folder / "etc/group").write_text(
        "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
        "nogroup:x:65534:\n"
    )
    for name, mode in (("tmp", 0o1777), ("root", 0o700)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name).chmod(mode)


if __name__ == "__main__":
    for tar in images(Path(sys.argv[1])):
        print(tar)
