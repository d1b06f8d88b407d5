"""Which images the one-machine cluster has: none is pulled here."""

from __future__ import annotations

from difflib import get_close_matches


def image_problem(image: str) -> str:
    """Return why this machine cannot run an image, with a hint on a second line; empty when it can."""
    from gangline.local.images import LOCAL_IMAGES, is_local_image

    if not image or is_local_image(image):
        return ""
    names = sorted(LOCAL_IMAGES)
    near = get_close_matches(image.partition(":")[0], names, n=1, cutoff=0.7)
    if near:
        return f"this machine has no such image\ndid you mean `{near[0]}`?"
    known = ", ".join(f"`{name}`" for name in names)
    return (
        f"this machine has no such image, and the one-machine cluster pulls none (it has {known})\n"
        f"write `image: {names[0]}`, which has a shell, Python and the MPI of this machine, "
        "or run the file on a cluster that has the image: --context CONTEXT"
    )
