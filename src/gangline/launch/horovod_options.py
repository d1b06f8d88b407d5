"""The options of ``horovodrun``: command line, configuration file, and the variables that they become.

Source: Horovod 0.28's command line and its table of environment variables.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from gangline.errors import UserError

_KNOBS: dict[str, tuple[str, str]] = {
    "fusion_threshold_mb": ("HOROVOD_FUSION_THRESHOLD", "mebibytes"),
    "cycle_time_ms": ("HOROVOD_CYCLE_TIME", "plain"),
    "cache_capacity": ("HOROVOD_CACHE_CAPACITY", "plain"),
    "hierarchical_allreduce": ("HOROVOD_HIERARCHICAL_ALLREDUCE", "switch"),
    "hierarchical_allgather": ("HOROVOD_HIERARCHICAL_ALLGATHER", "switch"),
    "torus_allreduce": ("HOROVOD_TORUS_ALLREDUCE", "switch"),
    "autotune": ("HOROVOD_AUTOTUNE", "switch"),
    "autotune_log_file": ("HOROVOD_AUTOTUNE_LOG", "plain"),
    "autotune_warmup_samples": ("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "plain"),
    "autotune_steps_per_sample": ("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "plain"),
    "autotune_bayes_opt_max_samples": ("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "plain"),
    "autotune_gaussian_process_noise": ("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "plain"),
    "timeline_filename": ("HOROVOD_TIMELINE", "plain"),
    "timeline_mark_cycles": ("HOROVOD_TIMELINE_MARK_CYCLES", "switch"),
    "no_stall_check": ("HOROVOD_STALL_CHECK_DISABLE", "switch"),
    "stall_check_warning_time_seconds": ("HOROVOD_STALL_CHECK_TIME_SECONDS", "plain"),
    "stall_check_shutdown_time_seconds": ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "plain"),
    "mpi_threads_disable": ("HOROVOD_MPI_THREADS_DISABLE", "switch"),
    "num_nccl_streams": ("HOROVOD_NUM_NCCL_STREAMS", "plain"),
    "thread_affinity": ("HOROVOD_THREAD_AFFINITY", "plain"),
    "gloo_timeout_seconds": ("HOROVOD_GLOO_TIMEOUT_SECONDS", "plain"),
    "log_level": ("HOROVOD_LOG_LEVEL", "plain"),
    "log_hide_time": ("HOROVOD_LOG_HIDE_TIME", "switch"),
}
_CONFIG_SECTIONS: dict[str, dict[str, str]] = {
    "params": {},
    "library-options": {},
    "autotune": {
        "enabled": "autotune",
        **{
            name: f"autotune_{name.replace('-', '_')}"
            for name in (
                "log-file",
                "warmup-samples",
                "steps-per-sample",
                "bayes-opt-max-samples",
                "gaussian-process-noise",
            )
        },
    },
    "timeline": {"filename": "timeline_filename", "mark-cycles": "timeline_mark_cycles"},
    "stall-check": {
        "enabled": "!no_stall_check",
        "warning-time-seconds": "stall_check_warning_time_seconds",
        "shutdown-time-seconds": "stall_check_shutdown_time_seconds",
    },
    "logging": {"level": "log_level", "with-timestamp": "!log_hide_time", "hide-timestamp": "log_hide_time"},
}
"""Sections of a configuration file; keys that are not listed are those of the command line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"horovodrun: {message}", hint="horovodrun --help lists the options")


def parser() -> argparse.ArgumentParser:
    """Return the parser; everything from the program's name on is ``command``."""
    made = _Parser(
        "horovodrun", allow_abbrev=False, argument_default=None, description=__doc__.split("\n")[0]
    )
    add = made.add_argument
    add("-v", "--version", action="store_true", help="print the version")
    add("-np", "--num-proc", dest="num_proc", type=int, help="number of ranks")
    add("-cb", "--check-build", action="store_true", help="say which controllers and frameworks are there")
    add(
        "--disable-cache",
        action="store_true",
        help="taken; nothing is cached: hosts are asked at every start",
    )
    add("--start-timeout", type=float, help="seconds until all ranks must have been started (30)")
    add(
        *("--network-interfaces", "--network-interface"),
        dest="nics",
        action=_More,
        help="names, divided by commas; may be given several times",
    )
    add("--output-filename", help="folder for each rank's output")
    add("--verbose", action="store_true", help="print the mpirun line and what is found out about hosts")
    add("--config-file", help="YAML with the same options; the command line wins")
    add("-p", "--ssh-port", type=int)
    add("-i", "--ssh-identity-file")
    add("-prefix-timestamp", "--prefix-output-with-timestamp", dest="prefix_timestamp", action="store_true")
    hosts = made.add_argument_group("hosts").add_mutually_exclusive_group()
    hosts.add_argument("-H", "--hosts", help="HOST:SLOTS,…")
    hosts.add_argument("-hostfile", "--hostfile", help="lines HOST slots=N")
    hosts.add_argument("--host-discovery-script", help="run every second; prints HOST or HOST:SLOTS lines")
    controllers = made.add_argument_group("controller").add_mutually_exclusive_group()
    for name in ("gloo", "mpi", "jsrun"):
        controllers.add_argument(f"--{name}", action="store_true")
    _add_mpi(made)
    _add_elastic(made)
    _add_knobs(made)
    add("command", nargs=argparse.REMAINDER, help="program and its arguments")
    return made


def _add_mpi(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("MPI")
    group.add_argument("--tcp", action="store_true", help="Spectrum MPI only")
    group.add_argument("--mpi-args", default="", help='more words for mpirun: --mpi-args="-x A --mca b c"')
    group.add_argument("--binding-args", default="", help="instead of -bind-to none -map-by slot")
    group.add_argument("--mpi-threads-disable", "--no-mpi-threads-disable", action=_Switch)


def _add_elastic(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("elastic: with a discovery script, or a least number of ranks")
    group.add_argument("--min-np", "--min-num-proc", dest="min_num_proc", type=int)
    group.add_argument("--max-np", "--max-num-proc", dest="max_num_proc", type=int)
    group.add_argument(
        "--slots-per-host", dest="slots", type=int, help="for hosts of the script without slots"
    )
    for name in ("--elastic-timeout", "--reset-limit"):
        group.add_argument(name, type=int)
    group.add_argument("--blacklist-cooldown-range", type=int, nargs=2, metavar=("MIN", "MAX"))


def _add_knobs(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("tuning: each sets a variable for the ranks")
    for name in ("fusion-threshold-mb", "cache-capacity", "num-nccl-streams", "gloo-timeout-seconds"):
        group.add_argument(f"--{name}", type=int)
    group.add_argument("--cycle-time-ms", type=float)
    group.add_argument("--thread-affinity", type=int)
    for name in ("hierarchical-allreduce", "hierarchical-allgather", "torus-allreduce"):
        group.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    group.add_argument("--autotune", "--no-autotune", action=_Switch)
    group.add_argument("--autotune-log-file")
    for name in ("warmup-samples", "steps-per-sample", "bayes-opt-max-samples"):
        group.add_argument(f"--autotune-{name}", type=int)
    group.add_argument("--autotune-gaussian-process-noise", type=float)
    group.add_argument("--timeline-filename")
    group.add_argument("--timeline-mark-cycles", "--no-timeline-mark-cycles", action=_Switch)
    group.add_argument("--no-stall-check", action="store_true", default=None)
    group.add_argument("--stall-check", dest="no_stall_check", action="store_false")
    group.add_argument("--stall-check-warning-time-seconds", type=int)
    group.add_argument("--stall-check-shutdown-time-seconds", type=int)
    group.add_argument("--log-level", choices=["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"])
    group.add_argument(
        "--log-with-timestamp", "--no-log-hide-timestamp", dest="log_hide_time", action="store_false"
    )
    group.add_argument(
        "--log-without-timestamp", "--log-hide-timestamp", dest="log_hide_time", action="store_true"
    )
    group.set_defaults(log_hide_time=None, no_stall_check=None)


class _More(argparse.Action):
    """Adds to a list divided by commas."""

    def __call__(self, _: Any, namespace: argparse.Namespace, value: Any, __: str | None = None) -> None:
        known = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{known},{value}" if known else value)


class _Switch(argparse.Action):
    """``--NAME`` and ``--no-NAME`` in one option."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, option_strings[0].lstrip("-").replace("-", "_"), nargs=0)

    def __call__(self, _: Any, namespace: argparse.Namespace, __: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, not (option or "").startswith("--no-"))


def knob_variables(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the variables of all tuning options that were given.

    Example:
        >>> knob_variables(parser().parse_args(["--fusion-threshold-mb", "32", "true"]))
        {'HOROVOD_FUSION_THRESHOLD': '33554432'}
    """
    found: dict[str, str] = {}
    for name, (variable, kind) in _KNOBS.items():
        value = getattr(arguments, name, None)
        if value is None:
            continue
        if kind == "switch":
            found[variable] = "1" if value else "0"
        else:
            found[variable] = str(value * 1024 * 1024 if kind == "mebibytes" else value)
    return found


def apply_config(arguments: argparse.Namespace, text: str, name: str) -> None:
    """Set options that the command line left out from a configuration file.

    Raises:
        UserError: a line cannot be read, or an option is unknown; the message has the line.
    """
    for number, path, value in read_settings(text, name):
        option = _option_of(path)
        invert = option.startswith("!")
        option = option.lstrip("!")
        if not hasattr(arguments, option) or option == "command":
            raise UserError(f"option `{'.'.join(path)}` is unknown", where=f"{name}:{number}")
        if getattr(arguments, option) in (None, False, ""):
            setattr(arguments, option, not value if invert else value)


def _option_of(path: Sequence[str]) -> str:
    aliases = {"np": "num_proc", "network-interfaces": "nics", "network-interface": "nics"}
    if len(path) == 2 and path[0] in _CONFIG_SECTIONS:
        option = _CONFIG_SECTIONS[path[0]].get(path[1])
        if option is not None:
            return option
    return aliases.get(path[-1], path[-1].replace("-", "_"))


_SETTING = re.compile(r"( *)([\w-]+) *:(?: +(.*))?$")


def read_settings(text: str, name: str) -> list[tuple[int, tuple[str, ...], Any]]:
    """Read the part of YAML that such files use: scalars, at the top or one level below a section.

    Returns:
        (line number, path of keys, value) in the order of the file.

    Raises:
        UserError: a line is anything else.
    """
    found: list[tuple[int, tuple[str, ...], Any]] = []
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        plain = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not plain or plain in ("---", "..."):
            continue
        match = _SETTING.match(plain)
        if match is None or (match.group(1) and not section):
            raise UserError("cannot read this line: only `key: value` in sections", where=f"{name}:{number}")
        indent, key, value = match.groups()
        if not indent and value is None:
            section = key
        else:
            section = section if indent else ""
            found.append((number, (section, key) if section else (key,), _scalar(value or "")))
    return found


def _scalar(text: str) -> Any:
    text = text.strip()
    if text.lower() in ("true", "yes", "on", "false", "no", "off"):
        return text.lower() in ("true", "yes", "on")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("\"'")
