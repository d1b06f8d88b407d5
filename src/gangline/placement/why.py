"""Why something does not fit: the first binding reason and the shortfall, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from gangline.placement.affinity.why_rules import rule_refusals, rule_shortfall
from gangline.placement.amounts import PODS
from gangline.placement.capacity import capacity
from gangline.placement.filters import filter_reason
from gangline.placement.fit import place, visible_room
