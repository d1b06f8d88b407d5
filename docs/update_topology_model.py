"""Write the tables and pictures of the topology model again: `python docs/update_topology_model.py`.

The text of `docs/concepts/topology-model.md` is edited there; what stands between the marks `<!-- NAME -->`
and `<!-- end -->` is computed here. With `--check` nothing is written, and the exit code is 1 if something is
out of date.
"""

import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import topology_cases as cases
import topology_pictures as pictures

from gangline.topology import best_rings, bus_gb_s, members, rates

PAGE = Path(__file__).parent / "concepts" / "topology-model.md"
IMAGES = PAGE.parent / "images"
BLOCK = re.compile(r"(<!-- (\w[\w-]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def percent(share: float) -> str:
    """Return ``98.6 %``."""
    return f"{100 * share:.1f} %"


def error(predicted: float, measured: float) -> str:
    """Return by how much a prediction is off, with its sign."""
    return f"{100 * (predicted / measured - 1):+.0f} %"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines) + "\n"


def constants() -> str:
    """Return the rates of the links."""
    links = [
        [
            gpu.kind,
            f"{gpu.nvlink_count} x {gpu.nvlink_gb_s:g}" if gpu.nvlink_count else "none",
            f"gen {gpu.pcie}: {rates.PCIE_GB_S[gpu.pcie]:g}",
        ]
        for gpu in rates.GPUS.values()
    ]
    hosts = ", ".join(f"{host.name} {host.socket_gb_s:g}" for host in rates.HOSTS.values())
    return table(["GPU", "NVLink", "PCIe"], links) + f"\nBetween two sockets: {hosts}.\n"


def bandwidths() -> str:
    """Return predicted beside measured bandwidths."""
    rows = [
        [
            case.what,
            f"{case.measured:g}",
            f"{case.predicted:.1f}",
            error(case.predicted, case.measured),
            case.source,
        ]
        for case in cases.rates()
    ]
    errors = [abs(case.predicted / case.measured - 1) for case in cases.rates()]
    mean, most = 100 * sum(errors) / len(errors), 100 * max(errors)
    return table(["case", "measured GB/s", "predicted", "error", "source"], rows) + (
        f"\nMean size of the error: {mean:.1f} %; the largest {most:.0f} %.\n"
    )


def scaling() -> str:
    """Return predicted beside measured efficiencies, and how far off they are together."""
    found = cases.scalings()
    rows = [
        [
            case.what,
            percent(case.measured),
            f"{percent(case.without)} ({error(case.without, case.measured)})",
            f"{percent(case.predicted)} ({error(case.predicted, case.measured)})",
            case.source,
        ]
        for case in found
    ]
    means = [
        sum(abs(share / case.measured - 1) for case, share in zip(found, shares, strict=True)) / len(found)
        for shares in ([case.without for case in found], [case.predicted for case in found])
    ]
    heads = [
        "case",
        "measured",
        "predicted, no overlap (error)",
        f"overlap {rates.QUOTED_OVERLAP:g} (error)",
        "source",
    ]
    return table(heads, rows) + (
        f"\nMean size of the error: {100 * means[0]:.1f} % without overlap, "
        f"{100 * means[1]:.1f} % with an overlap of {rates.QUOTED_OVERLAP:g}.\n"
    )


def step_times() -> str:
    """Return predicted beside measured step times, by placement."""
    rows = [
        [
            case.what,
            "+".join(case.placement),
            f"{case.measured:.3f}",
            f"{case.without:.3f} ({error(case.without, case.measured)})",
            f"{case.predicted:.3f} ({error(case.predicted, case.measured)})",
        ]
        for case in cases.step_times()
    ]
    overlap = f"overlap {rates.QUOTED_OVERLAP:g} (error)"
    right, pairs = cases.right_order()
    return table(["case", "GPUs by node", "measured s", "predicted, no overlap (error)", overlap], rows) + (
        f"\nOf {pairs} pairs of placements whose measured times differ by more than 5 %, the model without "
        f"overlap has {right} in the right order.\n"
    )


def quads() -> str:
    """Return how the 70 quads of a DGX-1 V100 differ."""
    machine = cases.DGX1_V100
    groups = Counter(
        (round(bus_gb_s(machine, quad), 1), round(best_rings(machine, quad).gb_s, 1)) for quad in cases.QUADS
    )
    ratios = cases.placements(cases.ACK, "vgg16", 0.0).quads
    rows = []
    for bus, ring in sorted(groups, reverse=True):
        alike = [
            index
            for index, quad in enumerate(cases.QUADS)
            if (round(bus_gb_s(machine, quad), 1), round(best_rings(machine, quad).gb_s, 1)) == (bus, ring)
        ]
        example = " ".join(map(str, members(cases.QUADS[alike[0]])))
        worst = max(ratios[index] for index in alike)
        rows.append([str(groups[bus, ring]), example, f"{bus:g}", f"{ring:g}", f"{worst:.3f}"])
    heads = [
        "quads",
        "for example",
        "bus GB/s",
        "of that by rings",
        "VGG16: best quad is faster by, no overlap",
    ]
    return table(heads, rows)


def speed_ups() -> str:
    """Return the published speed-ups of topology-aware placement beside the predicted ones."""
    rows = []
    for name, published in (("Alibaba", cases.ACK), ("arena", cases.ARENA)):
        for model, (fast, slow) in published.items():
            for overlap in (0.0, rates.QUOTED_OVERLAP):
                found = cases.placements(published, model, overlap)
                below = sum(ratio < fast / slow for ratio in found.quads)
                rows.append(
                    [f"{name}, {model}", f"{fast / slow:.3f}", f"{overlap:g}"]
                    + [f"{min(found.quads):.3f} to {max(found.quads):.3f}", f"{below} of 70"]
                    + [f"{ratio:.2f} ({error(ratio, fast / slow)})" for ratio in found.split.values()]
                )
    heads = ["case", "measured", "overlap", "70 quads of one node", "quads below the measured"]
    return table([*heads, *(f"2+2 over {rate} Gbit/s" for rate in (10, 25, 100))], rows)


def page() -> str:
    """Return the page with every computed block renewed."""
    makers = {
        "constants": constants,
        "bandwidths": bandwidths,
        "scaling": scaling,
        "step-times": step_times,
        "quads": quads,
        "speed-ups": speed_ups,
    }
    return BLOCK.sub(lambda block: f"{block[1]}\n{makers[block[2]]()}\n{block[3]}", PAGE.read_text())


def files() -> dict[Path, str]:
    """Return every file that this writes, with its content."""
    ratios = cases.placements(cases.ACK, "vgg16", 0.0)
    return {
        PAGE: page(),
        IMAGES / "dgx1-v100.svg": pictures.link_graph(cases.DGX1_V100, members(cases.QUADS[0])),
        IMAGES / "dgx1-v100-quads.svg": pictures.quad_histogram(
            ratios.quads, measured=1.885, split=ratios.split[25]
        ),
    }


if __name__ == "__main__":
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" not in sys.argv:
        for path in stale:
            path.write_text(files()[path])
    sys.stdout.write("\n".join(str(path) for path in stale or ["all up to date"]) + "\n")
    sys.exit(bool(stale) and "--check" in sys.argv)
