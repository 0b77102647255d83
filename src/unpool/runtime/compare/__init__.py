"""One model in several runtimes, or two models: which node departs first, by how much, and where it only chose."""
