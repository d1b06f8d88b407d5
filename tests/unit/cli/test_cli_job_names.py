"""Names of jobs: refused with a better one, and completed by the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from gangline.cli.group import gangline
from gangline.cli.jobs import job_names
from gangline.client.run.program_job import check_name
from gangline.cluster.paths import ClusterPaths
from gangline.cluster.runs.history import History
from gangline.cluster.runs.record import RunRecord
from gangline.errors import UserError

JOBS = [
    {"kind": "MPIJob", "metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": status}
    for name, status in [
        ("digits", {"conditions": [{"type": "Succeeded", "status": "True"}]}),
        ("digits-2", {}),
        ("pi", {}),
    ]
]


@pytest.mark.parametrize(("name", "better"), [("Bad_Name", "bad-name"), ("a.b", "a-b"), ("-x", "x")])
def test_a_name_that_no_host_can_have_is_refused_with_one_that_will_do(name: str, better: str) -> None:
    with pytest.raises(UserError) as caught:
        check_name(name)

    assert "--name must be lower-case letters, digits and inner dashes" in caught.value.message
    assert f"(found `{name}`)" in caught.value.message
    assert caught.value.hint == f"--name {better}"


@pytest.mark.parametrize("name", [None, "a", "0-digits"])
def test_other_names_pass(name: str | None) -> None:
    check_name(name)


def completions(*words: str, incomplete: str = "") -> list[tuple[str, str | None]]:
    complete = ShellComplete(gangline, {}, "gangline", "_GANGLINE_COMPLETE")
    return [(item.value, item.help) for item in complete.get_completions(list(words), incomplete)]


@pytest.fixture
def _cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))

    async def jobs(target: object) -> list[dict]:
        return JOBS

    monkeypatch.setattr(job_names, "_jobs", jobs)


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("command", ["logs", "get", "delete"])
def test_names_are_completed_with_their_status(command: str) -> None:
    assert completions(command, incomplete="dig") == [("digits", "succeeded"), ("digits-2", "pending")]


@pytest.mark.usefixtures("_cluster")
def test_past_runs_are_offered_where_a_command_takes_them() -> None:
    for uid, name in (("1" * 36, "digits"), ("2" * 36, "digits-past")):
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "creationTimestamp": "2026-11-22T12:00:00Z",
        }
        History(ClusterPaths.of()).write(RunRecord(job={"kind": "MPIJob", "metadata": metadata}))

    known = [("digits", "succeeded"), ("digits-2", "pending")]
    assert sorted(completions("logs", incomplete="dig")) == [*known, ("digits-past", "past run")]
    assert completions("delete", incomplete="dig") == known


@pytest.mark.usefixtures("_cluster")
def test_a_name_that_stands_there_already_is_not_offered_again() -> None:
    assert [name for name, _ in completions("delete", "digits")] == ["digits-2", "pi"]


def test_without_a_cluster_nothing_is_completed_and_nothing_printed(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))

    assert completions("logs") == []
    assert capfd.readouterr() == ("", "")
