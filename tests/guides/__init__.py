"""The guides, run as a newcomer would: every command block of README.md and docs/guides."""
