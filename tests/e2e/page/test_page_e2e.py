"""The web page in a real browser, on a live cluster with real jobs: every flow of it."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
import yaml

from .conftest import LIMIT_MS, TRAINING, is_running, kill, wait_until

pytestmark = pytest.mark.browser


def test_the_list_follows_the_cluster_and_is_filtered_sorted_and_walked_by_keys(view, job, cluster):
    job("alpha")
    job("beta", "raise SystemExit(3)", ranks=1)

    view.get_by_role("link", name="alpha").wait_for()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", view.url.partition("#")[0])  # no token
    view.locator("tr", has_text="alpha").get_by_text("running").wait_for()
    view.locator("tr", has_text="alpha").get_by_text("images/s").wait_for()
    view.locator("tr", has_text="beta").get_by_text("✗ failed").wait_for()
    view.keyboard.press("/")
    view.keyboard.type("bet")
    view.get_by_text("1 of 2 jobs").wait_for()
    assert view.get_by_role("link", name="alpha").count() == 0
    view.get_by_label("Filter jobs").fill("nothing of this name")
    view.get_by_role("button", name="Show all").click()
    view.get_by_role("button", name=re.compile("running 1")).click()
    view.get_by_role("link", name="beta").wait_for(state="detached")
    view.get_by_role("button", name=re.compile("running 1")).click()
    view.get_by_role("button", name="Name").click()
    view.locator("tbody tr:not(.filler)").first.get_by_role("link", name="alpha").wait_for()
    view.locator("body").click(position={"x": 5, "y": 500})
    view.keyboard.press("j")
    view.keyboard.press("Enter")
    view.get_by_role("heading", name="alpha").wait_for()
    view.keyboard.press("Escape")
    view.get_by_role("link", name="beta").wait_for()
    cluster.gangline("delete", "pytorchjob/beta")
    view.get_by_role("link", name="beta").wait_for(state="detached")


def test_a_job_shows_pods_curves_log_placement_events_and_file(view, job):
    job("gamma", gpus=2)
    view.get_by_role("link", name="gamma").click()

    view.get_by_role("cell", name="gamma-master-0 chief").wait_for()
    row = view.locator("tr", has_text="gamma-worker-0")
    row.get_by_text(re.compile(r"^rank 1 step \d+ <b>text</b>$")).wait_for()
    view.get_by_text("4 GPUs (simulated)").wait_for()
    view.get_by_role("img", name=re.compile("^loss over steps, last")).wait_for()
    view.get_by_role("tab", name="Log").click()
    view.get_by_text("rank 0 step 3 <b>text</b>").wait_for()  # text is only ever text
    view.get_by_label("Search the log").fill("step 2 ")
    view.get_by_text("1 line", exact=False).first.wait_for()
    view.get_by_label("Search the log").fill("")
    view.get_by_label("Pod").select_option("gamma-worker-0")
    view.get_by_text("rank 1 step 3", exact=False).wait_for()
    view.get_by_role("tab", name="Placement").click()
    view.get_by_text("SCARCEST LINK", exact=False).wait_for()
    view.get_by_text("Predicted, not measured", exact=False).wait_for()
    view.get_by_text("Measured, by what its training reports", exact=False).wait_for()
    view.get_by_role("tab", name="Events").click()
    view.get_by_text("PyTorchJobRunning").first.wait_for()
    view.get_by_role("tab", name="Manifest").click()
    view.get_by_text("pytorchReplicaSpecs:").wait_for()


def test_curves_of_a_run_of_the_past_are_laid_over_those_of_a_job(view, job):
    job("ended", TRAINING.replace("10_000", "3"), ranks=1)
    view.locator("tr", has_text="ended").get_by_text("succeeded").wait_for()
    job("present", ranks=1)
    view.get_by_role("link", name="present").click()
    view.get_by_role("img", name=re.compile("^loss over steps, last")).wait_for()
    legend = view.locator(".u-legend").first
    assert legend.get_by_text("ended").count() == 0

    view.get_by_text("Compare with runs of the past").click()
    view.get_by_role("checkbox", name=re.compile("^ended")).check()

    legend.get_by_text("ended").wait_for()


def test_a_job_is_suspended_resumed_scaled_and_deleted_with_the_command_beside_it(view, job, cluster):
    job("delta")
    view.get_by_role("link", name="delta").click()
    view.get_by_role("button", name="Suspend", exact=True).click()
    dialog = view.get_by_role("dialog")
    assert '"suspend":true' in dialog.locator("code").inner_text()
    dialog.get_by_role("button", name="Suspend", exact=True).click()
    view.get_by_text("delta is suspended.").wait_for()
    view.get_by_text("No pods now.").wait_for()
    view.get_by_role("button", name="Resume", exact=True).click()
    view.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    view.get_by_role("cell", name="delta-worker-0").wait_for()
    view.get_by_role("button", name="Scale", exact=True).click()
    view.get_by_role("dialog").get_by_role("spinbutton").fill("3")
    view.get_by_role("dialog").get_by_role("button", name="Scale", exact=True).click()
    view.get_by_role("cell", name="delta-worker-2").wait_for()
    view.get_by_role("button", name="Restart", exact=True).click()
    view.get_by_role("dialog").get_by_role("button", name="Restart", exact=True).click()
    view.get_by_text("Its pods start again.").wait_for()
    view.get_by_role("button", name="Delete", exact=True).click()
    assert "gangline delete pytorchjob/delta" in view.get_by_role("dialog").locator("code").inner_text()
    view.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    view.get_by_role("heading", name="delta").wait_for(state="detached")
    assert "delta" not in cluster.gangline("list", "-o", "name").stdout


def test_a_file_is_checked_while_it_is_typed_and_created(view, cluster):
    view.get_by_role("navigation").get_by_role("link", name="New").click()
    view.get_by_text("The server would take PyTorchJob hello.").wait_for()
    editor = view.get_by_label("Manifest")
    text = editor.input_value()
    bad = text.replace("replicas: 3", "replicas: -3").replace("image:", "imag:", 1)
    editor.fill(bad)
    for word in ("replicas: -3", "imag:"):
        place = next(number for number, line in enumerate(bad.splitlines(), 1) if word in line)
        view.get_by_role("listitem").filter(has_text=f"line {place}:").first.wait_for()
    assert view.get_by_role("button", name="Create").is_disabled()
    editor.fill("kind: [")
    view.get_by_role("alert").wait_for()
    editor.fill(text)
    view.get_by_text("The server would take").wait_for()
    view.get_by_role("button", name="Create").click()
    view.get_by_role("heading", name="hello").wait_for()
    view.get_by_text("succeeded").wait_for()
    cluster.gangline("delete", "pytorchjob/hello")


def test_a_program_is_started_from_the_form_and_outlives_the_page(view, cluster, tmp_path):
    script = tmp_path / "a folder" / "count.py"
    script.parent.mkdir()
    script.write_text(
        "import os, time\nprint('here', os.getcwd(), os.environ['WORLD_SIZE'], flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.05)\nprint('went on', flush=True)\n"
    )
    view.get_by_role("navigation").get_by_role("link", name="New").click()
    form = view.locator("form.fields")
    form.get_by_label("Program").fill(f"{sys.executable} 'count.py")
    form.get_by_label("Ranks").fill("0")
    view.locator("#problem-ranks").get_by_text("1 to 1024 ranks").wait_for()
    form.get_by_label("Nodes").fill("3")
    view.locator("#problem-nodes").wait_for()
    form.get_by_label("Ranks").fill("1025")
    view.locator("#problem-ranks").get_by_text("written as a file").wait_for()
    assert form.get_by_role("button", name="Start").is_disabled()
    form.get_by_label("Ranks").fill("2")
    form.get_by_label("Nodes").fill("")
    form.get_by_label("Working directory").fill("/nowhere")
    form.get_by_label("Name", exact=True).fill("My Run")
    form.get_by_role("button", name="Start").click()
    for field, problem in (
        ("program", "No closing quotation"),
        ("folder", "`/nowhere` does not exist"),
        ("name", "--name my-run"),
    ):
        view.locator(f"#problem-{field}").get_by_text(problem, exact=False).wait_for()
    form.get_by_label("Program").fill(f"{sys.executable} count.py")
    form.get_by_label("Working directory").fill(str(script.parent))
    form.get_by_label("Name", exact=True).fill("counted")
    line = f"cd '{script.parent}' && gangline run -n 2 --name counted -- {sys.executable} count.py"
    assert view.locator("code", has_text="--name counted").inner_text().replace("\xa0", " ") == line
    form.get_by_role("button", name="Start").click()
    view.get_by_role("heading", name="counted").wait_for()
    view.get_by_role("tab", name="Log").click()
    view.get_by_text(f"here {script.parent} 2").nth(1).wait_for()
    view.get_by_role("combobox", name="Rank").select_option("1")
    view.get_by_text("1 line", exact=True).wait_for()
    assert view.locator(".line .rank").all_inner_texts() == ["[1] "]
    view.get_by_role("tab", name="Overview").click()
    ranks = view.get_by_role("region", name="Ranks").locator("tbody tr")
    ranks.nth(1).get_by_text(f"here {script.parent} 2").wait_for()
    view.close()  # the run goes on
    (script.parent / "go").touch()

    assert "went on" in cluster.gangline("logs", "-f", "counted").stdout
    wait_until(lambda: "SUCCEEDED" in cluster.gangline("get", "counted").stdout, "the end of the run")


def test_a_shell_beside_a_rank_is_a_terminal_and_ends_with_the_page(view, job, cluster):
    job("shelled")
    view.get_by_role("link", name="shelled").click()
    view.get_by_role("cell", name="shelled-worker-0").wait_for()
    view.get_by_role("tab", name="Shell").click()
    shown_line = view.locator(".shell .command code")
    assert shown_line.inner_text() == "gangline shell pytorchjob/shelled --rank 0"
    view.get_by_label("Where").select_option("shelled-worker-0")
    words = shown_line.inner_text().split()  # what is shown can be typed
    assert words == ["gangline", "shell", "pytorchjob/shelled", "--instance", "shelled-worker-0"]
    typed = cluster.run(sys.executable, "-m", *words, stdin="echo typed $RANK\n")
    assert (typed.stdout, typed.returncode) == ("typed 1\n", 0), typed.stderr
    shown = view.locator(".xterm-rows")
    view.get_by_role("button", name="Open a shell").click()
    shown.get_by_text(re.compile(r"[$#]")).first.wait_for()
    view.keyboard.type("echo rank $RANK of $WORLD_SIZE; stty size\n")
    shown.get_by_text("rank 1 of 2", exact=True).wait_for()
    rows, columns = (int(word) for word in shown.get_by_text(re.compile(r"^\d+ \d+$")).inner_text().split())
    assert columns > 80 and rows > 20  # that of the page's box, and not a default
    view.keyboard.type("printf '\\e[38;2;10;20;30mcoloured\\e[0m \\e[31mred\\e[0m\\n'\n")  # both ways
    coloured = shown.locator("span", has_text=re.compile("^coloured$"))
    assert coloured.evaluate("one => getComputedStyle(one).color") == "rgb(10, 20, 30)"
    view.keyboard.type("exit 3\n")
    view.get_by_text("The shell has ended with exit code 3.").wait_for()
    view.get_by_role("button", name="Open a shell").click()
    shown.get_by_text("exit", exact=True).wait_for(state="detached")  # of the first shell
    shown.get_by_text(re.compile(r"[$#]")).first.wait_for()
    asleep = "86399.25"
    view.keyboard.type(f"sleep {asleep}\n")
    wait_until(lambda: is_running(asleep), "the program of the shell")
    view.close()

    wait_until(lambda: not is_running(asleep), "the end of the shell's program")


def test_nodes_show_who_holds_which_gpu_and_what_waits(view, job):
    job("wide", ranks=1, gpus=8)
    job("half", ranks=1, gpus=4)
    job("more", ranks=1, gpus=8)
    view.keyboard.press("g")
    view.keyboard.press("n")

    view.get_by_text("8 of 8 GPUs held").wait_for()
    card = view.get_by_role("article").filter(has_text="4 of 8 GPUs held")
    card.get_by_text("free: 2 pairs, 1 quad").wait_for()
    view.get_by_text("six hours at most").wait_for()  # the cluster noted it, and no page
    card.get_by_text("simulated GPUs").wait_for()
    assert card.get_by_role("img").locator("line").count() == 16  # NVLinks of a DGX-1V, by pair
    queue = view.locator("tr").filter(has=view.get_by_role("link", name="default/more"))
    queue.get_by_text("needs 8 simulated nvidia.com/gpu on one node", exact=False).wait_for()
    queue.get_by_role("cell", name="1", exact=True).first.wait_for()  # its place, as the explanation says


def test_a_server_that_was_killed_is_followed_again(view, job, cluster):
    job("before")
    view.get_by_role("link", name="before").wait_for()
    kill(int((cluster.files / "server.lock").read_text()))
    cluster.gangline("list")  # waits until it is back
    job("after")

    view.get_by_role("link", name="after").wait_for()


def test_a_page_whose_session_is_over_says_how_to_come_back(view, cluster):
    view.get_by_role("navigation").wait_for()
    view.evaluate("localStorage.clear()")
    view.reload()

    view.get_by_text("prints a new one").wait_for()


def test_a_server_at_which_as_many_look_as_may_says_so(cluster, chromium):
    link = cluster.gangline("page", "--no-browser").stdout.strip()
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    page.route_web_socket("**/live", lambda socket: socket.close(code=4429))  # as the server does
    page.goto(link)

    page.get_by_text("As many pages are open as this server shows at once.").wait_for()
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_place_is_accessible_in_both_themes(view, job, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    view.emulate_media(color_scheme=theme)
    job("seen", gpus=1)
    view.get_by_role("link", name="seen").wait_for()
    found: dict[str, Any] = {}
    for place in ("", "nodes", "runs", "new", "job/pytorchjob/default/seen"):
        view.goto(f"{view.url.partition('#')[0]}#/{place}")
        view.wait_for_load_state()
        view.locator("main table, main textarea").first.wait_for(timeout=LIMIT_MS)
        violations = axe.run(view).response["violations"]
        found[place] = [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in violations]

    assert not any(found.values()), found


@pytest.mark.parametrize("width", [360, 720, 1280, 3840])
def test_no_width_scrolls_sideways(view, job, width):
    job("narrow")
    view.set_viewport_size({"width": width, "height": 800})
    view.get_by_role("link", name="narrow").wait_for()
    for place in ("", "nodes", "new", "job/pytorchjob/default/narrow"):
        view.goto(f"{view.url.partition('#')[0]}#/{place}")
        view.locator("main h1, main h2, main table").first.wait_for()
        assert view.evaluate("document.documentElement.scrollWidth <= innerWidth"), place


CUT = """() => [...document.querySelectorAll(".words > span")].filter(word => {
  const own = word.getBoundingClientRect(), box = word.parentElement.getBoundingClientRect();
  const cell = word.closest("td").getBoundingClientRect();
  return own.top < box.bottom - 1 && own.right > Math.min(box.right, cell.right) + 1;
}).map(word => word.textContent)"""
STATES_CUT = """() => [...document.querySelectorAll("tbody td:nth-child(2)")]
  .filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"""


@pytest.mark.parametrize("width", [500, 800, 1100, 1920])
def test_progress_and_state_are_not_cut_at_any_width(view, job, width):
    job("a-training-with-a-name-of-some-length")
    view.set_viewport_size({"width": width, "height": 800})
    row = view.locator("tr", has_text="a-training-with")
    row.get_by_text("running").wait_for()
    row.get_by_text(re.compile(r"^\d+ %$")).wait_for()

    assert view.evaluate(CUT) == []
    assert view.evaluate(STATES_CUT) == []


def test_who_may_see_one_namespace_sees_that_and_is_told_so(cluster, chromium, tmp_path):
    cluster.kubectl("create", "namespace", "team")
    cluster.kubectl("-n", "team", "create", "serviceaccount", "dev")
    words = ("rolebinding", "dev", "--clusterrole=view", "--serviceaccount=team:dev")
    cluster.kubectl("-n", "team", "create", *words)
    config = yaml.safe_load((cluster.files / "kubeconfig").read_text())
    config["users"][0]["user"] = {"token": cluster.kubectl("-n", "team", "create", "token", "dev").strip()}
    config["contexts"][0]["context"]["namespace"] = "team"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "theirs", "namespace": "team"}}
    container = {"name": "a", "image": "gangline/base", "command": ["sleep", "600"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps({**manifest, "spec": {"template": template}}))

    link = cluster.gangline("page", "--no-browser", "--kubeconfig", str(path))
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    page.goto(link.stdout.strip())
    page.get_by_text("jobs and pods outside of namespace team, nor nodes").wait_for()
    page.get_by_role("link", name="theirs").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("cannot delete resource").wait_for()
    context.close()
    cluster.kubectl("delete", "namespace", "team", "--wait=false")
