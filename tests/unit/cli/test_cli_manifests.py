"""Broken manifests are refused with every error, its place and a hint, before anything is created."""

from decimal import Decimal

import pytest

from gangline.api.codec import load_documents
from gangline.client.manifests import check_manifests, in_order, read_manifests, with_namespace
from gangline.client.run.images import image_check
from gangline.cluster.images.image_map import ImageMap
from gangline.errors import InvalidObjectError, ManifestError, UserError
from gangline.workloads.capacity import gang_never_fits, never_fits, pod_requests

image_problem = image_check(ImageMap())

JOB = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - {name: main, image: gangline/base, command: [mpirun, -n, "4", hostname]}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - {name: main, image: gangline/base}
"""


def refused(text, *, is_local=True):
    with pytest.raises(InvalidObjectError) as caught:
        check_manifests(load_documents(text, file="job.yaml"), is_local=is_local, image_problem=image_problem)
    return caught.value


def test_a_good_job_passes():
    check_manifests(load_documents(JOB), is_local=True, image_problem=image_problem)


@pytest.mark.parametrize(
    ("old", "new", "path", "part"),
    [
        ("kind: MPIJob", "kind: MPIjob", "kind", "did you mean `MPIJob`?"),
        ("kind: MPIJob", "kind: JAXJob", "kind", "nothing here runs a JAXJob: it needs its own operator"),
        ("kubeflow.org/v2beta1", "kubeflow.org/v2", "apiVersion", "kubeflow.org/v2beta1"),
        ("{name: pi}", "{nam: pi}", "metadata.name", "did you mean `name` instead of `nam`?"),
        ("{name: pi}", "{}", "metadata.name", "needs a name"),
        ("kind: MPIJob", "sort: MPIJob", "kind", "every object"),
        ("slotsPerWorker: 2", "slotsPerWorker: two", "spec.slotsPerWorker", ""),
        ("slotsPerWorker: 2", "slotsPerWorker: 0", "spec.slotsPerWorker", "at least 1"),
        ('"4", hostname', '"5", hostname', "command", "room for 4"),
        (', command: [mpirun, -n, "4", hostname]', "", "command", "mpirun"),
        ("{name: main, image: gangline/base}", "{name: main}", "image", ""),
        (
            "{name: main, image: gangline/base}",
            "{name: main, image: gangline/bse}",
            "image",
            "nothing on this machine serves this image",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_field_and_place(old, new, path, part):
    error = refused(JOB.replace(old, new, 1))
    assert error.exit_code == 2
    assert any(path in one.path and part in one.message for one in error.errors), error.render()
    assert all(one.where.startswith("job.yaml:") for one in error.errors)


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_job_of_an_old_version_passes_and_what_is_passed_over_is_said(version):
    said: list[str] = []
    text = JOB.replace("v2beta1", version).replace("spec:", "spec:\n  cleanPodPolicy: All\n  colour: red", 1)

    documents = load_documents(text, file="job.yaml")
    check_manifests(documents, is_local=True, image_problem=image_problem, say=said.append)

    assert said == ["warning: mpijob/pi: spec.colour: Invalid: unknown field at job.yaml:6:3"]


V1ALPHA1 = """\
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata: {name: pi}
spec:
  replicas: 2
  template: {spec: {containers: [{name: main, image: gangline/base, command: [mpirun, -n, "2", hostname]}]}}
"""


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('"2"', '"3"', "spec.template.spec.containers[0].command"),
        ("gangline/base", "elsewhere", "spec.template.spec.containers[0].image"),
        ("replicas: 2", "gpus: 3, gpusPerNode: 2", "spec.gpus"),
    ],
)
def test_a_broken_rule_of_the_first_version_is_named_at_its_one_template(old, new, path):
    check_manifests(load_documents(V1ALPHA1), is_local=True, image_problem=image_problem)
    text = V1ALPHA1.replace(old, new).replace("gpus: 3, gpus", "gpus: 3\n  gpus")

    assert [error.path for error in refused(text).errors] == [path]


def test_every_error_of_every_object_is_said_at_once():
    broken = JOB.replace("slotsPerWorker: 2", "slotsPerWorker: 0").replace("replicas: 2", "replicas: many")
    error = refused(f"{broken}---\napiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec: {{}}\n")
    paths = [one.path for one in error.errors]
    assert "spec.slotsPerWorker" in paths
    assert "spec.mpiReplicaSpecs[Worker].replicas" in paths
    assert "spec.containers" in paths
    assert "MPIJob `pi` and Pod `x`" in error.message


def test_an_unknown_image_near_a_known_one_is_hinted_at():
    assert refused(JOB.replace("gangline/base", "gangline/bse")).hint == "did you mean `gangline/base`?"


def test_images_and_kinds_are_the_other_clusters_concern_with_a_context():
    text = (
        JOB.replace("gangline/base", "registry.example.com/mpi:1")
        + "---\napiVersion: apps/v1\nkind: Deployment\n"
    )
    check_manifests(load_documents(text + "metadata: {name: d}\n"), is_local=False)


def test_the_same_object_twice_is_refused():
    assert any(one.reason == "Duplicate" for one in refused(f"{JOB}---\n{JOB}").errors)


def test_a_job_needs_a_restart_policy_that_ends():
    text = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n"
        "      containers: [{name: m, image: gangline/base, command: ['true']}]\n"
    )
    assert refused(text).errors[0].path == "spec.template.spec.restartPolicy"
    check_manifests(
        load_documents(f"{text}      restartPolicy: Never\n"),
        is_local=True,
        image_problem=image_problem,
    )


def test_broken_yaml_says_file_line_and_column(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("kind: MPIJob\nmetadata: {name: x\n")
    with pytest.raises(ManifestError) as caught:
        read_manifests([str(path)])
    assert caught.value.where.startswith(f"{path}:3:")


def test_a_folder_means_its_manifests_and_an_empty_one_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text(JOB)
    (tmp_path / "b.txt").write_text("no manifest")
    assert [document.name for document in read_manifests([str(tmp_path)])] == ["pi"]
    (tmp_path / "a.yaml").unlink()
    with pytest.raises(UserError, match="no manifest in folder"):
        read_manifests([str(tmp_path)])


def test_objects_are_created_in_the_order_in_which_they_need_each_other():
    kinds = ["MPIJob", "ConfigMap", "Service", "Namespace", "Pod"]
    text = "---\n".join(f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: x}}\n" for kind in kinds)
    ordered = [document.kind for document in in_order(load_documents(text))]
    assert ordered == ["Namespace", "ConfigMap", "Service", "MPIJob", "Pod"]


def test_a_namespace_is_filled_in_only_where_none_is_named():
    text = f"{JOB}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: team}}\n"
    filled = with_namespace(load_documents(text), "team")
    assert [document.value["metadata"].get("namespace") for document in filled] == ["team", None]


def test_what_no_node_has_never_fits():
    node = {"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}}
    spec = {"containers": [{"resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "1Gi"}}}] * 2}
    amounts = pod_requests(spec)
    assert amounts == {"cpu": Decimal(3), "memory": Decimal(2 << 30)}
    assert never_fits(amounts, [node]) == "cpu 3, the largest node has 2"
    assert never_fits({"memory": Decimal(1 << 30)}, [node]) == ""
    assert never_fits({"nvidia.com/gpu": Decimal(1)}, [node]) == "nvidia.com/gpu 1, the largest node has 0"


def test_the_header_spells_the_kind_as_the_manifest_does():
    assert (
        refused(JOB.replace("slotsPerWorker: 2", "slotsPerWorker: 0")).message == "MPIJob `pi` breaks 1 rule"
    )


def test_a_folder_without_manifests_says_so(tmp_path):
    (tmp_path / "train.py").touch()
    with pytest.raises(UserError, match="no manifest in folder") as caught:
        read_manifests([str(tmp_path)])
    assert "python train.py" in caught.value.hint


def test_pods_that_start_together_must_fit_together():
    nodes = [{"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}}] * 2
    one = pod_requests({"containers": [{"resources": {"requests": {"cpu": "1"}}}]})

    assert gang_never_fits([(one, 3), (one, 1)], nodes) == ""
    assert gang_never_fits([(one, 4), (one, 1)], nodes) == "cpu 5, all nodes have 4"
    assert gang_never_fits([({}, 100)], nodes) == ""
