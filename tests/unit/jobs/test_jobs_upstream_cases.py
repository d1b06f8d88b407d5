"""Every unit case of the MPI operator and the test here that states it; the cases that end otherwise.

Cases that need a server (its integration and end-to-end suites) are in tests/integration/operator.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

TESTS = Path(__file__).resolve().parents[2]

STATED: dict[str, list[str]] = {
    # Defaults.
    "SetDefaults/base defaults": ["test_defaults_fill_what_is_absent"],
    "SetDefaults/base defaults overridden (intel)": ["test_defaults_keep_what_is_set"],
    "SetDefaults/base defaults overridden (mpich)": ["test_defaults_keep_what_is_set"],
    "SetDefaults/launcher defaults": ["test_defaults_of_the_roles"],
    "SetDefaults/worker defaults": ["test_defaults_of_the_roles"],
    # Validation.
    "ValidateMPIJob/valid (intel)": ["test_a_good_job_breaks_no_rule"],
    "ValidateMPIJob/valid with worker (intel)": ["test_a_good_job_breaks_no_rule"],
    "ValidateMPIJob/valid (mpich)": ["test_a_good_job_breaks_no_rule"],
    "ValidateMPIJob/valid with worker (mpich)": ["test_a_good_job_breaks_no_rule"],
    "ValidateMPIJob/empty job": ["test_an_empty_job_lacks_everything_in_order"],
    "ValidateMPIJob/invalid fields": ["test_bad_values_of_the_spec_are_all_named_in_order"],
    "ValidateMPIJob/empty replica specs": ["test_a_job_needs_a_launcher"],
    "ValidateMPIJob/missing replica spec fields": [
        "test_what_a_role_lacks_is_named_for_launcher_then_worker"
    ],
    "ValidateMPIJob/invalid replica fields": ["test_bad_values_of_the_roles"],
    "ValidateMPIJob/invalid mpiJob name": [
        "test_names_that_make_host_names_are_good",
        "test_a_name_that_begins_with_a_digit_gets_a_service_of_another_name",
    ],
    # The controller.
    "DoNothingWithInvalidMPIJob": ["test_an_invalid_job_fails_with_every_error"],
    "DoNothingWithMPIJobManagedExternally": ["test_a_job_of_another_manager_is_left_alone"],
    "AllResourcesCreated": ["test_a_new_job_gets_all_its_children_in_one_stage"],
    "LauncherNotControlledByUs": ["test_a_foreign_worker_or_launcher_stops_the_job_too"],
    "ConfigMapNotControlledByUs": ["test_an_object_of_another_owner_stops_the_job"],
    "WorkerServiceNotControlledByUs": ["test_an_object_of_another_owner_stops_the_job"],
    "LauncherServiceNotControlledByUs": ["test_an_object_of_another_owner_stops_the_job"],
    "SecretNotControlledByUs": ["test_an_object_of_another_owner_stops_the_job"],
    "WorkerNotControlledByUs": ["test_a_foreign_worker_or_launcher_stops_the_job_too"],
    "LauncherSucceeded": [
        "test_a_complete_launcher_is_success",
        "test_a_job_that_was_never_seen_running_says_so",
    ],
    "LauncherSucceededWithRunningPod": ["test_running_is_not_told_again_after_the_end"],
    "LauncherFailed": ["test_a_failed_launcher_is_failure_with_the_words_of_its_newest_pod"],
    "ShutdownWorker": ["test_workers_are_cleaned_as_the_policy_says"],
    "CreateSuspendedMPIJob": ["test_a_job_created_suspended_has_a_suspended_launcher_and_no_pods"],
    "SuspendedRunningMPIJob": ["test_suspending_holds_the_launcher_before_the_workers_go"],
    "ResumeMPIJob": ["test_resuming_creates_the_workers_then_releases_the_launcher"],
    "UnsuspendLauncherUpdateFailureDoesNotPoisonCache": ["test_a_plan_leaves_what_was_observed_alone"],
    "ResumeMPIJobWithExistingLauncher": ["test_resuming_takes_over_what_was_edited_meanwhile"],
    "ResumeMPIJobClearsStartTime": ["test_resuming_clears_the_start_time_first"],
    "LauncherActiveWorkerNotReady": [
        "test_a_launcher_without_its_workers_is_counted_but_the_job_does_not_run"
    ],
    "LauncherActiveWorkerReady": ["test_running_needs_the_launcher_and_every_worker"],
    "WorkerReady": [
        "test_workers_alone_are_counted_but_the_job_does_not_run",
        "test_workers_that_run_get_their_launcher",
    ],
    "NewLauncherAndWorker/defaults": [
        "test_worker_pod_with_everything_at_its_default",
        "test_launcher_job_with_everything_at_its_default",
    ],
    "NewLauncherAndWorker/launcher as worker": ["test_launcher_as_worker_takes_index_0_and_keeps_its_gpus"],
    "NewLauncherAndWorker/overrides": ["test_what_the_user_set_comes_first_and_stays"],
    "NewConfigMap": ["test_hostfile", "test_service_config_map_and_secret"],
    "UpdateDiscoverHostsInConfigMap": ["test_discover_hosts_lists_the_launcher_then_workers_sorted_as_text"],
    # PodGroups.
    "NewPodGroup/all fields (volcano)": ["test_a_pod_group_of_volcano"],
    "NewPodGroup/all fields (scheduler-plugins)": ["test_a_pod_group_of_scheduler_plugins"],
    "NewPodGroup/no policy (volcano)": ["test_without_a_policy_queue_and_priority_come_from_the_job"],
    "NewPodGroup/no policy (scheduler-plugins)": ["test_without_a_policy_the_timeout_is_zero"],
    "NewPodGroup/no worker": ["test_a_launcher_alone_is_a_gang_of_one"],
    "CalcPriorityClassName": ["test_the_priority_class_of_a_gang"],
    "DecoratePodTemplateSpec/volcano": ["test_pods_join_a_gang_of_volcano_by_annotation"],
    "DecoratePodTemplateSpec/scheduler-plugins": ["test_pods_join_a_gang_of_scheduler_plugins_by_label"],
    "CalculatePGMinResources/given": ["test_given_resources_are_taken_as_they_are"],
    "CalculatePGMinResources/no members": ["test_a_gang_of_none_asks_for_nothing"],
    "CalculatePGMinResources/no priority": ["test_without_priorities_the_launcher_counts_first"],
    "CalculatePGMinResources/no worker": ["test_a_launcher_alone_is_a_gang_of_one"],
    "CalculatePGMinResources/several containers": ["test_every_container_of_a_pod_counts"],
    "CalculatePGMinResources/class that does not exist": [
        "test_a_priority_class_that_does_not_exist_counts_as_zero"
    ],
    "CalculatePGMinResources/classes": ["test_a_launcher_of_higher_priority_counts_first"],
    "AddResources/no target": ["test_adding_resources"],
    "AddResources/new name": ["test_adding_resources"],
    "AddResources/increase": ["test_adding_resources"],
    "AddResources/requests and limits": ["test_requests_win_over_limits_and_a_limit_alone_counts"],
    "CalculateMinAvailable": ["test_the_least_number_of_pods"],
    "ReplicasOrder/launcher first": ["test_a_launcher_of_higher_priority_counts_first"],
    "ReplicasOrder/equal": ["test_without_priorities_the_launcher_counts_first"],
}

CHANGED: dict[str, str] = {
    "DoNothingWithInvalidKey": "keys are values made from objects; there is no text that could be wrong",
    "DoNothingWithNonexistentMPIJob": "a job that is gone never reaches the pure code",
    "DoNothingWithInvalidMPIJob": "the job fails with every error in its status",
    "ValidateMPIJob/invalid mpiJob name": "the Service gets another name, so a job's may begin with a digit",
    "AllResourcesCreated": "the children are created at the same moment, not one after the other",
    "LauncherServiceNotControlledByUs": "there is one Service for both roles, so it is the same case",
    "NewLauncherAndWorker/defaults": "Open MPI 5's variables are set beside Open MPI 4's; no binding",
    "ResumeMPIJob": "the Service is there already; a launcher that waits is not released yet",
    "LauncherFailed": "a pod that gives no reason is described by its exit code, without a slash",
    "ShutdownWorker": "the PodGroup goes under every policy",
}
"""Cases whose outcome is another one on purpose."""

Build = Callable[..., Any]


def test_every_case_is_stated_by_a_test_that_exists_or_has_a_reason() -> None:
    existing = {
        node.name
        for folder in ("api", "jobs")
        for path in (TESTS / "unit" / folder).glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }

    assert {name for names in STATED.values() for name in names} - existing == set()
    assert set(CHANGED) - set(STATED) == {"DoNothingWithInvalidKey", "DoNothingWithNonexistentMPIJob"}


def test_workers_that_run_get_their_launcher(scene: Build) -> None:
    one = scene(workers=16).add_workers(16).add_children()

    plan = one.plan()

    assert [action.object["kind"] for action in plan.actions] == ["Job"]
    assert plan.status["replicaStatuses"] == {"Launcher": {}, "Worker": {"active": 16}}
    assert "Running" not in one.conditions(plan)


def test_a_launcher_without_its_workers_is_counted_but_the_job_does_not_run(scene: Build) -> None:
    one = scene(workers=8).add_workers(8, "Pending").add_children().add_launcher(active=1).add_launcher_pod()

    plan = one.plan()

    assert plan.status["replicaStatuses"] == {"Launcher": {"active": 1}, "Worker": {}}
    assert "Running" not in one.conditions(plan)


@pytest.mark.parametrize("suspend", [False, True])
def test_a_plan_leaves_what_was_observed_alone(scene: Build, suspend: bool) -> None:
    """Whatever becomes of its actions: the next look must see what there is, not what was wanted."""
    one = scene(runPolicy={"suspend": suspend}).add_workers(2)
    template = {"metadata": {"labels": {"x": "y"}}, "spec": {"nodeSelector": {"a": "b"}, "containers": []}}
    one.add_launcher(spec={"suspend": not suspend, "template": template}, startTime="2026-05-01T11:00:00Z")
    before = msgspec.json.encode([one.observed(), one.spec, one.status])

    assert one.plan().actions

    assert msgspec.json.encode([one.observed(), one.spec, one.status]) == before
