"""``gangline crds``: the custom resource definitions, for any cluster."""

from __future__ import annotations

import click


@click.command("crds")
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "name"]), default="yaml")
def command(output: str) -> None:
    """Print the custom resource definitions, for `kubectl apply --server-side -f -`."""
    from gangline.api.codec import dump_json, dump_yaml
    from gangline.api.crds import crds

    found = crds()
    if output == "name":
        print("\n".join(one["metadata"]["name"] for one in found))
    elif output == "json":
        print(dump_json({"apiVersion": "v1", "kind": "List", "items": found}))
    else:
        print(dump_yaml(*found), end="")
