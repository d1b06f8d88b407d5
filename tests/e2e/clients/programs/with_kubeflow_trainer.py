"""Kubeflow's newer SDK: runtimes, a function sent as a TrainJob, its status, log and end, one that fails."""

from kubeflow.trainer import CustomTrainer, KubernetesBackendConfig, TrainerClient

from kubernetes import client

own = TrainerClient(backend_config=KubernetesBackendConfig(namespace="default"))

assert "torch-distributed" in [runtime.name for runtime in own.list_runtimes()]
runtime = own.get_runtime("torch-distributed")
assert runtime.trainer.framework == "torch", runtime


def train(greeting, fails=False):
    import json
    import os
    import pathlib
    import ssl
    import time
    import urllib.request

    # As documented for programs without the SDK, which is not in the pods here.
    told = {"progressPercentage": 40, "metrics": [{"name": "loss", "value": "0.5"}]}
    token = pathlib.Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text()
    login = {"Authorization": f"Bearer {token}"}
    body = json.dumps({"trainerStatus": told}).encode()
    asked = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], body, login)
    known = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    with urllib.request.urlopen(asked, context=known) as answer:
        assert answer.status == 200, answer.status

    print("trained", os.environ.get("RANK"), os.environ.get("WORLD_SIZE"), greeting, flush=True)
    time.sleep(3)
    if fails:
        raise SystemExit(3)


def sent(**words):
    trainer = CustomTrainer(func=train, func_args={"greeting": "hi", **words}, num_nodes=2)
    return own.train(trainer=trainer, runtime=runtime)


name = sent()
assert own.wait_for_job_status(name, status={"Running"}, timeout=60, polling_interval=1).num_nodes == 2
done = own.wait_for_job_status(name, timeout=60, polling_interval=1)
assert done.status == "Complete", done
assert sorted(step.name for step in done.steps) == ["node-0", "node-1"], done.steps
for index in (0, 1):
    lines = list(own.get_job_logs(name, step=f"node-{index}"))
    assert lines == [f"trained {index} 2 hi"], lines
assert [job.name for job in own.list_jobs()] == [name]
assert own.get_job_events(name)
status = client.CustomObjectsApi().get_namespaced_custom_object(
    "trainer.kubeflow.org", "v1alpha1", "default", "trainjobs", name
)["status"]["trainerStatus"]
assert status["progressPercentage"] == 40, status
assert status["metrics"] == [{"name": "loss", "value": "0.5"}], status

bad = sent(fails=True)
assert own.wait_for_job_status(bad, status={"Failed"}, timeout=120, polling_interval=1).status == "Failed"
own.delete_job(bad)

own.delete_job(name)
assert own.list_jobs() == []
