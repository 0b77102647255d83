"""What a version of an operator accepts, what the next one changed, and what it does to sizes, drawn as text."""
