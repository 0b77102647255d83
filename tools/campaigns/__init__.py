"""Long randomized campaigns against files, tiles and resume; each module runs as `python -m tools.campaigns.NAME`.

The suite runs a short form of each. docs/reliability.md has the counts of the long ones.
"""
