"""What frontends share to show values to a person, and to write them as JSON."""
