"""Small changes of a graph before it is cut: names, functions, constants, folding. None changes what it computes."""
