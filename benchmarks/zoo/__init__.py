"""A zoo of real networks: exported from the libraries that define them, with random weights, and timed on each engine.

networks.py lists them, export.py writes their files, measure.py times them, tables.py shows the results.
"""
