"""Lets a model find a skill in the configured repositories, and install it after one approval."""

from skillhouse.extensions.installs.find_and_install import (
    FindAndInstallTool as FindAndInstallTool,
)
