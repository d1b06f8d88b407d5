"""Limits of a small machine: upper bounds, and that what they changed is said."""

from __future__ import annotations

import pytest

from gangline.bench.limits import Limits, from_environment, parse
from gangline.errors import UserError


def test_bound_lowers_and_never_raises() -> None:
    limits = Limits(parse("batch_size=8,num_batches=20"))

    assert limits.count("batch_size", 256) == 8
    assert limits.count("num_batches", 5) == 5
    assert limits.line() == "Limited by --bench-limits: batch_size 256 -> 8"
    assert limits.record() == {"batch_size": {"asked": 256, "used": 8}}


def test_model_is_replaced() -> None:
    limits = Limits(parse("model=resnet18"))

    assert limits.model("resnet101") == "resnet18"
    assert limits.line() == "Limited by --bench-limits: model resnet101 -> resnet18"


def test_lowered_twice_tells_what_was_asked_for_first() -> None:
    limits = Limits(parse("num_warmup_batches=10"))

    limits.lower("num_warmup_batches", limits.count("num_warmup_batches", 50), 2)

    assert limits.line() == "Limited by --bench-limits: num_warmup_batches 50 -> 2"


def test_nothing_is_said_where_nothing_was_limited() -> None:
    limits = from_environment({})

    assert limits.count("batch_size", 256) == 256
    assert limits.line() == ""


@pytest.mark.parametrize(
    "text", ["batchsize=8", "batch_size", "batch_size=0", "batch_size=-1", "num_iters=x"]
)
def test_mistake_is_named(text: str) -> None:
    with pytest.raises(UserError, match=text.partition("=")[0]):
        from_environment({"GANGLINE_BENCH_LIMITS": text})
