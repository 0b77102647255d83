"""Builds the libraries of kernels that unpool is shipped with: `python -m unpool.build`.

    catalogue.py   the calls whose kernels are shipped
    compile.py     kernels to object files for a level of processors, by Numba and LLVM
    fastcall.py    a kernel as a Python function
    runtime.py     what kernels need beside their own code
    targets.py     systems and processors
    __main__.py    all levels of a target, linked, with a manifest

Kernels are typed by Numba on this machine, and optimised by LLVM, whose targets are all part of llvmlite, for another.
The package `ziglang` links for all systems.
"""
