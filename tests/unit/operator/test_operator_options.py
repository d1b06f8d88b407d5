"""The MPI operator's options are understood as they stand in its Deployments and scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.cli.serve.operator import OF_GO_LOGS, WITHOUT_EFFECT, command


def test_one_dash_or_two_as_in_go(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.touch()
    arguments = ["-alsologtostderr", "-v=4", "-threadiness=2", "-monitoring-port", "9443"]
    arguments += ["-kubeConfig", str(kubeconfig), "--master", "https://host", "--gang-scheduling", "volcano"]

    options = command.make_context("operator", arguments).params

    assert options["workers"] == 2
    assert options["metrics_port"] == 9443
    assert options["kubeconfig"] == kubeconfig
    assert options["master"] == "https://host"
    assert options["gang_scheduling"] == "volcano"


@pytest.mark.parametrize("name", [*WITHOUT_EFFECT, *OF_GO_LOGS])
def test_options_without_effect_are_taken(name: str) -> None:
    options = command.make_context("operator", [f"-{name}=5"]).params

    assert options[name.replace("-", "_")] is not None


def test_the_namespace_of_the_environment_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEFLOW_NAMESPACE", "team")

    assert command.make_context("operator", []).params["namespace"] == "team"
    assert command.make_context("operator", ["-namespace", "other"]).params["namespace"] == "other"
