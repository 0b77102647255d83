"""Rules of the operators that can be tiled exactly, by which axes follow the image; and why others have none."""
