"""What a pod template must look like before anything is created from it.

The API server checks pods again and knows far more rules; these are the ones that users meet, found early
and with the path inside the job. Nothing that Kubernetes accepts is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gangline.api.core import ObjectMeta, PodSpec, Wire
from gangline.api.decode import Unknown, decode, join_path, show, similar_name, unknown_field
from gangline.api.dns_names import is_dns_1123_label
from gangline.api.wire_types import message
from gangline.errors import FieldError
from gangline.units import parse_quantity

_TEMPLATE: Final = "core/v1.PodTemplateSpec"


class _Template(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


def check_pod_template(template: dict[str, Any], path: str, *, unknown: Unknown) -> list[FieldError]:
    """Return the errors of one pod template: types, container names and images, quantities, volumes.

    An empty list of containers is not reported here, for the job kinds say that in their own words.

    Args:
        template: ``metadata`` and ``spec`` of the pod, as written.
        path: field path of the template.
        unknown: ``error`` reports every field that pods do not have, in the releases that are known here;
            ``similar`` only those that look mistyped; ``ignore`` none.
    """
    _, errors = decode(template, _Template, path=path, unknown="ignore")
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return errors
    spec_path = f"{path}.spec"
    if unknown != "ignore":
        errors += _unknown_fields(template, _TEMPLATE, path, unknown)
    names = (volume.get("name") for volume in _objects(spec.get("volumes")))
    volumes = {name for name in names if isinstance(name, str)}
    seen: set[str] = set()
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(_objects(spec.get(kind))):
            at = f"{spec_path}.{kind}[{index}]"
            errors += _check_container(container, at, seen)
            errors += _check_mounts(container, at, volumes)
    return _first_of_each(errors)


def _check_container(container: dict[str, Any], path: str, seen: set[str]) -> list[FieldError]:
    errors = []
    name = container.get("name")
    if isinstance(name, str):
        if not name:
            errors.append(FieldError("Required", f"{path}.name", "must be set"))
        elif not is_dns_1123_label(name):
            rule = (
                "must be at most 63 lower-case letters, digits and dashes, and begin and end without a dash"
            )
            errors.append(FieldError("Invalid", f"{path}.name", rule, show(name)))
        elif name in seen:
            errors.append(
                FieldError("Duplicate", f"{path}.name", "two containers of the pod have this name", name)
            )
        seen.add(name)
    if container.get("image") in (None, ""):
        rule = "must name an image, for example `gangline/base` on the one-machine cluster"
        errors.append(FieldError("Required", f"{path}.image", rule))
    resources = container.get("resources")
    if isinstance(resources, dict):
        for kind in ("requests", "limits"):
            errors += check_quantities(resources.get(kind), f"{path}.resources.{kind}")
    return errors


def check_quantities(amounts: Any, path: str) -> list[FieldError]:
    """Return an error for each entry of a resource list that is no quantity or is negative."""
    errors = []
    for name, amount in amounts.items() if isinstance(amounts, dict) else ():
        if not isinstance(amount, str | int | float) or isinstance(amount, bool):
            continue
        try:
            negative = parse_quantity(amount) < 0
        except ValueError as error:
            errors.append(FieldError("Invalid", f"{path}[{name}]", str(error)))
        else:
            if negative:
                errors.append(FieldError("Invalid", f"{path}[{name}]", "must not be negative", show(amount)))
    return errors


def _check_mounts(container: dict[str, Any], path: str, volumes: set[str]) -> list[FieldError]:
    errors = []
    taken: set[str] = set()
    for index, mount in enumerate(_objects(container.get("volumeMounts"))):
        at = f"{path}.volumeMounts[{index}]"
        name, place = mount.get("name"), mount.get("mountPath")
        if isinstance(name, str) and name and name not in volumes:
            known = ", ".join(sorted(f"`{volume}`" for volume in volumes)) or "none"
            rule = f"no volume of the pod has this name; it has {known}"
            errors.append(FieldError("Invalid", f"{at}.name", rule, name))
        if isinstance(place, str):
            if place in taken:
                errors.append(
                    FieldError("Duplicate", f"{at}.mountPath", "two volumes are mounted here", place)
                )
            taken.add(place)
    return errors


def _unknown_fields(value: Any, kind: str, path: str, unknown: Unknown) -> Iterator[FieldError]:
    """Yield an error for each field that a message of Kubernetes does not have."""
    known = message(kind).by_name
    for name, item in value.items() if isinstance(value, dict) else ():
        at, field = join_path(path, str(name)), known.get(name)
        if field is None:
            meant = similar_name(str(name), known)
            if meant or unknown == "error":
                yield unknown_field(at, f"did you mean `{meant}`?" if meant else "")
        elif field.is_message:
            for place, one in _entries(item, field.shape, at):
                yield from _unknown_fields(one, field.type, place, unknown)


def _entries(value: Any, shape: str, path: str) -> list[tuple[str, Any]]:
    """Return the values of a field, each with its path: of a list, of a map, or the one."""
    if shape == "*":
        items = value if isinstance(value, list) else []
        return [(f"{path}[{index}]", one) for index, one in enumerate(items)]
    if shape == "%":
        return [(f"{path}[{key}]", one) for key, one in value.items()] if isinstance(value, dict) else []
    return [(path, value)]


def _first_of_each(errors: list[FieldError]) -> list[FieldError]:
    """Drop what two checks found at the same place."""
    return list({error.path: error for error in reversed(errors)}.values())[::-1]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
