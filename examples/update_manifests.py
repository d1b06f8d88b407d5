"""Write the code and data of the examples into their manifests again: `python examples/update_manifests.py`.

A manifest that carries its own files runs unchanged on any Kubernetes cluster. The part below the marker
line of each `mpijob.yaml` is generated: a ConfigMap with the files that the job mounts. Edit the files, run
this, commit both; a test fails when they differ.
"""

import base64
import textwrap
from pathlib import Path

MARKER = (
    "# Written by examples/update_manifests.py from the files of this folder. Do not edit below this line.\n"
)
FILES = {
    "01-digits": ("digits-code", ["train.py", "digits.csv.gz"]),
    "03-pi": ("pi-code", ["pi.py"]),
    "04-mpich": ("mpich-code", ["allreduce.py"]),
    "05-intel-mpi": ("intel-mpi-code", ["allreduce.py"]),
}


def config_map(name: str, files: list[Path]) -> str:
    """Return a ConfigMap in YAML: text files as literal blocks, others as base64."""
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata:", f"  name: {name}"]
    texts = [file for file in files if file.suffix == ".py"]
    binaries = [file for file in files if file not in texts]
    if texts:
        lines.append("data:")
    for file in texts:
        lines += [f"  {file.name}: |", textwrap.indent(file.read_text(), " " * 4).rstrip()]
    if binaries:
        lines.append("binaryData:")
    for file in binaries:
        encoded = base64.b64encode(file.read_bytes()).decode()
        parts = [encoded[start : start + 100] for start in range(0, len(encoded), 100)]
        lines += [f'  {file.name}: "\\', *(f"    {part}\\" for part in parts), '    "']
    return "\n".join(lines) + "\n"


def updated(folder: Path) -> str:
    """Return what the folder's `mpijob.yaml` should contain: its own part, and its ConfigMap made anew."""
    name, files = FILES[folder.name]
    own, marker, _ = (folder / "mpijob.yaml").read_text().partition(MARKER)
    if not marker:
        raise SystemExit(f"{folder / 'mpijob.yaml'} has no marker line:\n{MARKER}")
    return own + MARKER + config_map(name, [folder / file for file in files])


def main() -> None:
    for folder in FILES:
        path = Path(__file__).parent / folder
        (path / "mpijob.yaml").write_text(updated(path))


if __name__ == "__main__":
    main()
