"""Rules that find the nodes which runtimes disagree about, or which none reads as the author meant."""
