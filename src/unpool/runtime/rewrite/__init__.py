"""Commands on files: a model put right, written out plainly, or brought to a newer opset, and verified."""
