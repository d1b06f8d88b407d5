"""The page as a Deployment of a cluster, in a real browser: users sign in with tokens of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import LIMIT_MS, OWN

pytestmark = pytest.mark.browser


@pytest.fixture
def page(served: str, chromium: Any) -> Iterator[Any]:
    """The page, before anybody has signed in."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(served)
    yield page
    context.close()
    assert not problems


def sign_in(page: Any, token: str) -> None:
    page.get_by_role("textbox", name="Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_two_users_see_and_do_what_each_may(page: Any, tokens: dict[str, str], cluster: Any) -> None:
    sign_in(page, "not-a-token")
    page.get_by_role("alert").get_by_text("does not take this token").wait_for()
    sign_in(page, tokens["guest"])
    page.get_by_text("system:serviceaccount:team:guest").wait_for()
    page.get_by_text("jobs and pods outside of namespace team, nor nodes").wait_for()
    page.get_by_role("link", name="theirs").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    command = page.get_by_role("dialog").locator("code").inner_text()
    assert command == "gangline delete job/theirs --context CONTEXT -n team"
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("cannot delete resource").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("textbox", name="Token").wait_for()
    sign_in(page, tokens["dev"])
    page.get_by_text("system:serviceaccount:team:dev").wait_for()
    page.get_by_role("tab", name="Shell").click()
    page.get_by_label("Where").select_option(index=1)
    page.get_by_role("button", name="Open a shell").click()
    page.locator(".xterm-rows").get_by_text(re.compile(r"[$#]")).first.wait_for()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("heading", name="theirs").wait_for(state="detached")
    assert "theirs" not in cluster.kubectl("-n", "team", "get", "jobs", "-o", "name")


def test_the_token_lies_nowhere_in_the_browser_and_ends_with_the_tab(
    page: Any, tokens: dict[str, str], served: str
) -> None:
    sign_in(page, tokens["guest"])
    page.get_by_text("system:serviceaccount:team:guest").wait_for()
    assert page.context.cookies() == []
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, location.href])")
    assert tokens["guest"] not in kept
    page.reload()
    page.get_by_text("system:serviceaccount:team:guest").wait_for()  # the tab goes on
    other = page.context.new_page()
    other.goto(served)
    other.get_by_role("textbox", name="Token").wait_for()


def test_another_namespace_is_looked_at_without_the_token(page: Any, tokens: dict[str, str]) -> None:
    sign_in(page, tokens["guest"])
    page.get_by_label("Look at namespace").fill("default")
    page.get_by_role("button", name="Look").click()
    page.get_by_text("outside of namespace default").wait_for()
    page.get_by_text("system:serviceaccount:team:guest").wait_for()
    page.get_by_text("No jobs that you may see.").wait_for()
    page.get_by_text("gangline run --context CONTEXT --image IMAGE -n 4 -- python train.py").wait_for()


def test_jobs_that_are_over_are_runs_while_the_cluster_has_them(
    page: Any, tokens: dict[str, str], cluster: Any
) -> None:
    records = [{"kind": "progress", "step": step, "steps": 3, "loss": 1 / step} for step in (1, 2, 3)]
    lines = "\n".join(f"@gangline {json.dumps(one)}" for one in records)
    container = {"name": "a", "image": "gangline/base", "command": ["echo", lines]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "over", "namespace": "team"}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({**job, "spec": {"template": template}}))
    cluster.kubectl("-n", "team", "wait", "job/over", "--for=condition=complete", "--timeout=20s")
    sign_in(page, tokens["guest"])
    page.get_by_role("navigation").get_by_role("link", name="Runs").click()

    row = page.locator("tr").filter(has=page.get_by_role("link", name="over"))
    row.get_by_text("succeeded").wait_for()
    row.get_by_text("3/3 loss 0.3333").wait_for()
    page.get_by_text("Nothing is kept beside it").wait_for()
    row.get_by_role("link", name="over").click()
    page.get_by_role("img", name=re.compile("^loss over steps, last 0.3333")).wait_for()
    cluster.kubectl("-n", "team", "delete", "pods", "-l", "job-name=over", "--grace-period=0", "--force")
    page.get_by_role("navigation").get_by_role("link", name="Runs").click()
    row.get_by_text("its pods are gone").wait_for()
    cluster.kubectl("-n", "team", "delete", "job/over")


def test_the_account_of_the_page_may_do_nothing(served: str, cluster: Any) -> None:
    account = "system:serviceaccount:gangline-page:gangline-page"
    found = cluster.try_kubectl("auth", "can-i", "--list", f"--as={account}", "-n", "team")
    rows = [line.split()[0] for line in found.stdout.splitlines()[1:] if not line.startswith(" ")]
    assert {row for row in rows if not row.startswith("self")} == set(), found.stdout
    inside = cluster.kubectl(
        *OWN, "exec", "deploy/gangline-page", "--", "ls", "/var/run/secrets/kubernetes.io/serviceaccount"
    )
    assert inside.split() == ["ca.crt"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_form_is_accessible_and_fits_a_telephone(page: Any, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 360, "height": 700})
    page.get_by_role("textbox", name="Token").wait_for()

    violations = axe.run(page).response["violations"]
    assert not [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in violations]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
