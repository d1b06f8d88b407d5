"""Which images the one-machine cluster has: none is pulled here."""

from __future__ import annotations

from difflib import get_close_matches


def image_problem(image: str) -> str:
    """Return why this machine cannot run an image, with a hint on a second line; empty when it can."""
    from gangline.local.images import BASE_IMAGE, image_name

    name = image_name(image)
    if not image or name == BASE_IMAGE:
        return ""
    rule = f"this machine has no such image, and the one-machine cluster pulls none (it has `{BASE_IMAGE}`)"
    if get_close_matches(name, [BASE_IMAGE], cutoff=0.7):
        return f"{rule}\ndid you mean `{BASE_IMAGE}`?"
    return (
        f"{rule}\nwrite `image: {BASE_IMAGE}`, which has a shell, Python and the MPI of this machine, "
        "or run the file on a cluster that has the image: --context CONTEXT"
    )
