"""How long a model takes, and random inputs for it."""
