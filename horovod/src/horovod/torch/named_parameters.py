"""Names of parameters, by which ranks find each other's gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def checked_names(param_groups: list[dict[str, Any]], names: Iterable[Any] | None) -> dict[Any, str]:
    """Return the name of every parameter.

    Args:
        param_groups: of the optimizer.
        names: pairs of name and parameter; None for names by their place.

    Raises:
        ValueError: no pairs, a name twice, or a parameter without one.
    """
    if names is None:
        return {
            parameter: f"allreduce.noname.{i}.{j}"
            for i, group in enumerate(param_groups)
            for j, parameter in enumerate(group["params"])
        }
    pairs = list(names)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    seen: set[str] = set()
    twice = {name for name, _ in pairs if name in seen or seen.add(name)}  # type: ignore[func-returns-value]
    if twice:
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates: "
            + ", ".join(sorted(twice))
        )
    named = {parameter: name for name, parameter in pairs}
    missing = [
        f"{i}.{j} of shape {tuple(parameter.shape)}"
        for i, group in enumerate(param_groups)
        for j, parameter in enumerate(group["params"])
        if parameter not in named
    ]
    if missing:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named: "
            f"{', '.join(missing)} (group and place in the optimizer)"
        )
    return named
