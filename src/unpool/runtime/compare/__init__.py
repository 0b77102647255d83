"""One model in several runtimes, or two models: their outputs, the first node that differs, by how much and why."""
