"""The exporter of torch with dynamo=False: a trace, translated node by node with symbolics."""
