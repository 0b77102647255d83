"""The operators on an NVIDIA GPU, compared with PyTorch, torch.compile, cuDNN and CuPy: `python -m benchmarks gpu`.

    cases.py     what is measured, and how many bytes and operations it takes
    engines.py   who is asked, and how
    device.py    the clock of the device, and what it can do at most
    run.py       every case by every engine that has it
    page.py      the results as a table of docs/gpu.md

Without a GPU nothing can be measured; the arithmetic is tested all the same.
"""
