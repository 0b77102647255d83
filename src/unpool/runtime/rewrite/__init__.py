"""Commands on files: a model repaired, written with explicit pads, or brought to a newer opset, and verified."""
