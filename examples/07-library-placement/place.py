"""Decide where the gangs of a snapshot file go, without any cluster: `python place.py [FILE]`."""

import sys
from datetime import UTC, datetime
from pathlib import Path

from gangline.errors import UserError
from gangline.placement import NodeTable, Workload, explain, outlook, read_snapshot, schedule
from gangline.topology import mask_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)  # the same file and time give the same answer


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("snapshot.yaml")
    seen = read_snapshot(path.read_text(encoding="utf-8"), name=path.name)
    policy = seen.policy(levels=("example.com/rack",))
    decisions = schedule(seen.snapshot, seen.waiting, now=NOW, policy=policy, groups=seen.groups)

    table = NodeTable.of(seen.snapshot.nodes, seen.snapshot.pods, policy.levels)
    gangs = {pod.key: pod.gang or pod.key for pod in seen.waiting}
    placed: dict[str, dict[int, int]] = {}
    for binding in decisions.bindings:
        row = table.index(binding.node)
        masks = placed.setdefault(gangs[binding.pod], {})
        masks[row] = masks.get(row, 0) | mask_of(binding.indices)
        print(f"{binding.pod:24} -> {binding.node:8} GPUs {', '.join(map(str, binding.indices)) or '-'}")

    for gang, masks in placed.items():
        predicted = outlook(table, masks, Workload())
        if predicted is not None:
            step = f"{predicted.step_s * 1000:.0f} ms a step of VGG16"
            print(f"{gang} runs, {step} ({predicted.prediction.all_reduce.bottleneck})")

    for wait in decisions.waits:
        why = explain(seen.snapshot, seen.waiting, wait.gang, now=NOW, policy=policy, groups=seen.groups)
        print(f"{wait.gang} waits: {wait.message}{f'; {why.fix}' if why and why.fix else ''}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, UserError) as error:
        sys.exit(f"error: {error}")
