"""The step descriptor: what one forward pass is about, as int64 fields that every kernel can read.

Rows are the tokens of the step, several sequences one after the other, the rows of a sequence in order of position.
A *tile* is a run of at most TILE_ROWS rows of one sequence, the unit of attention's work.
"""

from ggpy.kernels.cpu.arguments import fields

STEP = fields(
    "n_tokens "         # rows of this step
    "n_outputs "        # rows whose output is asked for
    "n_slots "          # n_tokens times the experts each uses
    "n_tiles "
    "tokens "           # address of int32 (n_tokens,): token ids
    "positions "        # address of int32 (n_tokens,)
    "output_rows "      # address of int32 (n_outputs,)
    "tiles "            # address of int64 (n_tiles, 5): see TILE
    "scratch "          # address of work memory; kernels get that of the thread that runs them
    "scratch_stride"    # bytes of it for each thread
)
N_STEP_FIELDS = len(STEP._fields)
TILE = fields(
    "first_row n_rows first_position "
    "end_position "     # behind the last row of the sequence in this step
    "page_table"        # address of int32 (n_groups, table_pages)
)
TILE_BYTES = 8 * len(TILE._fields)
TILE_ROWS = 8
SPLIT_TOKENS = 256      # attention adds up in runs of this many positions, at absolute multiples
