"""What sampling kernels share: the candidates of one row, and their argument blocks. Imports no Numba.

A sampling kernel is `(args, candidates, how, unused)`: the addresses of its argument block and of the candidates. A
request's chain is a tape of (kernel address, argument block) rows, and "sample_rows.run" walks the tapes of all rows of
a step.

Candidates stand in memory in the order in which a draw goes through them, or, if `keys` is not 0, by falling key, equal
ones as in memory: most samplers need no more of an order than its beginning. Few candidates always stand in order.

What several samplers need are the kernels of sample_order.py, the methods of the candidates, called by their addresses
in them. In place of an argument block, a method takes a number:

method   argument                   reads       sets                                    which candidates stay
weigh                               logits      weights, sums, total                    all
sort     by: float32 (n,); 0:       `by`        keys, or memory if there are few;       all
         the logits                             is_sorted
settle                              keys        memory in the order of keys; keys = 0   all
count    x: float32 (n,)            x, cut, at  n_kept: how many pass                   all
keep     x: float32 (n,)            x, cut, at  n; memory                               by `how`, see below
first    k                          keys        n; memory                               the first k in order
reach    -                          weights,    at, cut: of the candidate at which      all
find     -                          target      the running sum reaches `target`        all; those with keys
best     -                          keys        at = 0, n = 1; is_broken                the first in order

A candidate passes if its x is above `cut`, or equal to it and its place in memory not behind `at`. `keep` with `how`
KEEP leaves those that pass, with OTHERS those that do not.
"""

from ggpy.kernels.cpu.arguments import WORD, fields

KEEP, OTHERS = 0, 1     # which candidates "sample_order.keep" keeps
FEW = 4096              # candidates up to which putting them in order at once costs next to nothing
SUM_BLOCK = 512         # weights that are added up at once
N_SLICES = 512          # of the range of keys, where it takes finding a place in the order
SLICE_SUMS = 4          # of each slice, so that candidates do not wait for each other
LANES = 16              # of the vectors
LARGEST = 3.4028234663852886e38     # finite float32
SURELY_0 = 1000.0       # a logit this far below the best has no probability
MT_WORDS = 624          # of the state of a Mersenne twister

METHODS = "weigh sort settle count keep first reach find best"       # the kernels of sample_order.py

# what the candidates of a row are like at first
ROW_START = (
    "n "                # candidates
    "ids "              # address of int32 (n,); 0: they are 0 .. n - 1
    "logits "           # address of float32 (n,): the row of the model, which is never written to, or `own_logits`
    "keys "             # address of float32 (n,) to order by; 0: they stand in order
    "is_sorted "        # whether the order is that of falling logits
    "at "               # place in memory: of the candidate that was found or chosen
    "is_broken "        # set by a kernel that finds nothing to choose from
    "n_vocab "
    "window n_window "  # address of int32 (n_window,): the last tokens before this one, and twice that for work
    f"{METHODS} ")
N_START = len(ROW_START.split())
# work memory: bytes for each token of the vocabulary, and besides
WORK_BYTES = {
    "own_logits": (4, 0), "own_ids": (4, 0), "own_keys": (4, 0),
    "weights": (4, 0), "sums": (8, 0), "chances": (4, 0), "pairs": (8, 0), "spare": (8, 0),
    "slices": (0, 8 * SLICE_SUMS * N_SLICES),
}
CANDIDATES = fields(
    ROW_START +
    "cut "              # float32: the key of what was found
    "target "           # float64: the running sum to find
    "total "            # float64: the sum of the weights
    "n_kept "           # what was counted
    + " ".join(WORK_BYTES))
ROW = fields(f"{ROW_START} tape n_entries result n_tokens")
ROW_BYTES = WORD * len(ROW._fields)
RESULT = fields("token n_tokens is_broken")     # `n_tokens` is written last: how many tokens there were before this one
ROWS = fields("rows n_rows next candidates stride")

MASK = fields("words")                                  # address of a bit for each token, 16 of them readable at once
BIAS = fields("tokens biases n")
PENALTIES = fields("last_n repeat frequency presence")
DRY = fields("last_n multiplier base allowed_length max_exponent starts n_starts tails")   # float64 multiplier and base
TOP_N_SIGMA = fields("n")
TOP_K = fields("k")
TOP_P = fields("p min_keep has_floor log_floor")        # float64 p; float32 log_floor
MIN_P = fields("log_p min_keep")
TYPICAL = fields("p min_keep")                          # float64 p
XTC = fields("random probability threshold min_keep")
TEMPERATURE = fields("value")
DYNAMIC = fields("low high exponent")                   # all float64
DRAW = fields("random needs_two")                       # needs_two: a single candidate takes no number
MIROSTAT = fields("mu tau eta")                         # all float64
ADAPTIVE = fields("target decay weighted_sum total_weight")     # all float64
LEFT = fields("n ids weights")                          # addresses of int32 and float32, with room for all tokens


def work_bytes(name: str, n_vocab: int) -> int:
    """Bytes of the work memory `name`, whole vectors, for a vocabulary of `n_vocab`."""
    for_each, besides = WORK_BYTES[name]
    return for_each * (-(-n_vocab // LANES) + 1) * LANES + besides


# the methods that a kernel may call
CALLS = {
    "sample_order.sort": "settle", "sample_order.keep": "settle", "sample_order.reach": "find",
    "sample_order.first": "find keep", "sample_cuts.top_k": "count keep sort settle first",
    "sample_cuts.top_p": "sort weigh count keep reach first", "sample_cuts.min_p": "count keep sort first",
    "sample_cuts.typical": "sort weigh count keep reach first", "sample_cuts.xtc": "sort weigh keep",
    "sample_temperature.dynamic": "sort weigh best", "sample_draws.draw": "weigh reach",
    "sample_draws.mirostat_1": "sort first", "sample_draws.mirostat_2": "sort weigh keep first",
    "sample_draws.adaptive": "weigh", "sample_left.left": "weigh",
}

# what the default chain and temperature 0 need, compiled with the model's kernels
COMMON = ("sample_rows.run", "sample_order.best", "sample_order.weigh", "sample_order.sort", "sample_order.settle",
          "sample_order.count", "sample_order.keep", "sample_order.reach", "sample_cuts.top_k", "sample_cuts.top_p",
          "sample_cuts.min_p", "sample_temperature.fixed", "sample_draws.draw")

# the others: a request that wants one waits for it unless it is on disk
RARE = ("sample_order.first", "sample_order.find", "sample_mask.mask", "sample_penalties.bias",
        "sample_penalties.penalties", "sample_dry.dry", "sample_cuts.top_n_sigma", "sample_cuts.typical",
        "sample_cuts.xtc", "sample_temperature.dynamic", "sample_draws.mirostat_1", "sample_draws.mirostat_2",
        "sample_draws.mirostat_learn", "sample_draws.adaptive", "sample_draws.adaptive_learn", "sample_left.left")
