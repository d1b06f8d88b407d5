"""How ranks get into workers that run no ssh server.

MPIJobs of old versions had their ranks started through the exec API of Kubernetes, by a script that the
launcher used in place of ssh. Here the script asks the rank agent of the worker, a program of the standard
library that the job brings along (``gangline.launch.pods.rank_agent``); on the one-machine cluster the remote
shell takes its place. An annotation asks for the agent in a job of today.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from gangline.api.mpijob import MPIJob
from gangline.jobs.names import CERTIFICATE_KEY, PRIVATE_KEY, Names
from gangline.jobs.settings import Settings

Object = dict[str, Any]

TRANSPORT_ANNOTATION: Final = "gangline.dev/rank-transport"
"""``agent``: the image has Python and no ssh server. All else leaves the choice to the job's version."""
KUBEXEC_KEY: Final = "kubexec.sh"
KUBEXEC_SCRIPT: Final = """\
#!/bin/sh
# Stands where old MPIJobs expect the script that runs a command in another pod: HOST COMMAND...
agent="${GANGLINE_AGENT:-/etc/gangline/agent}/rank_agent.py"
[ -f "$agent" ] || exec gangline-rsh "$@"
command -v python3 >/dev/null || { echo "gangline: this image has no python3" >&2; exit 127; }
exec python3 -I "$agent" run "$@"
"""
AGENT_FOLDER: Final = "/etc/gangline/agent"
AGENT_PROGRAMS: Final = ("rank_agent.py", "rank_supervisor.py", "remote_shell.py")
_VOLUME: Final = "rank-agent"


def with_transport(job: MPIJob, settings: Settings) -> MPIJob:
    """Return the job as its ranks are reached: by what it says, or by the version that it was written in."""
    needs_exec = job.needs_exec or job.metadata.annotations.get(TRANSPORT_ANNOTATION) == "agent"
    has_agent = needs_exec and job.worker_count > 0 and not settings.has_remote_shell
    return replace(job, needs_exec=needs_exec, has_agent=has_agent)


def add_agent(job: MPIJob, pod: Object) -> None:
    """Show the agent and the job's key in the first container of a pod."""
    names = Names.of(job)
    key = [{"key": PRIVATE_KEY, "path": "agent.key"}, {"key": CERTIFICATE_KEY, "path": "agent.crt"}]
    programs = [{"key": name, "path": name} for name in AGENT_PROGRAMS]
    sources = [
        {"secret": {"name": names.secret, "items": key}},
        {"configMap": {"name": names.config_map, "items": programs}},
    ]
    # Readable for every user of the container, as the program is; the key is the job's alone.
    volume: Object = {"name": _VOLUME, "projected": {"sources": sources, "defaultMode": 0o444}}
    pod["volumes"].append(volume)
    pod["containers"][0]["volumeMounts"].append({"name": _VOLUME, "mountPath": AGENT_FOLDER})


def serve_agent(main: Object) -> None:
    """Have a worker's container serve the agent beside its own command."""
    own = [*(main.get("command") or []), *(main.pop("args", None) or [])] if main.get("command") else []
    main["command"] = ["python3", "-I", f"{AGENT_FOLDER}/{AGENT_PROGRAMS[0]}", "serve", "--", *own]
