"""The names of links, as ``nvidia-smi topo -m`` writes them.

``X`` self; ``NVn`` a bond of n NVLinks; ``PIX`` at most one PCIe bridge; ``PXB`` several PCIe bridges, no
host bridge; ``PHB`` through a PCIe host bridge (the CPU); ``NODE`` between host bridges of one NUMA node;
``SYS`` between sockets (``SOC`` in old prints). Source: the legend of that command.
"""

from __future__ import annotations

import re

from gangline.errors import UserError

Matrix = tuple[tuple[str, ...], ...]

SELF = "X"
PCIE_NAMES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Links without NVLink, best first."""

SAME_SWITCH = ("PIX", "PXB")
"""Links that stay below one way to the CPU."""

_MEANINGS = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the PCIe host bridge of a CPU",
    "NODE": "host bridges of one NUMA node",
    "SYS": "between CPU sockets",
}

OLD_NAMES = {"SOC": "SYS"}
NVLINKS_MAX = 99

_NVLINK = re.compile(r"NV([1-9][0-9]?)\Z")


def nvlinks(name: str) -> int:
    """Return the number of NVLinks that a name stands for: 2 for ``NV2``, 0 for ``PHB``."""
    match = _NVLINK.match(name)
    return int(match[1]) if match else 0


def is_link(name: str) -> bool:
    """Return whether this is a name of the legend (``X`` is none: it is no link)."""
    return name in PCIE_NAMES or nvlinks(name) > 0


def legend(links: Matrix, kinds: str = "NVLinks") -> str:
    """Return what the names in a matrix mean, the best link first, in one line; empty for no links.

    Args:
        links: the matrix.
        kinds: what ``NVn`` is a bond of: ``NVLinks``, or ``xGMI links`` on GPUs of AMD.
    """
    found = {name for row in links for name in row}
    bonds = sorted((name for name in found if nvlinks(name)), key=nvlinks, reverse=True)
    parts = [f"{', '.join(bonds)}: so many {kinds}"] if bonds else []
    return "; ".join(parts + [f"{name}: {_MEANINGS[name]}" for name in PCIE_NAMES if name in found])


def check_matrix(rows: Matrix, what: str) -> Matrix:
    """Return the matrix, its names made canonical, once it is known to be sound.

    Args:
        rows: names of links, one row for each GPU.
        what: what is being read, for messages.

    Raises:
        UserError: it is not square, the diagonal is not ``X``, a name is unknown, or two directions differ.
    """
    count = len(rows)
    legend = "X, NV1 ... NV99, " + ", ".join(PCIE_NAMES)
    for index, row in enumerate(rows):
        if len(row) != count:
            raise UserError(f"{what}: row {index} has {len(row)} links, there are {count} GPUs")
    fixed = tuple(tuple(OLD_NAMES.get(name, name) for name in row) for row in rows)
    for first in range(count):
        for second in range(count):
            name = fixed[first][second]
            if first == second and name != SELF:
                raise UserError(f"{what}: GPU {first} to itself is `{name}`, must be `X`")
            if first != second and not is_link(name):
                raise UserError(
                    f"{what}: GPU {first} to GPU {second} is `{name}`, which is no link",
                    hint=f"links are {legend}",
                )
            if name != fixed[second][first]:
                raise UserError(
                    f"{what}: GPU {first} to GPU {second} is `{name}`, the way back is "
                    f"`{fixed[second][first]}`; both must be the same"
                )
    return fixed
