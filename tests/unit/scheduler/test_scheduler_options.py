"""What the options of ``gangline scheduler`` and deploy/scheduler.yaml make of policy and ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gangline.cli.serve.scheduler import command, policy_of
from gangline.placement.policy import Policy, SuspensionBounds
from gangline.topology.network import DEFAULT_LEVELS

MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "scheduler.yaml"


def given(*arguments: str) -> dict[str, Any]:
    return command.make_context("scheduler", list(arguments)).params


def test_without_options_the_policy_is_the_libraries() -> None:
    assert policy_of(given()) == Policy(levels=DEFAULT_LEVELS)


def test_options_reach_the_policy() -> None:
    options = given("--no-preempt", "--no-backfill", "--overdue-after", "600", "--levels", "example.com/rack")

    assert policy_of(options) == Policy(
        levels=("example.com/rack",), overdue_after_s=600.0, may_preempt=False, may_backfill=False
    )


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan"])
def test_an_age_that_is_no_positive_number_of_seconds_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter):
        given("--overdue-after", value)


def test_the_manifest_serves_what_it_names() -> None:
    objects = list(yaml.safe_load_all(MANIFEST.read_text()))
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = given(*container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    assert container["command"] == ["gangline", "scheduler"]
    assert ports == {"health": options["health_port"], "metrics": options["metrics_port"]}
    assert options["listen"] == "0.0.0.0"
    assert deployment["spec"]["template"]["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(ports["metrics"]),
    }


def test_bounds_on_suspension_reach_the_policy() -> None:
    options = given("--suspend-after", "0.5", "--short-wait", "60", "--min-run", "5", "--suspensions", "3")

    assert policy_of(options).suspension == SuspensionBounds(
        long_after_device_s=1800.0, short_wait_s=60.0, min_run_s=5.0, suspensions_max=3
    )
