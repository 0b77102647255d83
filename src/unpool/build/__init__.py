"""Builds the libraries of kernels that unpool is shipped with: `python -m unpool.build`.

    catalogue.py   the calls whose kernels are shipped
    compile.py     kernels to object files for a level of processors, by Numba and LLVM
    fastcall.py    a kernel as a Python function
    runtime.py     what kernels need beside their own code
    targets.py     systems and processors
    __main__.py    all levels of a target, linked, with a manifest

Numba infers the types of kernels on this machine. LLVM optimises them for another one: llvmlite has all of LLVM's
targets. The package `ziglang` links libraries for all systems.
"""
