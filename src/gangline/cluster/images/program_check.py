"""Why a container of a local image would fail at once: looked at before it is started.

Our own benchmark programs need torch, which the Python that runs them may not have; and a launcher of another
MPI than the job names its hosts for would start every rank on itself. Both fail in every rank and every try,
so they count as an image that is not there. A program of the user's in such an image is his own matter.
"""

from __future__ import annotations

import importlib
import importlib.util
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gangline.cluster.images.image_map import repository
from gangline.cluster.images.local_images import local_image_of
from gangline.cluster.images.shipped_images import PYTHON_FOLDER, SHIPPED
from gangline.launch.wrapper import mpirun_wrapper

ANSWER_LIMIT_S = 10.0
_MISSING = 77
"""Exit code of the question; a Python that fails otherwise has told nothing."""
_ASK = f"import sys, importlib.util as i; sys.exit({_MISSING} if i.find_spec(sys.argv[1]) is None else 0)"
_LAUNCHERS = ("mpirun", "mpiexec")
_BRINGS_OWN = re.compile(r"\S*/python[\d.]*|(\S*/)?(pip[\d.]*|conda|mamba|uv|activate)|(PYTHON)?PATH=\S*")
"""Words that choose another Python than the image's, or bring modules: what then runs is not known here."""

Refusal = tuple[str, str]
"""What is in the way, and what to do about it."""


def why_not(
    reference: str, words: Sequence[str], folder: str, path: str, environment: Mapping[str, str]
) -> Refusal | None:
    """Return why what a container runs cannot work here, None when nothing is known to be in the way.

    Args:
        reference: the container's image.
        words: what it runs, the image's own command included.
        folder: where it starts.
        path: search path for programs, without Gangline's own folder at its front.
        environment: of the container, as far as it is known.
    """
    return _lacks_modules(reference, words, folder, path, environment) or _has_another_mpi(
        words, path, environment
    )


def needs_of(reference: str, words: Sequence[str], folder: str) -> tuple[str, ...]:
    """Return the modules that the image's Python must have: empty unless it runs a program of ours there."""
    image = SHIPPED.get(local_image_of(reference))
    if image is None or not image.needs:
        return ()
    separate = re.split(r"[\s;&|'\"]+", " ".join(words))
    if any(_BRINGS_OWN.fullmatch(word) for word in separate):
        return ()
    folders = [folder or "/", *(word for word in separate if word.startswith("/"))]  # of a `cd`, perhaps
    named = {posixpath.normpath(posixpath.join(place, word)) for place in folders for word in separate}
    return image.needs if named & image.programs.keys() else ()


def _lacks_modules(
    reference: str, words: Sequence[str], folder: str, path: str, environment: Mapping[str, str]
) -> Refusal | None:
    has_own_modules = environment.get("PYTHONPATH", PYTHON_FOLDER) != PYTHON_FOLDER
    needs = () if has_own_modules else needs_of(reference, words, folder)
    python = _python(path, environment) if needs else None
    missing = [module for module in needs if python is not None and not _has_module(python, module)]
    if not missing:
        return None
    name, what = repository(reference).removeprefix("docker.io/"), " and ".join(missing)
    rule = f"its programs here are Gangline's own, which need {what}, and {python} does not have it"
    lend = f"--image {name}=FOLDER (of `gangline run` or `gangline up`) lends pods that start from then on"
    return rule, f"install it: {python} -m pip install {what}; or {lend} a virtual environment that has it"


def _python(path: str, environment: Mapping[str, str]) -> str | None:
    """Return the Python that runs our programs, as they find it themselves; see ``bench.entry.require``."""
    active = Path(environment.get("VIRTUAL_ENV") or "/nowhere", "bin", "python")
    return str(active) if active.exists() else shutil.which("python", path=path)


def _has_module(python: str, module: str) -> bool:
    """Return whether a Python has a module; one that does not answer counts as having it."""
    own = Path(sys.executable).parent
    importlib.invalidate_caches()  # it may have been installed since
    if importlib.util.find_spec(module) is not None and (Path(python).parent == own or module == "mpi4py"):
        return True  # mpi4py is lent to a virtual environment that has none
    if Path(python).parent == own:
        return False
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            [python, "-c", _ASK, module], capture_output=True, timeout=ANSWER_LIMIT_S, check=False
        )
        return asked.returncode != _MISSING
    return True


def _has_another_mpi(words: Sequence[str], path: str, environment: Mapping[str, str]) -> Refusal | None:
    if not words or words[0] not in _LAUNCHERS:
        return None
    launcher = mpirun_wrapper.find_launcher("/nowhere", words[0], {**environment, "PATH": path})
    if launcher is None:
        return None
    meant = mpirun_wrapper.hosts_meant_for(launcher, list(words[1:]), dict(environment))
    if not meant:
        return None
    found = mpirun_wrapper.wrong_implementation(launcher, meant)
    return f"{found.what}: {found.effect}", found.hint
