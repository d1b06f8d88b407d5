"""Start the fork server: ``python -I -S .../gangline/cluster/node/shim``."""

import os
import sys

if __name__ == "__main__":
    package_root = os.path.abspath(__file__)  # noqa: PTH100 - pathlib is not imported yet
    for _ in range(5):
        package_root = os.path.dirname(package_root)  # noqa: PTH120 - as above
    sys.path.append(package_root)
    from gangline.cluster.node.shim.fork_server import main

    main()
