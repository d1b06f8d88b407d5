"""Kubeconfig files: merging, relative paths, credentials, plain errors."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from gangline.kube import config
from gangline.kube.config import in_cluster, load_kubeconfig
from gangline.kube.errors import KubeconfigError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FULL = f"""
apiVersion: v1
kind: Config
current-context: one
contexts:
- name: one
  context: {{cluster: c1, user: u1, namespace: team}}
- name: two
  context: {{cluster: c2, user: u2}}
clusters:
- name: c1
  cluster:
    server: https://10.0.0.1:6443
    certificate-authority-data: {b64("CA")}
- name: c2
  cluster: {{server: "https://two", insecure-skip-tls-verify: true, tls-server-name: inner, proxy-url: "http://p:1"}}
users:
- name: u1
  user: {{token: secret, client-certificate-data: {b64("CERT")}, client-key: keys/key.pem}}
- name: u2
  user:
    tokenFile: token
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ./plugin
      args: [a, b]
      env: [{{name: X, value: "1"}}]
      interactiveMode: Never
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_the_current_context_counts(tmp_path: Path) -> None:
    connection = load_kubeconfig(write(tmp_path / "config", FULL))

    assert connection.server == "https://10.0.0.1:6443"
    assert connection.namespace == "team"
    assert connection.ca_data == b"CA"
    assert connection.token == "secret"
    assert connection.client_cert == b"CERT"
    assert connection.client_key == tmp_path / "keys/key.pem"


def test_a_named_context_wins(tmp_path: Path) -> None:
    connection = load_kubeconfig(write(tmp_path / "config", FULL), "two")

    assert (connection.server, connection.insecure, connection.namespace) == ("https://two", True, "default")
    assert (connection.tls_server_name, connection.proxy_url) == ("inner", "http://p:1")
    assert connection.token_file == tmp_path / "token"
    plugin = connection.exec_plugin
    assert plugin and plugin.command == ("./plugin", "a", "b")
    assert (plugin.env, plugin.folder) == ((("X", "1"),), tmp_path)


def test_the_first_file_of_a_list_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(
        tmp_path / "first",
        "contexts: [{name: one, context: {cluster: c1, user: u1, namespace: mine}}]\nusers: null\n",
    )
    second = write(tmp_path / "second", FULL)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{first}:{second}")
    connection = load_kubeconfig()

    assert (connection.namespace, connection.server) == ("mine", "https://10.0.0.1:6443")


def test_the_home_folder_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "home/.kube").mkdir(parents=True)
    write(tmp_path / "home/.kube/config", FULL)

    assert load_kubeconfig().token == "secret"


@pytest.mark.parametrize(
    ("text", "context", "want"),
    [
        (FULL, "three", "no context `three`"),
        ("contexts: []", None, "no current context"),
        ("a: [", None, "cannot be read as a kubeconfig"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: y}}]", None, "no cluster `y`"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, context: str | None, want: str) -> None:
    with pytest.raises(KubeconfigError, match=want):
        load_kubeconfig(write(tmp_path / "config", text), context)


def test_no_file_at_all_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="no kubeconfig") as caught:
        load_kubeconfig(tmp_path / "config")

    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    assert "secret" not in repr(load_kubeconfig(write(tmp_path / "config", FULL)))


def test_a_pod_finds_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "t"), ("ca.crt", "CA"), ("namespace", "team\n")):
        write(tmp_path / name, text)
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    connection = in_cluster()

    assert connection.server == "https://[fd00::1]:6443"
    assert (connection.namespace, connection.ca_data) == ("team", b"CA")
    assert connection.token_file == tmp_path / "token"


def test_outside_of_a_pod_there_is_no_such_server() -> None:
    with pytest.raises(KubeconfigError, match="no pod"):
        in_cluster()
