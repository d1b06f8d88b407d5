"""The agent tells a pod when its training last saved its state."""

from __future__ import annotations

from typing import Any

from gangline.clock import parse_time
from gangline.train.records import format_record
from gangline.workloads.suspension import CHECKPOINT_ANNOTATION


async def test_a_pod_is_told_when_its_training_saved_its_state(plain: Any) -> None:
    record = format_record("checkpoint", step=7).rstrip()
    await plain.create_pod("saver", "sh", "-c", f"echo '{record}'; sleep 1000")
    await plain.create_pod("other", "sh", "-c", "echo step 7; sleep 1000")
    began = parse_time((await plain.wait_phase("saver", "Running"))["status"]["startTime"])

    async def told() -> str:
        pod = await plain.pod("saver")
        return str(pod["metadata"].get("annotations", {}).get(CHECKPOINT_ANNOTATION, ""))

    saved = parse_time(await plain.wait_for(told, "the annotation"))

    assert 0 <= (saved - began).total_seconds() < 60
    assert CHECKPOINT_ANNOTATION not in (await plain.pod("other"))["metadata"].get("annotations", {})
