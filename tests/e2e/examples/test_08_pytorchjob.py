"""examples/08-pytorchjob: three pods find each other by the variables of a PyTorchJob."""

from __future__ import annotations

FILE = "examples/08-pytorchjob/pytorchjob.yaml"


def test_the_ranks_of_three_pods_add_up(gangline) -> None:
    result = gangline("run", FILE)

    assert result.returncode == 0, result.stdout
    assert "rank 0 of 3 on ranks-master-0: the ranks add up to 3" in result.stdout
    for worker in ("worker-0", "worker-1"):
        log = gangline("logs", "ranks", "-i", worker).stdout
        assert log.endswith(f"on ranks-{worker}: the ranks add up to 3\n"), log
