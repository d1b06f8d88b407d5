"""The training for which steps are predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.placement import Workload


DEFAULT_MODEL = "vgg16"
"""Whose training is predicted unless another is named."""


def read_workload(model: str, step_ms: float | None, levels: str) -> Workload:
    """Return the training that predictions are made for.

    Raises:
        UserError: the model is unknown, or nobody knows how long its step is.
    """
    from gangline.placement import Workload
    from gangline.placement.prediction import STEP_S
    from gangline.topology import Training, parse_levels
    from gangline.topology.step_time import BYTES_FP32, PARAMETERS

    if model not in PARAMETERS:
        raise UserError(
            f"--model {model}: no model of that name is known", hint=f"known are {', '.join(PARAMETERS)}"
        )
    if step_ms is None and model not in STEP_S:
        raise UserError(
            f"--model {model}: how long its step takes on one GPU is not known", hint="tell it: --step-ms 250"
        )
    seconds = step_ms / 1000 if step_ms is not None else STEP_S[model]
    return Workload(model, Training(BYTES_FP32 * PARAMETERS[model], seconds), parse_levels(levels))
