"""Rules of jobs that are about single completions. Source: validation of batch/v1 in kube-apiserver."""

from typing import Any

import pytest

from gangline.api import resources as r
from gangline.cluster.server.rules.defaults import apply_defaults
from gangline.cluster.server.rules.validation import validate

INDEXED = {"completionMode": "Indexed", "completions": 2}


def job(**spec: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}
    return apply_defaults(
        r.JOBS, {"metadata": {"name": "x", "uid": "u"}, "spec": {"template": {"spec": pod}, **spec}}
    )


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (job(successPolicy={"rules": [{"succeededCount": 1}]}), [("Invalid", "spec.successPolicy")]),
        (job(**INDEXED, maxFailedIndexes=1), [("Required", "spec.backoffLimitPerIndex")]),
        (job(**INDEXED, backoffLimitPerIndex=1, maxFailedIndexes=3), [("Invalid", "spec.maxFailedIndexes")]),
        (job(**INDEXED, successPolicy={}), [("Required", "spec.successPolicy.rules")]),
        (job(**INDEXED, successPolicy={"rules": [{}]}), [("Required", "spec.successPolicy.rules[0]")]),
        (
            job(**INDEXED, successPolicy={"rules": [{"succeededIndexes": "0-", "succeededCount": 3}]}),
            [
                ("Invalid", "spec.successPolicy.rules[0].succeededIndexes"),
                ("Invalid", "spec.successPolicy.rules[0].succeededCount"),
            ],
        ),
        (
            job(
                **INDEXED,
                podReplacementPolicy="TerminatingOrFailed",
                podFailurePolicy={
                    "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}]
                },
            ),
            [
                ("NotSupported", "spec.podReplacementPolicy"),
                ("Invalid", "spec.podFailurePolicy.rules[0].action"),
            ],
        ),
    ],
)
def test_rules_of_indexes(obj: dict[str, Any], want: list[tuple[str, str]]):
    assert [(error.reason, error.path) for error in validate(r.JOBS, obj)] == want
