"""What every operator that can be tiled exactly makes of its inputs' axes, and why others cannot be."""
