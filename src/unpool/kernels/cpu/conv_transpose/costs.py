"""What the ways to a transposed convolution cost, measured on an AVX-512 processor.

The unit is one multiply-add of a filled tile of the phases' product, which runs at 95 to 99 % of the processor's peak.
"""

ROWS = 5
"""A multiply-add of the rows kernel: every one loads and stores its sum."""

ROW_CALL = 600
"""What the rows kernel spends on each tap of each row, however short: 10 nanoseconds."""

FAR = 3
"""Times the cost of the phases, from which on rows are no match for them, however much machines differ."""

UNCERTAIN = 1.5
"""Times the cost of Winograd's tiles or of the phases, from which on the other one is the faster on any machine."""

LAYING = 3
"""Laying out an element of the line: one load and one store for what is otherwise 1/16 of an instruction."""

PACKING = 4
"""Bringing a weight into the order of tiles; paid at every call, since not all weights are constant."""

PACK_CALL = 1 << 20
"""What that takes at least, 20 microseconds, for weights that may change between calls."""

SINGLE_ROW = 2.0
"""A multiply-add in a tile of one row, which loads a vector for each: most are unaligned, and take two loads."""

SINGLE_ROW_ALIGNED = 1.2
"""The same where every tap has a line of its own, and all rows begin at a whole vector."""

RELOADING = 10
"""A packed weight that every block of positions reads, for the first tile of them: as long as from memory."""

STORING = 10
"""Writing an output, from its sum."""

FILLING = 100
"""Laying out a vector of the line for a job: it may begin and end anywhere, and the line is in memory of its own."""

JOB_PRODUCTS = 1 << 18
"""In a job of one chunk of output channels and one tile of positions, where TILES_TOGETHER are fewer."""

TILES_TOGETHER = 4
"""Tiles of channels, or more, in a chunk, for every class: they find some channels of the input in the first cache."""

NARROW_STORE = 8
"""Output channels of a group from which channels last are stored directly: fewer would be stored one by one."""

MOST_TAPS = 1 << 14
"""Phases or taps beyond which tables of them are not made."""

PANEL_BYTES = 1 << 20
"""The input of one block of positions, all channels, is no larger than the second cache, from which it is read some
channels at a time, unless its margin alone fills that: then a block is half as long as its margin, so that no
element is laid out more than three times.
"""

TOGETHER = 1 << 6
"""Products that are summed before they are added to others: with more, the input leaves the first cache, and errors
grow."""

RESULT_BYTES = 1 << 18
"""The results of one block of positions and one chunk of output channels stay in the second cache, too."""

NEAR_BYTES = 3 << 13
"""With fewer than FEW channels results are made so fast that they have to stay in the first cache."""

FEW = 8
"""With fewer channels, making results takes so little time that their way to memory counts: see NEAR_BYTES."""

WORKSPACE_BYTES = 1 << 25
"""What a thread may need beside inputs, outputs and packed weights; where phases need more, rows are taken."""
