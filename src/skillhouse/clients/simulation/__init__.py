"""Simulates clients: what each makes of the SKILL.md files that it can reach."""
