"""Decisions are made on values: on no text of our own messages, and on typed objects.

In scope: two lists of what is left, which only shrink. Out of scope: sizes and names (test_tree.py), import
arrows (test_imports.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# Text of others that has no other form; a reason for each. The list may only shrink.
DECISIONS_ON_TEXT: dict[str, int] = {
    "src/gangline/workloads/start_gates.py": 1,  # `exceeded quota`: Kubernetes says it in the message alone
    "src/gangline/cluster/images/runtime/containerd.py": 1,  # `already exists`: ctr says no code
    "src/gangline/cluster/server/http/request_context.py": 1,  # the name of a protobuf message
    "src/gangline/workloads/pending.py": 2,  # `MountVolume`, `not found`: the kubelet's and the API server's
}

# Parameters and results of `cli/` and `client/` that are objects in wire form or any value. The
# numbers may only shrink.
UNTYPED: dict[str, int] = {
    "cli/bench/command.py": 1,
    "cli/check.py": 1,
    "cli/delete.py": 3,
    "cli/down.py": 2,
    "cli/explain/text.py": 5,
    "cli/get.py": 3,
    "cli/group.py": 1,
    "cli/install/crds.py": 2,
    "cli/jobs/job_names.py": 1,
    "cli/logs/command.py": 4,
    "cli/logs/progress_bar.py": 2,
    "cli/node.py": 1,
    "cli/options/gpus.py": 2,
    "cli/options/images.py": 2,
    "cli/options/pods.py": 1,
    "cli/options/target.py": 1,
    "cli/output.py": 1,
    "cli/run/cluster_follow.py": 2,
    "cli/run/command.py": 1,
    "cli/run/flow.py": 2,
    "cli/run/view.py": 17,
    "cli/runs/command.py": 2,
    "cli/serve/cluster.py": 2,
    "cli/serve/operator.py": 1,
    "cli/serve/scheduler.py": 2,
    "cli/serve/service.py": 1,
    "cli/simulate.py": 3,
    "cli/status.py": 12,
    "cli/store.py": 3,
    "cli/submit/command.py": 4,
    "cli/submit/job.py": 9,
    "cli/submit/submission.py": 1,
    "cli/top/command.py": 1,
    "client/node_view.py": 2,
    "cli/topology.py": 1,
    "client/async_client.py": 1,
    "client/async_job.py": 4,
    "client/explain/explanation.py": 8,
    "client/explain/past.py": 1,
    "client/explain/report.py": 14,
    "client/explain/scheduler.py": 10,
    "client/explain/subject.py": 1,
    "client/explain/training_progress.py": 1,
    "client/followed_job.py": 4,
    "client/jobs/cluster_view.py": 15,
    "client/jobs/gpu_kind.py": 3,
    "client/jobs/job_lookup.py": 7,
    "client/jobs/listing.py": 1,
    "client/jobs/log_reading.py": 7,
    "client/jobs/log_text.py": 2,
    "client/jobs/past_failure.py": 9,
    "client/jobs/past_runs.py": 2,
    "client/live_picture.py": 3,
    "client/manifests.py": 4,
    "client/run/advice.py": 2,
    "client/run/call.py": 2,
    "client/run/cluster_program.py": 13,  # writes objects in wire form
    "client/run/cluster_run.py": 2,
    "client/run/create_or_attach.py": 15,
    "client/run/follow.py": 12,
    "client/run/images.py": 4,
    "client/run/kept_run.py": 3,  # keeps jobs as they came
    "client/run/local_program.py": 2,
    "client/run/pod_options.py": 2,
    "client/run/program_job.py": 5,
    "client/run/program_kinds.py": 13,
    "client/run/program_session.py": 2,
    "client/run/submission.py": 4,
    "client/run_report.py": 1,
    "client/wires/pods.py": 1,  # writes pods in wire form
}

_READS = {"startswith", "endswith", "partition", "rpartition", "split"}
_READS |= {"removeprefix", "removesuffix", "find"}
_MESSAGES = {"message", "hint", "reason_text", "ending"}


def python_files(folder: str) -> Iterator[tuple[str, ast.AST]]:
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        yield path.relative_to(REPOSITORY).as_posix(), ast.parse(path.read_text())


def is_message(node: ast.expr) -> bool:
    """Return whether an expression is the text of a message, ``error.message`` or ``str(error)``."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _MESSAGES
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in ("error", "failure", "reason", "cause", "found", "refusal")
        case ast.Call(func=ast.Attribute(attr="render" | "format_message")):
            return True
    return False


def is_words(node: ast.expr, of: ast.expr) -> bool:
    """Return whether a constant is a piece of text, and not a key of a message that is a dict."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or not node.value:
        return False
    is_key = node.value.isidentifier() and node.value.islower()
    return node is of or not (isinstance(of, ast.Name) and is_key)


def decisions(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that look into the text of a message."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=right):
                pairs = zip(ops, [left, *right], right, strict=False)
                for operator, before, after in pairs:
                    is_inside = isinstance(operator, ast.In | ast.NotIn) and is_message(after)
                    is_same = isinstance(operator, ast.Eq | ast.NotEq) and is_message(before)
                    if (is_inside and is_words(before, after)) or (is_same and is_words(after, after)):
                        yield node.lineno
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _READS and is_message(value):
                yield node.lineno


def untyped(tree: ast.AST) -> Iterator[str]:
    """Yield the parameters and results of functions that are untyped objects."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for annotation in (*(argument.annotation for argument in arguments), node.returns):
            if annotation is not None and {"Obj", "Any"} & {
                name.id for name in ast.walk(annotation) if isinstance(name, ast.Name)
            }:
                yield node.name


def beside(found: dict[str, int], noted: dict[str, int]) -> list[str]:
    """Return what is more than noted, and what is noted and is less by now."""
    return [
        f"{name} has {found.get(name, 0)}, noted are {noted.get(name, 0)}"
        for name in sorted({*found, *noted})
        if found.get(name, 0) != noted.get(name, 0)
    ]


def counted(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def test_no_decision_is_made_on_the_text_of_a_message() -> None:
    found = {name: len([*decisions(tree)]) for name, tree in python_files("src/gangline")}

    assert beside(counted(found), DECISIONS_ON_TEXT) == []


def test_command_line_and_client_take_ever_fewer_untyped_objects() -> None:
    files = (file for folder in ("cli", "client") for file in python_files(f"src/gangline/{folder}"))
    found = {name.removeprefix("src/gangline/"): len([*untyped(tree)]) for name, tree in files}

    assert beside(counted(found), UNTYPED) == []


@pytest.mark.parametrize(
    "line",
    [
        'if "was lost" in failure.message: pass',
        'if error.message.startswith("unknown field"): pass',
        'head = str(error).partition(": ")',
        'text, _, hint = error.render().partition("\\n\\nhint")',
        'if message == "gone": pass',
    ],
)
def test_a_look_into_a_message_is_found(line: str) -> None:
    assert [*decisions(ast.parse(line))] == [1]


@pytest.mark.parametrize("line", ['if "exit" in answer: pass', "message += text", "print(error.message)"])
def test_other_uses_are_none(line: str) -> None:
    assert [*decisions(ast.parse(line))] == []
