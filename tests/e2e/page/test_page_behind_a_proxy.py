"""The page behind oauth2-proxy, by a name of its own and TLS: the real proxy, a stand-in for the provider.

The stand-in's ID tokens are tokens of service accounts, which the cluster signs and takes: they stand for
those of a provider that the API server trusts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from .conftest import LIMIT_MS, NAME, forwarded, wait_until
from .stand_in_provider import Provider, serving

pytestmark = pytest.mark.browser
CLIENT = "gangline-page"
API = "https://kubernetes.default.svc"
ISSUER = "https://kubernetes.default.svc.cluster.local"


@pytest.fixture(scope="module")
def program() -> str:
    """oauth2-proxy, as tests/e2e/page/build.sh makes it."""
    folder = os.environ.get("GANGLINE_OAUTH2_PROXY", "")
    found = shutil.which("oauth2-proxy", path=folder) or shutil.which("oauth2-proxy")
    if found is None:
        pytest.skip("no oauth2-proxy on the PATH; `make test-page-proxy` builds it")
    return found


@pytest.fixture(scope="module")
def provider(cluster: Any, tokens: dict[str, str]) -> Iterator[Provider]:
    """The stand-in; of user `stranger` the cluster takes no token."""

    def token(user: str) -> str:
        audiences = [CLIENT] if user == "stranger" else [API, CLIENT]
        words = [f"--audience={one}" for one in audiences]
        account = "guest" if user == "stranger" else user
        return str(cluster.kubectl("-n", "team", "create", "token", account, *words).strip())

    keys = cluster.kubectl("get", "--raw", "/openid/v1/jwks")
    with serving(Provider([*tokens, "stranger"], token, keys)) as found:
        yield found


@pytest.fixture(scope="module")
def start_proxy(
    program: str, provider: Provider, cluster: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Callable[..., AbstractContextManager[None]]]]:
    """The proxy's address, and what runs it there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("proxy")
    secret, key, certificate = (folder / name for name in ("secret", "key.pem", "certificate.pem"))
    secret.write_bytes(b"0" * 32)
    words = ("openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "1", "-subj", f"/CN={NAME}")
    made = cluster.run(*words, "-keyout", str(key), "-out", str(certificate))
    assert made.returncode == 0, made.stderr
    options = (
        program,
        "--provider=oidc",
        f"--oidc-issuer-url={ISSUER}",
        "--skip-oidc-discovery",  # the issuer's name leads nowhere outside of the cluster
        f"--login-url={provider.url}/authorize",
        f"--redeem-url={provider.url}/token",
        f"--oidc-jwks-url={provider.url}/keys",
        "--oidc-enabled-signing-alg=ES256",
        "--oidc-enabled-signing-alg=RS256",
        "--oidc-email-claim=sub",
        "--email-domain=*",
        f"--client-id={CLIENT}",
        "--client-secret=none",
        f"--cookie-secret-file={secret}",
        "--pass-authorization-header",
        "--skip-provider-button",
        "--http-address=",
        f"--https-address=127.0.0.1:{port}",
        f"--tls-cert-file={certificate}",
        f"--tls-key-file={key}",
        f"--redirect-url=https://{NAME}:{port}/oauth2/callback",
    )
    with forwarded(cluster, f"--host={NAME}") as upstream:

        @contextmanager
        def running(*more: str) -> Iterator[None]:
            with cluster.start(*options, f"--upstream={upstream}", *more):
                wait_until(lambda: listens(port), "the proxy")
                yield

        yield f"https://{NAME}:{port}/", running


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@pytest.fixture
def page(start_proxy: Any, chromium: Any) -> Iterator[Any]:
    """A browser in which nobody has signed in, with the proxy running."""
    address, running = start_proxy
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    with running():
        page.goto(address)
        yield page
        context.close()


def sign_in(page: Any, user: str) -> None:
    page.get_by_role("link", name=user).click()


def test_who_has_signed_in_sees_the_live_list_logs_and_what_the_own_rights_allow(
    page: Any, cluster: Any
) -> None:
    sign_in(page, "dev")
    page.get_by_text("system:serviceaccount:team:dev").wait_for()  # and no form
    page.get_by_role("link", name="theirs").wait_for()
    container = {"name": "a", "image": "gangline/base"}
    container["command"] = ["sh", "-c", "while :; do echo line; sleep 0.1; done"]  # type: ignore[assignment]
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "later", "namespace": "team"}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({**job, "spec": {"template": template}}))
    page.get_by_role("link", name="later").click()  # by the socket, not by a reload
    page.get_by_role("tab", name="Log").click()
    page.get_by_text("line", exact=True).first.wait_for()
    page.get_by_role("tab", name="Shell").click()
    page.get_by_label("Where").select_option(index=1)
    page.get_by_role("button", name="Open a shell").click()
    page.locator(".xterm-rows").get_by_text(re.compile(r"[$#]")).first.wait_for()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("heading", name="later").wait_for(state="detached")


def test_another_user_may_only_look(page: Any) -> None:
    sign_in(page, "guest")
    page.get_by_role("link", name="theirs").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()

    page.get_by_text("cannot delete resource").wait_for()


def test_the_token_is_in_no_place_that_a_script_reads(page: Any) -> None:
    sign_in(page, "guest")
    page.get_by_text("system:serviceaccount:team:guest").wait_for()

    kept = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert "eyJ" not in kept  # so begins every JSON Web Token


def test_a_token_that_the_cluster_does_not_take_is_told_so(page: Any) -> None:
    sign_in(page, "stranger")

    page.get_by_text("the cluster does not take the token that the proxy sends").wait_for()


def test_a_page_whose_sign_in_is_over_leads_back_to_it(start_proxy: Any, chromium: Any) -> None:
    address, running = start_proxy
    context = chromium.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    with running():
        page.goto(address)
        sign_in(page, "guest")
        page.get_by_role("link", name="theirs").wait_for()
    page.get_by_text("The connection is lost").wait_for()
    context.clear_cookies()
    with running():
        page.get_by_role("button", name="Sign in again").click()
        sign_in(page, "guest")
        page.get_by_role("link", name="theirs").wait_for()
        context.close()


def test_a_page_goes_on_over_tokens_that_the_proxy_renews(
    start_proxy: Any, chromium: Any, provider: Provider, cluster: Any
) -> None:
    address, running = start_proxy
    context = chromium.new_context(ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    with running("--cookie-refresh=1s"):
        page.goto(address)
        sign_in(page, "dev")
        page.get_by_role("link", name="theirs").wait_for()
        first = len(sockets)

        def is_renewed() -> bool:
            page.evaluate("fetch('/')")  # whatever passes the proxy renews the token
            return "dev" in provider.refreshed

        wait_until(is_renewed, "a renewed token")
        renewed = provider.refreshed["dev"]
        template = {"metadata": {"name": "after", "namespace": "team"}, "spec": {"suspend": True}}
        container = {"name": "a", "image": "gangline/base", "command": ["true"]}
        template["spec"]["template"] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        cluster.kubectl(
            "create", "-f", "-", stdin=json.dumps({"apiVersion": "batch/v1", "kind": "Job"} | template)
        )
        page.get_by_role("link", name="after").wait_for()  # its stream goes on by the first token
        assert (len(sockets), renewed) == (first, provider.refreshed["dev"])

        page.reload()
        page.get_by_role("link", name="after").wait_for()  # and it is opened anew by the renewed one
        assert page.get_by_text("system:serviceaccount:team:dev").is_visible()
        context.close()
