"""Random models and damaged files through everything that reads one: only errors of unpool, no crash, no hang."""
