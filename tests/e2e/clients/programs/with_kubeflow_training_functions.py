"""Kubeflow's SDK: a function sent as a job, its failure told, an MPIJob of v1, a job changed and deleted."""

from kubeflow import training

from kubernetes import client

LIMIT_S = 120
own = training.TrainingClient(namespace="default")


def train(words):
    import os

    print("trained", os.environ.get("RANK"), os.environ.get("WORLD_SIZE"), words["greeting"])
    if words.get("fails"):
        raise SystemExit(3)


def sent(name, kind, workers, **words):
    own.create_job(
        name=name,
        job_kind=kind,
        base_image="gangline/base",
        train_func=train,
        parameters={"greeting": "hi", **words},
        num_workers=workers,
    )


# The SDK starts several workers of torch by `torchrun`, which is not here; TFJobs by `python`.
sent("one", "PyTorchJob", 1)
own.wait_for_job_conditions("one", wait_timeout=LIMIT_S, polling_interval=1, job_kind="PyTorchJob")
logs, _ = own.get_job_logs("one", job_kind="PyTorchJob")
assert list(logs) == ["one-master-0"] and "trained 0 1 hi" in logs["one-master-0"], logs

sent("three", "TFJob", 3)
own.wait_for_job_conditions("three", wait_timeout=LIMIT_S, polling_interval=1, job_kind="TFJob")
assert sorted(own.get_job_pod_names("three")) == [f"three-worker-{index}" for index in range(3)]
assert own.get_job_pod_names("three", is_master=True) == ["three-worker-0"]
logs, _ = own.get_job_logs("three", job_kind="TFJob", is_master=False, replica_type="worker", replica_index=2)
assert "trained None None hi" in logs["three-worker-2"], logs

# One that fails says so at once; the master's policy is OnFailure by default, so that it is tried again.
sent("bad", "TFJob", 1, fails=True)
try:
    own.wait_for_job_conditions("bad", wait_timeout=LIMIT_S, polling_interval=1, job_kind="TFJob")
except RuntimeError as error:
    assert "is Failed" in str(error) or "Failed" in str(error), error
else:
    raise AssertionError("a job that fails has to be told")
failed = own.get_job_conditions("bad", job_kind="TFJob")[-1]
assert (failed.type, failed.reason) == ("Failed", "TFJobFailed"), failed

main = client.V1Container(
    name="mpi",
    image="gangline/base",
    command=["mpirun", "-n", "2", "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK"],
)
worker = client.V1Container(name="mpi", image="gangline/base")


def role(container, replicas):
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container]))
    return training.KubeflowOrgV1ReplicaSpec(replicas=replicas, restart_policy="Never", template=template)


job = training.KubeflowOrgV1MPIJob(
    api_version="kubeflow.org/v1",
    kind="MPIJob",
    metadata=client.V1ObjectMeta(name="mpi", namespace="default"),
    spec=training.KubeflowOrgV1MPIJobSpec(
        run_policy=training.KubeflowOrgV1RunPolicy(clean_pod_policy="None"),
        slots_per_worker=1,
        mpi_replica_specs={"Launcher": role(main, 1), "Worker": role(worker, 2)},
    ),
)
own.create_job(job, namespace="default")
own.wait_for_job_conditions("mpi", wait_timeout=LIMIT_S, polling_interval=1, job_kind="MPIJob")
# Its launcher has the role `launcher`, as the MPI operator writes it, and not `master`.
logs, _ = own.get_job_logs("mpi", job_kind="MPIJob", is_master=False)
assert any("rank 0" in text and "rank 1" in text for text in logs.values()), logs

for name, kind in {"one": "PyTorchJob", "three": "TFJob", "bad": "TFJob", "mpi": "MPIJob"}.items():
    own.delete_job(name, job_kind=kind)
assert not own.list_jobs(job_kind="TFJob")
