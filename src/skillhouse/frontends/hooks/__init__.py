"""Answers the hooks of coding agents by the gate, which decides about their own tools too."""
