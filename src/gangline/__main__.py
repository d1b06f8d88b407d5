"""``python -m gangline``: the command line."""

from gangline.cli.app import main

main()
