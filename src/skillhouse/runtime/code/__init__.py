"""Skills' own code: its tools, what runs it, and reloading."""
