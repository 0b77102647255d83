"""One-line faults, one or more per rule of the contract, and some of passes: each has to make the tests fail.

`python -m tools.mutations` applies them one by one to a copy of the checkout and says which test notices.
"""

from tools.mutations import channels_last, conv_transpose, max_pool, max_unpool, passes
from tools.mutations.record import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *max_unpool.MUTATIONS,
    *max_pool.MUTATIONS,
    *conv_transpose.MUTATIONS,
    *channels_last.MUTATIONS,
    *passes.MUTATIONS,
)
