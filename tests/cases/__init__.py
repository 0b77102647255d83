"""Lists of cases: of the contract, of kernels, of exports."""
