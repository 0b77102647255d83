"""The exporter of torch behind dynamo=False: a traced graph of TorchScript, translated by symbolics."""
