"""Domains of nodes by a label that must be equal for a gang: a level of the network, or any other label."""

from __future__ import annotations

import numpy as np

from gangline.placement.free_resources import Ints
from gangline.placement.node_table import NodeTable


def domains_of(table: NodeTable, label: str) -> tuple[Ints, int]:
    """Return the domain of each node, int64 (N,), and how many there are; -1 for a node without the label."""
    level = table.level(label)
    if level < 0:
        return table.label_domains(label)
    return table.domains[level].astype(np.int64), len(table.domain_names[level])


def domain_name(table: NodeTable, label: str, row: int) -> str:
    """Return what the domain of a node is called: with the wider ones in front, where it is a level."""
    level = table.level(label)
    if level < 0:
        return table.views[row].labels.get(label, "")
    return "/".join(table.domain_names[level][table.domains[level, row]])
