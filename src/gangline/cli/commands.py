"""The table of commands: what ``--help`` shows and where each command lives.

The table is static so that help and completion import no command.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """One command of the table.

    Attributes:
        module: module under ``gangline.cli`` whose ``command`` is the click command.
        summary: the line that ``gangline --help`` shows.
        section: heading under which it is shown; empty hides it.
    """

    module: str
    summary: str
    section: str


COMMANDS: dict[str, CommandEntry] = {
    "run": CommandEntry(
        "run.command", "run manifests, or a command on N ranks, and wait for the result", "Jobs"
    ),
    "apply": CommandEntry("apply", "create or change the objects of manifests, without waiting", "Jobs"),
    "submit": CommandEntry("submit.command", "submit an MPIJob in arena's words", "Jobs"),
    "list": CommandEntry("list", "list jobs", "Jobs"),
    "get": CommandEntry("get", "show one job and its instances", "Jobs"),
    "logs": CommandEntry("logs.command", "print the log of a job's launcher, or of a pod", "Jobs"),
    "exec": CommandEntry("pods.exec", "run a program in a running pod of a job", "Jobs"),
    "shell": CommandEntry("pods.shell", "open a shell in a running pod of a job", "Jobs"),
    "port-forward": CommandEntry(
        "pods.port_forward", "lead a port of this machine to one of a job's pod", "Jobs"
    ),
    "runs": CommandEntry(
        "runs.command", "list what ran, also after its job is gone, and how it ended", "Jobs"
    ),
    "page": CommandEntry("page", "open the web page: jobs, logs, curves, nodes", "Jobs"),
    "top": CommandEntry("top.command", "show the GPUs of nodes and jobs", "Jobs"),
    "explain": CommandEntry(
        "explain.command", "say why a job waits, and what its placement is worth", "Jobs"
    ),
    "delete": CommandEntry("delete", "delete jobs and what belongs to them", "Jobs"),
    "launch": CommandEntry("launch", "run a command as ranks on hosts over ssh, without Kubernetes", "Hosts"),
    "check": CommandEntry("check", "say whether hosts are fit for ranks, and what is wrong", "Hosts"),
    "up": CommandEntry("up", "start the one-machine cluster and keep it", "This machine"),
    "down": CommandEntry("down", "stop the one-machine cluster", "This machine"),
    "status": CommandEntry(
        "status", "show the one-machine cluster, its nodes and its processes", "This machine"
    ),
    "metrics": CommandEntry("metrics", "print every process' figures, or how to scrape them", "This machine"),
    "node": CommandEntry("node", "make simulated GPUs unhealthy, or healthy again", "This machine"),
    "store": CommandEntry("store", "print what can be read of a damaged store", "This machine"),
    "kubeconfig": CommandEntry("kubeconfig", "print a kubeconfig that kubectl can use", "This machine"),
    "operator": CommandEntry("serve.operator", "run the job operator against a cluster", "Services"),
    "scheduler": CommandEntry("serve.scheduler", "run the scheduler against a cluster", "Services"),
    "page-server": CommandEntry("serve.page_server", "serve the web page in a cluster", "Services"),
    "device-plugin": CommandEntry("serve.device_plugin", "serve a node's GPUs to its kubelet", "Services"),
    "install": CommandEntry("install.install", "install operator and scheduler on a cluster", "Services"),
    "upgrade": CommandEntry("install.upgrade", "bring them to this version", "Services"),
    "uninstall": CommandEntry("install.uninstall", "take them from a cluster again", "Services"),
    "image": CommandEntry("install.image", "push an image to a cluster's registry", "Services"),
    "crds": CommandEntry("install.crds", "print the custom resource definitions", "Services"),
    "topology": CommandEntry("topology", "show what the links between the GPUs of a machine carry", "Other"),
    "simulate": CommandEntry("simulate", "replay a day of jobs on a simulated cluster", "Other"),
    "bench": CommandEntry(
        "bench.command", "make benchmark data, measure scaling and wires, draw results", "Other"
    ),
    "completion": CommandEntry("completion", "print the completion script of a shell", "Other"),
    "version": CommandEntry("version", "show the versions of Gangline, Python and the MPI found", "Other"),
    "serve-cluster": CommandEntry("serve.cluster", "", ""),
    "serve-agent": CommandEntry("serve.cluster", "", ""),
    "serve-page": CommandEntry("serve.page", "", ""),
}

SECTIONS: tuple[str, ...] = ("Jobs", "Hosts", "This machine", "Services", "Other")

ALIASES: dict[str, str] = {"ls": "list", "log": "logs", "del": "delete", "ps": "list", "history": "runs"}
"""Other names of commands: arena's short ones, and what people type who come from docker and shells."""

ARENAS = ("submit", "list", "get", "logs", "top", "delete", "completion", "version")
"""The commands that `arena` has too; the program of that name has no others."""

ELSEWHERE: dict[str, str] = {
    "stop": "gangline delete NAME",
    "cancel": "gangline delete NAME",
    "kill": "gangline delete NAME",
    "rm": "gangline delete NAME",
    "describe": "gangline get -e NAME",
    "attach": "gangline logs -f NAME",
}
"""Commands of other tools, and what does the same here; nothing ends a job on a guess."""
