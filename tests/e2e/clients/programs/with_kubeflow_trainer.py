"""Kubeflow's newer SDK: runtimes, a function sent as a TrainJob, its status, log and end, one that fails."""

from kubeflow.trainer import CustomTrainer, KubernetesBackendConfig, TrainerClient

own = TrainerClient(backend_config=KubernetesBackendConfig(namespace="default"))

assert "torch-distributed" in [runtime.name for runtime in own.list_runtimes()]
runtime = own.get_runtime("torch-distributed")
assert runtime.trainer.framework == "torch", runtime


def train(greeting, fails=False):
    import os
    import time

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

own.delete_job(name)
assert own.list_jobs() == []
