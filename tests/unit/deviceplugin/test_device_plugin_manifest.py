"""deploy/device-plugin.yaml fits the command that it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.cli.commands import COMMANDS
from gangline.cli.serve.device_plugin import command
from gangline.deviceplugin.node_pods import POD_LOGS, POD_RESOURCES_SOCKET
from gangline.devices.inventory import PLUGIN_FOLDER
from gangline.errors import UserError

MANIFEST = Path(__file__).parents[3] / "deploy/device-plugin.yaml"


@pytest.fixture
def pod() -> Any:
    *_, daemon_set = yaml.safe_load_all(MANIFEST.read_text())
    return daemon_set["spec"]["template"]["spec"]


def test_it_starts_a_command_with_options_that_it_has(pod: Any) -> None:
    (container,) = pod["containers"]
    program, name, *options = [*container["command"], *container["args"]]

    assert (program, COMMANDS[name].module) == ("gangline", "serve.device_plugin")
    assert command.make_context("device-plugin", ["--folder", str(MANIFEST.parent), *options])


def test_it_mounts_the_folder_of_the_kubelet_where_the_command_looks(pod: Any) -> None:
    (container,), paths = pod["containers"], [PLUGIN_FOLDER, str(POD_RESOURCES_SOCKET.parent)]

    assert [volume["hostPath"] for volume in pod["volumes"][:2]] == [
        {"path": path, "type": "Directory"} for path in paths
    ]
    assert [mount["mountPath"] for mount in container["volumeMounts"][:2]] == paths


def test_it_may_read_the_logs_in_which_trainings_tell_of_their_checkpoints(pod: Any) -> None:
    assert pod["volumes"][2]["hostPath"]["path"] == str(POD_LOGS)
    assert pod["containers"][0]["volumeMounts"][2] == {
        "name": "pod-logs",
        "mountPath": str(POD_LOGS),
        "readOnly": True,
    }


def test_a_user_who_may_not_make_sockets_is_told_to_be_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)

    with pytest.raises(UserError, match="may not make the plugin's socket in") as refused:
        command.main(["--folder", str(tmp_path)], standalone_mode=False)

    assert "runAsUser: 0" in refused.value.hint
