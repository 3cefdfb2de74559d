"""Runs the command line as `python -m skillhouse`."""

import sys

from skillhouse.frontends.cli import main

if __name__ == "__main__":
    sys.exit(main())
