"""The hooks of coding agents, answered by the gate."""
