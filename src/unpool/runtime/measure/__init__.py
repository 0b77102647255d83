"""Run times of a model, on random inputs."""
