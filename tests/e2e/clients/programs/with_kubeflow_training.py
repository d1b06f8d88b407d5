"""Kubeflow's SDK: jobs of two kinds made, waited for, listed, read and deleted."""

from kubeflow import training

from kubernetes import client

LIMIT_S = 120
KEPT = training.KubeflowOrgV1RunPolicy(clean_pod_policy="None")
JOBS = {
    "PyTorchJob": (
        training.KubeflowOrgV1PyTorchJob,
        lambda roles: training.KubeflowOrgV1PyTorchJobSpec(pytorch_replica_specs=roles, run_policy=KEPT),
        ("pytorch", {"Master": 1}, "echo rank $RANK of $WORLD_SIZE", "rank 0 of 1"),
    ),
    "TFJob": (
        training.KubeflowOrgV1TFJob,
        lambda roles: training.KubeflowOrgV1TFJobSpec(tf_replica_specs=roles, run_policy=KEPT),
        ("tensorflow", {"Worker": 2}, "echo said $TF_CONFIG", '"index":0'),
    ),
}
"""Kind -> its model and specification; container, replicas, command, and a piece of the first one's log."""

own = training.TrainingClient()
for kind, (model, specified, (container, replicas, command, said)) in JOBS.items():
    name = f"by-{kind.lower()}"
    main = client.V1Container(name=container, image="gangline/base", command=["sh", "-c", command])
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[main]))
    roles = {
        role: training.KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy="Never", template=template)
        for role, count in replicas.items()
    }
    meta = client.V1ObjectMeta(name=name, namespace="default")
    job = model(api_version="kubeflow.org/v1", kind=kind, metadata=meta, spec=specified(roles))
    about = {"job_kind": kind, "namespace": "default"}
    own.create_job(job, namespace="default")
    own.wait_for_job_conditions(name, wait_timeout=LIMIT_S, polling_interval=1, **about)
    assert own.is_job_succeeded(name, **about)
    assert [one.metadata.name for one in own.list_jobs(**about)] == [name]
    logs, _ = own.get_job_logs(name, **about)
    assert any(said in text for text in logs.values()), logs
    own.delete_job(name, **about)
