"""The words of a task, the record of one call that threads share: an int64 array.

After the words that are named here come, for each slot, its address and the word that the task replaced; then for each
thread a cache line with the number of its parts that are taken; then the results of all parts.
"""

SHARED = -1  # stands for the first job where the last argument of a kernel is a task; no job has this number

RUN_AS_CALLER, RUN_PART, ARGUMENTS = range(3)
"""Addresses: of the function that shares the parts, of the one that computes a part, and of the words of arguments."""

STATUS, EXCEPTION = 3, 4
"""Of a part that failed."""

RESULTS, FIRST, STOP, THREADS, PARTS, DONE, TICKS, WAKES, SLOTS = range(5, 14)
"""Bytes before the results, jobs, threads, parts of each, workers that helped, ticks before sleep, workers to wake at
most, the first slot."""

OUT_OF_MEMORY = -(2**63)
"""What the C entry of a kernel returns if memory for its workspace is not to be had."""
