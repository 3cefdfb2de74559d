"""Skills' own code in a house: what is offered of it, what runs it, and reading it anew."""
