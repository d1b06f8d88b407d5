"""``gangline metrics``: every process' figures on the one-machine cluster, and how to scrape them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from gangline.cli.options.target import cluster_option
from gangline.client.home import usable_paths

if TYPE_CHECKING:
    from gangline.kube.client import Client


@click.command("metrics")
@click.option(
    "--scrape-config", is_flag=True, help="Print a configuration of Prometheus for this cluster instead."
)
@cluster_option
def command(scrape_config: bool, cluster: str) -> None:
    """Print the figures of every process of the one-machine cluster, as Prometheus reads them.

    API server, operator, scheduler, node agent, what watches over pods, what pods use, trainings, and pods
    that say by `prometheus.io/scrape` that they have figures. The label `component` says whose they are.
    """
    from gangline.api.codec import dump_yaml
    from gangline.cluster.api_access import ADMIN
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.daemon.cluster_facts import KUBERNETES, load_facts
    from gangline.errors import UserError

    paths = usable_paths(cluster)
    found, facts = Cluster(paths), load_facts(paths)
    if facts is None or not found.status().ready:
        other = "" if cluster == "default" else f" --cluster {cluster}"
        raise UserError(f"cluster `{cluster}` is not up", hint=f"start it: gangline up{other}")
    is_own = facts.control_plane != KUBERNETES
    if not scrape_config:
        path = "/metrics" if is_own else f"/api/v1/nodes/{facts.node_names[0]}/proxy/metrics"
        print(found.call(lambda client: _read(client, path)).rstrip("\n"))
        return
    folder = paths.certificates
    who = {"authorization": {"credentials_file": str(paths.token)}}
    tls = {"ca_file": str(folder / "ca.crt")}
    if not is_own:
        who = {}
        tls |= {"cert_file": str(folder / f"{ADMIN}.crt"), "key_file": str(folder / f"{ADMIN}.key")}
    job: dict[str, Any] = {
        "job_name": f"gangline-{cluster}",
        "scheme": "https",
        "honor_labels": True,  # `job` of a training is the training's, and Prometheus has one of that name
        **who,
        "tls_config": tls,
        "static_configs": [{"targets": [urlsplit(facts.metrics_url).netloc]}],
    }
    print(dump_yaml({"global": {"scrape_interval": "15s"}, "scrape_configs": [job]}).rstrip("\n"))


async def _read(client: Client, path: str) -> str:
    async with client.open(path, {}) as answer:
        return b"".join([piece async for piece in answer.pieces()]).decode()
