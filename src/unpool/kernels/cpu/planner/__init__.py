"""Plans without Python: functions that Numba compiles.

    request.py          what a plan is asked for: a node's attributes, and the shapes of its inputs, as numbers
    blob.py             the bytes of a plan, as `unpool/onnxruntime/plans.py` writes them
    max_pool.py         plans of MaxPool
    max_unpool.py       plans of MaxUnpool
    conv_transpose.py   plans of ConvTranspose, whose request, operands and steps are in the files of that name
    phase_tables.py     its tables, and direct_tables.py: as loops, what NumPy makes in Python
    activation.py       steps of activations: none yet, so such a node is left to Python

They choose kernels, and compute tables and arguments, by the functions that Python interprets when it prepares a call.
"""
