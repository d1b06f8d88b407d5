"""The objects of ``gangline run --context C -- PROGRAM``: a Job whose pods are the ranks, and its code. Pure.

An indexed Job of ``batch/v1``, so that it runs on any Kubernetes without an operator or image of ours
or MPI: every pod unpacks the code from Secrets and starts its ranks by the image's own Python, see
``gangline.launch.pods.pod_ranks``. Those of an MPI program are started by the image's
``mpirun`` in the first pod. The Secrets belong to the job, go with it, and serve pods that come later.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from gangline.api.resources import SECRETS, SERVICES, TRAINING_RUNTIMES, Resource
from gangline.client.code.code_bundle import CodeBundle
from gangline.client.code.git_code import GitCode
from gangline.client.code.mpi_files import mpi_files
from gangline.client.run.pod_options import PodOptions
from gangline.client.run.program_job import GPU, literal
from gangline.client.run.program_kinds import PROGRAM_KINDS, Pods, ProgramKind
from gangline.launch.pods.programs import source_of
from gangline.launch.rank_tags import ANNOTATION as TAGS_ANNOTATION
from gangline.workloads.running_pod import RANKS_PER_POD

Obj = dict[str, Any]

CODE_FOLDER = "/code"
PIECES_FOLDER = "/run/gangline/pieces"
PROGRAMS_FOLDER = "/run/gangline/programs"
PROGRAMS = ("pod_ranks.py", "rank_supervisor.py", "unpack_code.py")
FIRST_POD_PROGRAMS = ("pod_gang.py", "rank_agent.py", "pod_mpi.py", "remote_shell.py")
GANG_LABEL = "pod-group.scheduling.sigs.k8s.io/name"
GANG_SIZE_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


class ClusterProgram(msgspec.Struct, frozen=True):
    """What to run on a cluster.

    Attributes:
        namespace: of all objects.
        image: of the pods; it needs Python 3.8 or newer.
        program: words as the user typed them.
        code: the user's folder; None where a volume claim has it.
        ranks: number of ranks in all.
        nodes: number of pods.
        gpus_per_rank: GPUs that each rank has for itself.
        environment: variables for every rank.
        pods: what the pods ask for beside.
        token: part of the names of what belongs to the job, so that two of one name never meet.
        git: the repository that has the code, where it does not travel.
        is_mpi: whether `mpirun` starts the ranks.
        key: by which its pods know each other: the files of the rank agent; empty where the first pod
            reaches no others.
        kind: word of its kind.
    """

    namespace: str
    image: str
    program: tuple[str, ...]
    code: CodeBundle | None
    ranks: int
    nodes: int
    gpus_per_rank: int
    environment: dict[str, str]
    pods: PodOptions
    token: str
    git: GitCode | None = None
    is_mpi: bool = False
    key: dict[str, str] = {}
    kind: str = next(iter(PROGRAM_KINDS))

    @property
    def kind_of_job(self) -> ProgramKind:
        """Its kind."""
        return PROGRAM_KINDS[self.kind]

    @property
    def per_pod(self) -> int:
        """Ranks of each pod; the last may have fewer."""
        return -(-self.ranks // self.nodes)

    def job(self, name: str) -> Obj:
        """Return the Job under a name; suspended until what belongs to it is there."""
        kind = self.kind_of_job
        spec = kind.spec(self._pods(name))
        notes = {TAGS_ANNOTATION: "true", RANKS_PER_POD: str(self.per_pod)}
        metadata: Obj = {"name": name, "namespace": self.namespace, "annotations": notes}
        if self.pods.queue:
            metadata["labels"] = {QUEUE_LABEL: self.pods.queue}
        return {**_type(kind.resource), "metadata": metadata, "spec": spec}

    def _pods(self, name: str) -> Pods:
        template = {"metadata": self._pod_metadata(name), "spec": self._pod_spec(name)}
        return Pods(self._name(name), self.nodes, self.per_pod, template, self.pods)

    def belongings(self, name: str, owner: Obj | None = None) -> list[tuple[Resource, Obj]]:
        """Return what belongs to the job of that name: its code, its variables, the names of its pods.

        Args:
            name: of the job.
            owner: the job as it was created, with which they go; None for objects without an owner.
        """
        programs = {one: source_of(one) for one in PROGRAMS}
        if self.is_mpi or self.key:
            programs |= {one: source_of(one) for one in FIRST_POD_PROGRAMS}
        if self.is_mpi:
            programs |= mpi_files(self.program, self.ranks, self.per_pod, self._hosts(name), PROGRAMS_FOLDER)
        found = [self._secret(self._name(name, "programs"), _encoded(programs), owner)]
        if self.key:
            found.append(self._secret(self._name(name, "key"), _encoded(self.key), owner))
        for index, piece in enumerate(self._pieces):
            found.append(self._secret(self._piece(name, index), {"piece": piece}, owner))
        if self.environment:
            found.append(self._secret(self._name(name, "env"), _encoded(self.environment), owner))
        if self._has_service:
            found.append(self._service(name, owner))
        if self.kind_of_job.runtime:
            spec = self.kind_of_job.runtime(self._pods(name))
            metadata = self._metadata(self._name(name), owner)
            runtime = {**_type(TRAINING_RUNTIMES), "metadata": metadata, "spec": spec}
            found.append((TRAINING_RUNTIMES, runtime))
        return found

    @property
    def _pieces(self) -> list[bytes]:
        return self.code.chunks() if self.code else []

    def _name(self, name: str, part: str = "") -> str:
        return "-".join(filter(None, (name, self.token, part)))

    def _piece(self, name: str, index: int) -> str:
        return self._name(name, f"code-{index:02}")

    def _hosts(self, name: str) -> list[str]:
        """Return the names by which pods reach each other."""
        if self.nodes == 1:
            return ["127.0.0.1"]
        return self.kind_of_job.hosts(name, self._name(name), self.nodes)

    @property
    def _has_service(self) -> bool:
        return self.nodes > 1 and not self.kind_of_job.has_operator

    def _pod_metadata(self, name: str) -> Obj:
        labels = {GANG_LABEL: name, GANG_SIZE_LABEL: str(self.nodes)} if self._has_service else {}
        return {"annotations": {TAGS_ANNOTATION: "true"}, **({"labels": labels} if labels else {})}

    def _pod_spec(self, name: str) -> Obj:
        line = [
            *("python3", f"{PROGRAMS_FOLDER}/{PROGRAMS[0]}"),
            *("--ranks", str(self.ranks), "--per-pod", str(self.per_pod), "--master", self._hosts(name)[0]),
            *(("--mpi",) if self.is_mpi else ("--hosts", ",".join(self._hosts(name))) if self.key else ()),
            *(("--restarts", str(self.pods.restarts)) if self.pods.restarts else ()),
            *(("--code", f"{PIECES_FOLDER},{CODE_FOLDER},{self.code.digest}") if self.code else ()),
            *(("--git", self.git.url, self.git.revision, CODE_FOLDER) if self.git else ()),
            "--",
        ]
        container: Obj = {
            "name": self.kind_of_job.container,
            "image": self.image,
            "workingDir": self.pods.code_folder or CODE_FOLDER,
            "command": [*line, *map(literal, self.program)],
            "volumeMounts": [
                {"name": "programs", "mountPath": PROGRAMS_FOLDER, "readOnly": True},
            ],
        }
        if self.environment:
            container["envFrom"] = [{"secretRef": {"name": self._name(name, "env")}}]
        spec: Obj = {
            "containers": [container],
            "volumes": [self._programs(name)],
        }
        if self.code:
            self._show_pieces(name, spec)
        if self.code or self.git:
            spec["volumes"].append({"name": "code", "emptyDir": {}})
            container["volumeMounts"].append({"name": "code", "mountPath": CODE_FOLDER})
        if self._has_service:
            spec["subdomain"] = self._name(name)
            if self.is_mpi:  # MPICH and Intel MPI look for the first pod by its bare name
                domain = f"{self._name(name)}.{self.namespace}.svc.cluster.local"
                spec["dnsConfig"] = {"searches": [domain]}
        self.pods.apply(spec, {GPU: self.per_pod * self.gpus_per_rank} if self.gpus_per_rank else {})
        return spec

    def _programs(self, name: str) -> dict[str, object]:
        names = [self._name(name, part) for part in ("programs", *(["key"] if self.key else []))]
        sources = [{"secret": {"name": one}} for one in names]
        # Executable, for `mpirun` starts one; readable for every user of the container.
        return {"name": "programs", "projected": {"sources": sources, "defaultMode": 0o555}}

    def _show_pieces(self, name: str, spec: Obj) -> None:
        """Give the pod the pieces of the code."""
        sources = [
            {
                "secret": {
                    "name": self._piece(name, index),
                    "items": [{"key": "piece", "path": f"{index:02}"}],
                }
            }
            for index in range(len(self._pieces))
        ]
        spec["volumes"].append({"name": "pieces", "projected": {"sources": sources}})
        mount = {"name": "pieces", "mountPath": PIECES_FOLDER, "readOnly": True}
        spec["containers"][0]["volumeMounts"].append(mount)

    def _secret(self, name: str, data: dict[str, bytes], owner: Obj | None) -> tuple[Resource, Obj]:
        metadata = self._metadata(name, owner)
        return SECRETS, {
            "apiVersion": "v1",
            "kind": SECRETS.kind,
            "metadata": metadata,
            "immutable": True,
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }

    def _service(self, name: str, owner: Obj | None) -> tuple[Resource, Obj]:
        """Return the service whose domain the pods are in; rank 0 is met before its pod is ready."""
        return SERVICES, {
            "apiVersion": "v1",
            "kind": SERVICES.kind,
            "metadata": self._metadata(self._name(name), owner),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {"batch.kubernetes.io/job-name": name},
            },
        }

    def _metadata(self, name: str, owner: Obj | None) -> Obj:
        metadata: Obj = {"name": name, "namespace": self.namespace}
        if owner is not None:
            metadata["ownerReferences"] = [
                {
                    **_type(self.kind_of_job.resource),
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                }
            ]
        return metadata


def _type(resource: Resource) -> Obj:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _encoded(texts: dict[str, str]) -> dict[str, bytes]:
    return {key: text.encode() for key, text in texts.items()}
