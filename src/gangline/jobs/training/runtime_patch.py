"""Changes of a runtime for one job, as kubectl would merge them into a pod template."""

from __future__ import annotations

from typing import Any, Final

Obj = dict[str, Any]

_KEYS: Final = {"volumeMounts": "mountPath", "ports": "containerPort"}
"""By what the entries of a list are told apart, where not by name. Source: patch merge keys of core/v1."""
_ADDED: Final = ("tolerations",)


def merged(base: Obj, patch: Obj) -> Obj:
    """Return an object with a patch merged in: fields one by one, lists of named things by their names.

    >>> merged({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}, {"name": "B"}]})
    {'env': [{'name': 'A', 'value': '2'}, {'name': 'B'}]}
    """
    found = dict(base)
    for name, value in patch.items():
        before = found.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            found[name] = merged(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            found[name] = (
                [*before, *value] if name in _ADDED else _lists(before, value, _KEYS.get(name, "name"))
            )
        else:
            found[name] = value
    return found


def _lists(before: list[Any], after: list[Any], key: str) -> list[Any]:
    if not all(isinstance(one, dict) and key in one for one in (*before, *after)):
        return after
    changes = {one[key]: one for one in after}
    known = {one[key] for one in before}
    kept = [merged(one, changes[one[key]]) if one[key] in changes else one for one in before]
    return [*kept, *(one for one in after if one[key] not in known)]
