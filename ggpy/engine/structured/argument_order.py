"""Which arguments there are, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

from ggpy.engine.structured.object_shapes import ObjectShape
from ggpy.errors import GrammarError

MAX_COUNTS = 2_000      # of rules that count, and of arguments that are counted


def order_rules(rule: str, shape: ObjectShape, path: str) -> Iterator[str]:
    """Rules, the first of which is `rule`: the arguments `rule`_0, `rule`_1 and so on, then those of `rule`_other.

    Those that are not required may be left out. Raises GrammarError if there are too many to be counted.
    """
    n, least, most = len(shape.members), shape.n_least, shape.n_most
    is_optional = [key not in shape.required for key in shape.members]
    has_others = shape.others is not None
    if least > len(shape.required) or (most is not None and (has_others or most < n)):
        if (n + 1) * (min(n, most or least) + 1) > MAX_COUNTS or max(least, most or 0) > MAX_COUNTS:
            keyword = "minProperties" if most is None else "maxProperties"
            raise GrammarError(f"{path}.{keyword}: there are more arguments than can be counted, {MAX_COUNTS:,} at "
                               "most; leave it out")
        yield from _counted(rule, is_optional, has_others, least, most)
        return
    places = [f"{rule}_{i}" + "?" * is_optional[i] for i in range(n)] + [f"{rule}_other*"] * has_others
    yield f"{rule}: {' '.join(places) or chr(34) * 2}"


def _counted(rule: str, is_optional: list[bool], has_others: bool, least: int, most: int | None) -> Iterator[str]:
    """The rules where the number of arguments matters: `rule`_after1_0 is what may follow if the first is left out."""
    n = len(is_optional)
    n_counts = min(n, least if most is None else most)      # higher counts need not be told apart
    choices: dict[tuple[int, int], list[str]] = {}
    for count in range(n_counts + 1):
        choices[n, count] = _others(f"{rule}_other", has_others, max(0, least - count),
                                    None if most is None else most - count)
    for i in reversed(range(n)):
        for count in range(min(i, n_counts) + 1):
            with_it = (i + 1, count + 1 if most is not None else min(count + 1, n_counts))
            choices[i, count] = [f"{rule}_{i} {rule}_after{i + 1}_{with_it[1]}"] if choices.get(with_it) else []
            if is_optional[i] and choices[i + 1, count]:
                choices[i, count].append(f"{rule}_after{i + 1}_{count}")
    yield f"{rule}: {rule}_after0_0"
    for (i, count), ways in choices.items():
        if ways:
            yield f"{rule}_after{i}_{count}: {' | '.join(ways)}"


def _others(rule: str, has_others: bool, least: int, most: int | None) -> list[str]:
    """So many others."""
    if not has_others or most == 0:
        return ['""'] if least == 0 else []
    return [f"{rule}{{{least},{'' if most is None else most}}}"]
