"""Costs of the algorithms for a transposed convolution, measured on an AVX-512 processor.

The unit is one multiply-add of a filled tile of the phases' product, which runs at 95 to 99 % of the processor's peak.
"""

ROWS = 5
"""A multiply-add of the rows kernel: every one loads and stores its sum."""

ROW_CALL = 600
"""Overhead of the rows kernel for each tap of each row, of any length: 10 nanoseconds."""

FAR = 3
"""Rows that cost this many times the phases are slower on any machine."""

UNCERTAIN = 1.5
"""Of Winograd's tiles and the phases, the one that costs this many times the other is slower on any machine."""

LAYING = 3
"""Laying out an element of the line: a load and a store, where a product takes 1/16 of an instruction."""

PACKING = 4
"""Packing a weight into the order of tiles, in every call for weights that are not constant."""

PACK_CALL = 1 << 20
"""Least cost of packing in every call, 20 microseconds."""

SINGLE_ROW = 2.0
"""A multiply-add in a tile of one row, which loads a vector for each: most are unaligned, and take two loads."""

SINGLE_ROW_ALIGNED = 1.2
"""The same where every tap has its own line, and all rows begin at a whole vector."""

RELOADING = 10
"""Reading a packed weight for the first tile of a block of positions: as long as from memory."""

STORING = 10
"""Writing an output, from its sum."""

FILLING = 100
"""Laying out a vector of the line for a job: it may begin and end anywhere."""

JOB_PRODUCTS = 1 << 18
"""Least products in a job of one chunk of output channels and one tile of positions."""

TILES_TOGETHER = 4
"""Least tiles of channels in a chunk, per class: they share channels of the input in the first cache."""

NARROW_STORE = 8
"""Least output channels of a group that channels last are stored with directly: fewer are stored one by one."""

MOST_TAPS = 1 << 14
"""Maximum number of phases or taps for tables of them."""

PANEL_BYTES = 1 << 20
"""Input of one block of positions, all channels: it fits the second cache, from which some channels at a time are read.
If its margin alone fills that, a block is half as long as its margin, so no element is laid out more than three times.
"""

TOGETHER = 1 << 6
"""Products that are summed before they are added to others: with more, the input leaves the first cache, and errors
grow."""

RESULT_BYTES = 1 << 18
"""Results of one block of positions and one chunk of output channels: they fit the second cache, too."""

NEAR_BYTES = 3 << 13
"""The same with fewer than FEW channels: results come so fast that they have to fit the first cache."""

FEW = 8
"""With fewer channels, storing results takes longer than computing them: see NEAR_BYTES."""

WORKSPACE_BYTES = 1 << 25
"""Maximum workspace of a thread, without inputs, outputs and packed weights; if phases need more, rows are used."""
