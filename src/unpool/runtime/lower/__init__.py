"""Models written in the operators that a deployment target runs, with the same results."""
