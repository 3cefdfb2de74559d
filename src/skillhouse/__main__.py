"""Runs the command line as `python -m skillhouse`.

Python puts the current directory first on its path then, and a project could bring modules of its
own. What comes from here on is taken from elsewhere; what Python itself imports before (a package
`skillhouse` or a module `typing` of that directory, for example) is not in our power. Only
`python -P -m skillhouse` and the program `skillhouse` look there for nothing.
"""

import os
import sys

if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from skillhouse.frontends.cli import main

if __name__ == "__main__":
    sys.exit(main())
