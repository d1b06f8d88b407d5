"""The options ``--image`` and ``--runtime``, and what users are told about what serves an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import msgspec

from gangline.client.run.images import PLAIN_WAYS, image_check, isolation_of, plain_problem
from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.client.target import ClusterTarget
    from gangline.cluster.daemon.cluster import Cluster
    from gangline.cluster.images.image_map import ImageMap, UserImage
    from gangline.cluster.paths import ClusterPaths

F = TypeVar("F", bound=Callable[..., Any])

NO_RUNTIME = "none"


class ImageOptions(msgspec.Struct, frozen=True):
    """What was written on the command line.

    Attributes:
        texts: ``NAME=FOLDER`` each; an empty folder takes the name out of the map.
        runtime: ``containerd``, ``podman``, ``docker``, ``none`` to have none any more; None if not given.
        bench_limits: limits of the benchmarks, ``none`` for no more; None if not given.
    """

    texts: tuple[str, ...] = ()
    runtime: str | None = None
    bench_limits: str | None = None

    def check_place(self, *, is_local: bool) -> None:
        """Refuse the options for a cluster that is not this machine's."""
        if not is_local and self.bench_limits is not None:
            raise UserError(
                "--bench-limits belongs to the one-machine cluster",
                hint="leave it out, or leave --context and --kubeconfig out",
            )
        if not is_local and (self.texts or self.runtime):
            option = "--image" if self.texts else "--runtime"
            raise UserError(
                f"{option} belongs to the one-machine cluster; a cluster of a kubeconfig pulls images itself",
                hint="leave it out, or leave --context and --kubeconfig out",
            )

    def read(self) -> dict[str, UserImage | None]:
        """Return the folders by image name.

        Raises:
            UserError: an option cannot be read, a folder serves nothing, or the runtime is not here.
        """
        from gangline.cluster.images.image_map import read_user_image
        from gangline.cluster.images.local_images import BASE_IMAGE, image_name

        images: dict[str, UserImage | None] = {}
        for text in self.texts:
            name, equals, folder = text.partition("=")
            if not equals or not name.strip():
                raise UserError(
                    f"--image {text}: write NAME=FOLDER",
                    hint="--image pytorch/pytorch=.venv, or --context CONTEXT to run in it on a cluster",
                )
            if image_name(name) == BASE_IMAGE:
                raise UserError(f"--image {text}: `{BASE_IMAGE}` is this machine itself and stays so")
            images[name.strip()] = read_user_image(name, folder) if folder else None
        return images

    def planned(self, cluster: Cluster, isolation: str = "") -> ImageMap:
        """Return the map of a cluster as it will be; nothing is written or started.

        Args:
            cluster: up or down.
            isolation: that it is about to get, empty for the one that it has.

        Raises:
            UserError: see ``read``; or the runtime cannot be used here.
        """
        from gangline.cluster.daemon.kept_image_map import load_image_map
        from gangline.cluster.images.runtime.requirements import check_runtime

        changes = self.read()
        isolation = isolation or isolation_of(cluster)
        if self.runtime not in (None, NO_RUNTIME):
            check_runtime(str(self.runtime), isolation)
        for name, image in changes.items():
            if image is not None and (problem := plain_problem(image, isolation)):
                raise UserError(
                    f"image `{name}` cannot be served by `{image.path}`: {problem}", hint=PLAIN_WAYS
                )
        return load_image_map(cluster).changed(changes, self._runtime, self._limits())

    def save(self, cluster: Cluster) -> ImageMap:
        """Change the map of a cluster that is up, and return it."""
        from gangline.cluster.daemon.kept_image_map import change_image_map, load_image_map
        from gangline.cluster.images.runtime.containerd import wait_containerd

        if not self.texts and self.runtime is None and self.bench_limits is None:
            return load_image_map(cluster)
        known = change_image_map(cluster, self.read(), self._runtime, self._limits())
        if self.runtime == "containerd":
            wait_containerd(cluster.paths)
        return known

    def _limits(self) -> str | None:
        """Return the limits to keep, None for those that are kept already.

        Raises:
            UserError: a limit cannot be read.
        """
        if self.bench_limits in (None, NO_RUNTIME):
            return None if self.bench_limits is None else ""
        from gangline.bench.limits import parse

        return ",".join(f"{key}={value}" for key, value in parse(str(self.bench_limits)).items())

    @property
    def _runtime(self) -> str | None:
        return "" if self.runtime == NO_RUNTIME else self.runtime


def image_options(function: F) -> F:
    """Add ``--image`` and ``--runtime``, passed on as one ``images``."""
    from functools import wraps

    @wraps(function)
    def wrapped(
        *args: Any, image: tuple[str, ...], runtime: str | None, bench_limits: str | None, **rest: Any
    ) -> Any:
        return function(*args, images=ImageOptions(image, runtime, bench_limits), **rest)

    described = click.option(
        "--runtime",
        type=click.Choice(["containerd", "podman", "docker", NO_RUNTIME]),
        help="Pull other images with this, and run them in real containers; kept.  [default: none]",
    )(wrapped)
    described = click.option(
        "--bench-limits",
        metavar="KEY=VALUE,...",
        help="Limit benchmarks of local images, such as batch_size=8,num_batches=20; kept. `none` ends it.",
    )(described)
    return click.option(
        "--image",
        multiple=True,
        metavar="NAME=FOLDER",
        help="Serve an image from a folder or virtual environment of yours; kept. `NAME=` forgets it.",
    )(cast(F, described))


def image_check_of(
    target: ClusterTarget, options: ImageOptions | None = None
) -> Callable[[dict[str, Any]], str]:
    """Return ``image_check`` for the target's cluster as the options will have it."""
    from gangline.cluster.daemon.cluster import Cluster

    cluster = Cluster(target.paths)
    return image_check((options or ImageOptions()).planned(cluster), isolation_of(cluster))


def describe_map(known: ImageMap, paths: ClusterPaths) -> list[str]:
    """Return a line for each entry of a cluster's map."""
    lines = [f"image {name} served by {image}" for name, image in sorted(known.images.items())]
    if known.bench_limits:
        lines.append(f"benchmarks of local images limited to {known.bench_limits}")
    if known.runtime == "containerd":
        from gangline.cluster.images.runtime.containerd import ContainerdStore

        load = " ".join([*ContainerdStore(paths).command, "images", "import", "FILE"])
        return [*lines, f"other images served by containerd; `{load}` loads one from a file"]
    return [*lines, f"other images served by {known.runtime}"] if known.runtime else lines
