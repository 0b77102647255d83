"""The words of a task, the record of one call that threads share: an int64 array.

The words that are named here come first. Then each slot has two words: its address, and the word that the task
replaced. Then each thread has a cache line with the number of its parts that are taken. The results of all parts come
last.
"""

SHARED = -1  # takes the place of the first job if the last argument is a task; no job has this number

RUN_AS_CALLER, RUN_PART, ARGUMENTS = range(3)
"""Addresses: of the function that shares the parts, of the one that computes a part, and of the words of arguments."""

STATUS, EXCEPTION = 3, 4
"""Words that describe a failed part: its status, and the address of its exception."""

RESULTS, FIRST, STOP, THREADS, PARTS, DONE, TICKS, WAKES, SLOTS = range(5, 14)
"""Offset of the results in bytes, first job, last job plus 1, threads, parts per thread, workers that helped, ticks
before the caller sleeps, maximum number of workers to wake, the first slot."""

OUT_OF_MEMORY = -(2**63)
"""The result of a C entry that could not allocate its workspace."""
