"""Draw the pictures of the topology model as SVG: the link graph of a DGX-1, and how its quads differ."""

from collections import Counter

from gangline.topology import Machine

INK, PALE, ACCENT, WARN, PAPER = "#1f2933", "#9aa5b1", "#0f766e", "#b45309", "#ffffff"
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"

PLACES = {1: (90, 130), 0: (260, 130), 2: (90, 300), 3: (260, 300)} | {
    4: (460, 130), 5: (630, 130), 7: (460, 300), 6: (630, 300)
}  # fmt: skip
"""Where each GPU of the cube mesh stands: a quad left, a quad right, so that few links cross."""

ARCS = {(1, 5): 45, (2, 6): 385}
"""Links that pass other GPUs, and the height at which they do."""


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    """Return a whole picture on white paper."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' role='img'><title>{title}</title>"
    )
    return (
        "\n".join([head, f"<rect width='{width}' height='{height}' fill='{PAPER}'/>", *parts, "</svg>"])
        + "\n"
    )


def text(x: float, y: float, words: str, *, size: int = 13, color: str = INK, anchor: str = "middle") -> str:
    """Return a line of text; ``y`` is its base line."""
    style = f"{FONT} font-size='{size}' fill='{color}' text-anchor='{anchor}'"
    return f"<text x='{x:g}' y='{y:g}' {style}>{words}</text>"


def link_graph(machine: Machine, best: tuple[int, ...]) -> str:
    """Return the NVLinks of a DGX-1 with V100: double links thick, the two best quads tinted."""
    parts = [f"<rect x='{x}' y='85' width='260' height='260' rx='18' fill='#e6f4f1'/>" for x in (45, 415)]
    for first in range(machine.count):
        for second in range(first + 1, machine.count):
            if width := machine.widths[first][second]:
                parts.append(_link(first, second, width))
    for gpu, (x, y) in PLACES.items():
        parts.append(f"<circle cx='{x}' cy='{y}' r='22' fill='{PAPER}' stroke='{INK}' stroke-width='1.5'/>")
        parts.append(text(x, y + 5, str(gpu), size=15))
    parts += [
        text(50, 75, f"quad {' '.join(map(str, best))}", color=ACCENT, anchor="start"),
        text(670, 75, "quad 4 5 6 7", color=ACCENT, anchor="end"),
        f"<line x1='200' y1='420' x2='240' y2='420' stroke='{INK}' stroke-width='5'/>",
        text(250, 425, "two NVLinks", anchor="start"),
        f"<line x1='390' y1='420' x2='430' y2='420' stroke='{PALE}' stroke-width='2'/>",
        text(440, 425, "one NVLink", anchor="start"),
    ]
    return svg(720, 445, "NVLinks of a DGX-1 with eight V100", parts)


def _link(first: int, second: int, width: int) -> str:
    (x1, y1), (x2, y2) = PLACES[first], PLACES[second]
    style = f"stroke='{INK}' stroke-width='5'" if width > 1 else f"stroke='{PALE}' stroke-width='2'"
    if (first, second) in ARCS:
        height = ARCS[first, second]
        middle = 2 * height - (y1 + y2) / 2  # so that the curve's middle lies at that height
        return f"<path d='M {x1} {y1} Q {(x1 + x2) / 2:g} {middle:g} {x2} {y2}' fill='none' {style}/>"
    return f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' {style}/>"


def quad_histogram(ratios: tuple[float, ...], *, measured: float, split: float) -> str:
    """Return a histogram of the 70 quads by how much faster the best one is, with two marks."""
    left, right, bottom, top = 70, 670, 330, 60
    least, most = 1.0, 2.0
    step = 0.02

    def at(ratio: float) -> float:
        return left + (ratio - least) / (most - least) * (right - left)

    bars = Counter(int((ratio - least) / step + 1e-6) for ratio in ratios)
    tallest = max(bars.values())
    parts = [f"<line x1='{left}' y1='{bottom}' x2='{right}' y2='{bottom}' stroke='{INK}'/>"]
    for bar, count in sorted(bars.items()):
        height = (bottom - top - 40) * count / tallest
        x = at(least + bar * step)
        parts.append(
            f"<rect x='{x + 1:g}' y='{bottom - height:g}' width='{at(least + step) - left - 2:g}' "
            f"height='{height:g}' fill='{ACCENT}'/>"
        )
        parts.append(text(x + (at(least + step) - left) / 2, bottom - height - 6, str(count)))
    for tick in range(0, 11, 2):
        ratio = 1 + tick / 10
        parts.append(
            f"<line x1='{at(ratio):g}' y1='{bottom}' x2='{at(ratio):g}' y2='{bottom + 5}' stroke='{INK}'/>"
        )
        parts.append(text(at(ratio), bottom + 22, f"{ratio:.1f}"))
    for ratio, words, color, y in (
        (measured, f"measured {measured}", WARN, top + 5),
        (split, f"two nodes 2+2, 25 Gbit/s: {split:.2f}", INK, top + 45),
    ):
        parts.append(
            f"<line x1='{at(ratio):g}' y1='{y + 6}' x2='{at(ratio):g}' y2='{bottom}' stroke='{color}' "
            f"stroke-width='2' stroke-dasharray='6 4'/>"
        )
        parts.append(text(at(ratio) - 6, y + 18, words, color=color, anchor="end"))
    parts += [
        text((left + right) / 2, 30, "VGG16 on four V100 of a DGX-1: all 70 quads", size=16),
        text((left + right) / 2, bottom + 48, "predicted speed of the best quad over this one (no overlap)"),
        text(left, top - 8, "quads", anchor="start"),
    ]
    return svg(720, 395, "Predicted slow-down of the 70 quads of a DGX-1", parts)
