"""Write `docs/reference/pod-fields.md` again from its table: `python docs/update_pod_fields.py`."""

from pathlib import Path

from gangline.cluster.server.rules.pod_fields import FieldAnswer, answers

TARGET = Path(__file__).parent / "reference" / "pod-fields.md"
HEAD = """# Fields of a pod

<!-- Written by docs/update_pod_fields.py; do not edit. -->

What the one-machine cluster makes of every field of a pod in the schema of Kubernetes 1.37. No field is taken
and passed over without a word:

- *honoured*: it does what Kubernetes' documentation says.
- *refused*: the API server answers 422 with the field's path and the reason.
- *warned*: the object is taken, and the answer's `Warning:` header says what the field does not do here. The
  same is said of pod templates, those of Jobs and MPIJobs among them.

Modes are the [isolation modes](../guides/isolation-modes.md). A field that is refused or warned of only for
some values, or in some modes, is honoured for all others. On a real cluster its own rules hold.
"""


def shown(value: object) -> str:
    """Return a value as a manifest has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def condition(answer: FieldAnswer) -> str:
    """Return in words when an answer holds, empty for always."""
    parts = []
    if answer.when is not None:
        parts.append(" or ".join(f"`{shown(value)}`" for value in answer.when))
    if answer.isolations:
        parts.append("mode " + " and ".join(f"`{mode}`" for mode in answer.isolations))
    parts += [f"not with `{name}: {shown(value)}`" for name, value in answer.unless.items()]
    return "; ".join(parts)


def section(name: str, fields: dict[str, FieldAnswer]) -> str:
    """Return the part of one message."""
    honoured = [f"`{field}`" for field, answer in fields.items() if answer.verdict == "honoured"]
    lines = [f"## {name}", ""]
    if honoured:
        lines += [f"Honoured: {', '.join(honoured)}.", ""]
    others = [(field, answer) for field, answer in sorted(fields.items()) if answer.verdict != "honoured"]
    if others:
        lines += ["| field | | for | what is said |", "|---|---|---|---|"]
        lines += [f"| `{field}` | {one.verdict} | {condition(one)} | {one.says} |" for field, one in others]
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(section(name, fields) for name, fields in answers().items())])


if __name__ == "__main__":
    TARGET.write_text(page())
