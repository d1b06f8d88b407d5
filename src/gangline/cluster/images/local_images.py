"""Local images: what a pod's ``image`` stands for on this machine, where nothing is pulled.

``gangline/base`` (any tag, with or without a registry before it) is the machine's own files with Gangline's
Python and the MPI that Gangline found first on the PATH, and an environment in which MPI starts ranks on
other pods through ``gangline-rsh``. Before every ``mpirun`` stands ``launch/wrapper/mpirun_wrapper.py``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from gangline.cluster.images import shipped_images
from gangline.cluster.images.image import Image
from gangline.cluster.images.image_map import UserImage
from gangline.launch.mpi import MpiInstallation, MpiNotFoundError, find_mpi, inspect_mpi

BASE_IMAGE = "gangline/base"
REMOTE_SHELL = "gangline-rsh"
HOROVODRUN = "horovodrun"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def image_name(reference: str) -> str:
    """Return a reference without registry host, tag and digest.

    Example:
        >>> image_name("localhost:5000/gangline/base:v1@sha256:00")
        'gangline/base'
    """
    name = reference.partition("@")[0]
    head, slash, tail = name.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost"):
        name = tail
    return name.rpartition("/")[0] + "/" * ("/" in name) + name.rpartition("/")[2].partition(":")[0]


class LocalImages:
    """The local images of a cluster; looks for an MPI once.

    Args:
        mpi: None looks for one.
        shipped: folder with the files of the images in ``shipped_images``.
    """

    def __init__(self, mpi: MpiInstallation | None = None, shipped: Path = Path()) -> None:
        if mpi is None:
            try:
                mpi = find_mpi()
            except MpiNotFoundError:
                mpi = None
        self.mpi = mpi
        self.base = _base_image(mpi)
        self._shipped = shipped

    def find(self, reference: str) -> Image | None:
        """Return the image that serves a reference, None when there is none."""
        name = local_image_of(reference)
        if name not in shipped_images.SHIPPED:
            return self.base if name else None
        return replace(
            self.base,
            name=name,
            layers=(str(shipped_images.layer_of(self._shipped, name)),),
            rewritten=shipped_images.tops_of(name),
            config=shipped_images.config_of(name),
            env={"GANGLINE_IMAGE": name, **self.base.env},
        )

    def of_user(self, reference: str, served: UserImage) -> Image:
        """Return an image that a folder of the user's serves."""
        if served.kind == "root":
            return Image(reference, layers=(served.path,), is_whole=True)
        if served.kind == "files":
            return replace(self.base, name=reference, layers=(served.path,))
        below = self.find(reference) or self.base  # its programs, with the user's Python
        env = {"PYTHONPATH": shipped_images.PYTHON_FOLDER} if below.layers else {}
        return replace(
            below,
            name=reference,
            path_entries=(f"{served.path}/bin", *below.path_entries),
            show=_outermost([*below.show, served.path, *_python_of(Path(served.path))]),
            env={**_with_mpi_of(Path(served.path), below.env), **env, "VIRTUAL_ENV": served.path},
        )


def local_image_of(reference: str) -> str:
    """Return the name of the local image that serves a reference, empty when none does."""
    name = image_name(reference)
    return name if name == BASE_IMAGE or name in shipped_images.SHIPPED else ""


def _with_mpi_of(environment: Path, below: Mapping[str, str]) -> dict[str, str]:
    """Return an image's variables, with those of the environment's own MPI in place of the machine's."""
    mpirun = environment / "bin" / "mpirun"
    mpi = inspect_mpi(mpirun) if mpirun.exists() else None
    if mpi is None:
        return dict(below)
    kept = {name: value for name, value in below.items() if name not in _LIBRARY_VARIABLES}
    return kept | mpi_environment(mpi)


def _python_of(environment: Path) -> list[str]:
    """Return where the Python of a virtual environment lies, without which its own does not start."""
    try:
        lines = (environment / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    homes = [line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == "home"]
    return [str(Path(home).parent) for home in homes if Path(home).parent.is_dir()]


def _base_image(mpi: MpiInstallation | None) -> Image:
    python_bin = Path(sys.executable).parent
    entries = [str(python_bin)]
    show = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[3])]
    env: dict[str, str] = {}
    if mpi is not None:
        entries.insert(0, str(mpi.bin))
        show.append(str(mpi.prefix))
        env = mpi_environment(mpi)
    return Image(BASE_IMAGE, tuple(dict.fromkeys(entries)), _outermost(show), env)


def _outermost(paths: list[str]) -> tuple[str, ...]:
    """Return the paths without those that lie below another; system folders are visible anyway."""
    unique = sorted({os.path.realpath(path) for path in paths} | {*paths}, key=len)
    kept: list[str] = []
    for path in unique:
        if path in ("/", "/usr", "/usr/local"):
            continue
        if not any(Path(path).is_relative_to(other) for other in kept):
            kept.append(path)
    return tuple(kept)


REMOTE_SHELL_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_plm_ssh_agent": REMOTE_SHELL,
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PRTE_MCA_odls_base_max_threads": "0",
    "OMPI_MCA_plm_rsh_agent": REMOTE_SHELL,
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "HYDRA_LAUNCHER": "ssh",
    "HYDRA_LAUNCHER_EXEC": REMOTE_SHELL,
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": REMOTE_SHELL,
    "I_MPI_PIN": "off",
}
"""Variables that let any MPI start ranks in other pods through the remote shell, not bound to cores."""


def mpi_environment(mpi: MpiInstallation) -> dict[str, str]:
    """Return variables that let this MPI start ranks in other pods, and start them fast."""
    return REMOTE_SHELL_ENVIRONMENT | library_environment(mpi)


_LIBRARY_VARIABLES = ("OMPI_MCA_pml", "OMPI_MCA_btl", "FI_PROVIDER", "MPI4PY_LIBMPI")


def library_environment(mpi: MpiInstallation) -> dict[str, str]:
    """Return variables with which ranks load this MPI's library, and start fast.

    Measured with Open MPI 5.0.11: ``pml ob1`` saves one second of start, ``btl self,sm,tcp`` another. Where
    there is no RDMA device Intel MPI is told to use TCP between pods, as it would find out by itself.
    """
    env: dict[str, str] = {}
    if not Path("/sys/class/infiniband").is_dir():
        if mpi.flavour == "openmpi":
            shared_memory = "vader" if 0 < mpi.major < 5 else "sm"
            env |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": f"self,{shared_memory},tcp"}
        elif mpi.flavour == "intel":
            env |= {"FI_PROVIDER": "tcp"}
    if library := _library_file(mpi.lib):
        # mpi4py from PyPI then loads the launcher's library, whatever else is there.
        env["MPI4PY_LIBMPI"] = library
    return env


def _library_file(folder: Path) -> str:
    found = sorted(
        (*folder.glob("libmpi.so*"), *folder.glob("libmpi.dylib")), key=lambda path: len(path.name)
    )
    return str(found[-1] if found else "")


def write_programs(folder: Path) -> None:
    """Write what stands first on the PATH of a local image: remote shell, horovodrun, ``mpirun``."""
    folder.mkdir(parents=True, exist_ok=True)
    launch = Path(__file__).parents[2] / "launch"
    python = " ".join(shlex.quote(word) for word in [sys.executable, "-I", "-S"])
    shell, wrapper = (
        shlex.quote(str(launch / name)) for name in ("remote_shell.py", "wrapper/mpirun_wrapper.py")
    )
    _write_script(folder / REMOTE_SHELL, f'#!/bin/sh\nexec {python} {shell} "$@"\n')
    for name in ("mpirun", "mpiexec"):
        _write_script(folder / name, f'#!/bin/sh\nexec {python} {wrapper} "$0" "$@"\n')
    entry = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from gangline.launch.horovodrun import main; main()"
    )
    source = shlex.quote(str(Path(__file__).parents[3]))
    _write_script(
        folder / HOROVODRUN,
        "#!/bin/sh\nIFS=:\nfor folder in $PATH; do\n"  # an image's own Horovod comes first
        f'  [ "$folder/{HOROVODRUN}" -ef "$0" ] || [ ! -x "$folder/{HOROVODRUN}" ] || '
        f'exec "$folder/{HOROVODRUN}" "$@"\n'
        f'done\nunset IFS\nexec {python} -c "{entry}" {source} "$@"\n',
    )


def write_image_programs(folder: Path) -> None:
    """Write what stands last on the PATH of an image with its own files: ``gangline-rsh`` for its Python."""
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).parents[2] / "launch" / "remote_shell.py"
    _write_script(folder / "remote_shell.py", source.read_text(encoding="utf-8"))
    _write_script(
        folder / REMOTE_SHELL,
        "#!/bin/sh\n"
        "for python in python3 python; do\n"
        '  command -v "$python" >/dev/null 2>&1 || continue\n'
        '  exec "$python" -I -S "${0%/*}/remote_shell.py" "$@"\n'
        "done\n"
        'echo "gangline-rsh: this image has no python3; have its workers run an ssh server" >&2\n'
        "exit 255\n",
    )


def _write_script(target: Path, text: str) -> None:
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return
    draft = target.with_name(f".{target.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(target)


def base_path(image: Image, own_bin: str) -> str:
    """Return the PATH of a container; programs of an image with files of its own come before ours."""
    if image.is_whole:
        return f"{image.env.get('PATH') or _SYSTEM_PATH}:{own_bin}"
    return ":".join([own_bin, *image.path_entries, _SYSTEM_PATH])
