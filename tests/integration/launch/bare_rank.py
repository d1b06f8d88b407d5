"""A rank of an elastic launch that needs no torch: says its places, and ends well once a file is there."""

import os
import sys
import time
from pathlib import Path

from gangline.train.elastic.board import Board

board, stop = Board.of(os.environ), Path(sys.argv[1])
while (place := board.join()) is not None:
    said = f"rank {place['RANK']} of {place['WORLD_SIZE']} generation {board.generation}"
    print("on", os.environ.get("HOSTNAME"), said, flush=True)
    while not board.is_changing():
        if stop.exists():
            sys.exit(0)
        time.sleep(0.02)
