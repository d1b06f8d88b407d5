"""Write docs/gallery.md again: every example is run, and what it prints is kept.

`python docs/update_gallery.py [EXAMPLE]...`, all of them or those named; ten minutes on two cores. Torch and
the further MPIs are the environments of the tests (tests/train_environment.py, tests/mpi_environments.py).
The lines are run as they stand in the examples' READMEs, in a copy of the folder, by a user whose home has
the environments that these name.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = REPOSITORY / "examples"
TARGET = Path(__file__).with_name("gallery.md")
LIMIT_S = 400
KEPT_LINES = 11  # at the beginning, and as many at the end
SETTING = ("up", "--nodes", "2", "--simulate-gpus", "2")

LINES: dict[str, list[str]] = {
    "01-digits": ["gangline run --nodes 2 examples/01-digits/mpijob.yaml"],
    "02-digits-torch": [
        "cd examples/02-digits-torch",
        "gangline run -n 2 -- ~/my-torch-env/bin/python train.py --compare",
    ],
    "03-pi": ["gangline run --nodes 2 examples/03-pi/mpijob.yaml"],
    "04-mpich": [
        ". mpich-env/bin/activate",
        "gangline run -n 4 --nodes 2 -- python examples/04-mpich/allreduce.py",
    ],
    "05-intel-mpi": [
        ". intel-env/bin/activate",
        "gangline run -n 4 --nodes 2 -- python examples/05-intel-mpi/allreduce.py",
    ],
    "06-torch-train": [
        "cd examples/06-torch-train",
        "gangline run -n 2 -- ~/my-torch-env/bin/python train.py --kill-at 170",
        "gangline run -n 2 -- ~/my-torch-env/bin/python train.py",
    ],
    "07-library-placement": ["python examples/07-library-placement/place.py"],
    "08-pytorchjob": ["gangline run examples/08-pytorchjob/pytorchjob.yaml"],
    "09-notebook": [],
    "published": [
        "cd examples/published",
        "gangline run --simulate-gpus 2 --image mpioperator/tensorflow-benchmarks=~/torch-env \\\n"
        "    --bench-limits model=lenet,batch_size=4,num_batches=20 v2beta1-benchmarks.yaml",
    ],
}
"""What is typed for each example, in the root of the repository; notebooks are shown as they are kept."""

HEAD = """# Gallery

<!-- Written by docs/update_gallery.py; do not edit. -->

Every [example](../examples/README.md) with what it printed, on two shared processor cores and no GPU; those
of the last one are simulated. The cluster was up (`gangline {setting}`); `...` stands for lines left out.
"""
SECTION = re.compile(r"<!-- ([\w-]+) -->\n.*?(?=\n<!-- |\Z)", re.DOTALL)
ACTIVATE = re.compile(
    r"^\. (\S+)/bin/activate$"
)  # . mpich-env/bin/activate: it has been moved since it was made
COLOURS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")  # ESC[33m, ESC[2K


def environments() -> dict[str, Path]:
    """Return the environments that the lines name, made where they are not yet there."""

    def made(script: str) -> Path:
        command = [sys.executable, str(REPOSITORY / "tests" / script)]
        return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])

    torch, mpi = made("train_environment.py").parents[1], made("mpi_environments.py")
    return {
        "my-torch-env": torch,
        "torch-env": torch,
        "mpich-env": mpi / "mpich",
        "intel-env": mpi / "intel-mpi",
    }


def shown(text: str) -> str:
    """Return what a terminal shows at the end, without the middle of what is long."""
    lines = [line.rstrip().rpartition("\r")[2] for line in COLOURS.sub("", text).rstrip().split("\n")]
    if len(lines) > 2 * KEPT_LINES + 1:
        lines[KEPT_LINES:-KEPT_LINES] = ["..."]
    return "\n".join(lines)


def typed(lines: list[str], home: Path, environment: dict[str, str]) -> str:
    """Return a terminal in which the lines were typed one after another, with what they printed."""
    told, before = [], []
    for line in lines:
        told.append(f"$ {line}")
        script = "\n".join([*before, line])
        if not line.startswith(("gangline", "python")):
            before.append(ACTIVATE.sub(r"export VIRTUAL_ENV=$PWD/\1 PATH=$PWD/\1/bin:$PATH", line))
            continue
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        if done.returncode and "--kill-at" not in line:
            raise SystemExit(f"{line}: exit code {done.returncode}\n{done.stdout}")
        told.append(shown(done.stdout.replace(str(home), "~")))
    return "```\n" + "\n".join(told) + "\n```\n"


def notebook(path: Path) -> str:
    """Return the cells of a notebook with what they printed."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"^# .*\n+", "", source))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            text = output.get("text") or output.get("data", {}).get("text/plain") or []
            if text:
                parts.append(f"```\n{''.join(text).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def sections() -> dict[str, str]:
    """Return what the page has now, by example."""
    return {found[1]: found[0] for found in SECTION.finditer(TARGET.read_text() if TARGET.exists() else "")}


def page(chosen: list[str]) -> str:
    """Run the examples that are chosen, and return the page with what it had of the others."""
    kept = sections()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        shutil.copytree(EXAMPLES, home / "examples")
        for link, folder in environments().items():
            (home / link).symlink_to(folder)
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        environment |= {"HOME": name, "GANGLINE_HOME": str(home / ".gangline"), "COLUMNS": "100"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        gangline = [sys.executable, "-m", "gangline"]
        try:
            subprocess.run([*gangline, *SETTING], env=environment, check=True, capture_output=True)
            for folder in chosen:
                title = (EXAMPLES / folder / "README.md").read_text().partition("\n")[0].lstrip("# ")
                lines = LINES[folder]
                told = (
                    typed(lines, home, environment)
                    if lines
                    else notebook(EXAMPLES / folder / "functions.ipynb")
                )
                link = f"[{folder}](../examples/{folder}/README.md)"
                kept[folder] = f"<!-- {folder} -->\n\n## {title}\n\n{link}\n\n{told}"
        finally:
            subprocess.run([*gangline, "down", "--purge"], env=environment, check=False, capture_output=True)
    return "\n".join([HEAD.format(setting=" ".join(SETTING)), *(kept[folder] for folder in LINES)])


if __name__ == "__main__":
    TARGET.write_text(page(sys.argv[1:] or list(LINES)))
