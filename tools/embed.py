"""`ggpy embed`: vectors of texts, or how well documents answer a query."""

from __future__ import annotations

import argparse
import json
import sys

from ggpy.tools import environment
from ggpy.tools.flags import add_model_flags, model_options
from ggpy.tools.parser import Parser

DESCRIPTION = """\
Print the vector of each TEXT as a JSON list on a line of its own.

Without a TEXT, each line of stdin is one."""
EXAMPLES = """\
examples:
  ggpy embed model.gguf "a text" "another one"
  ggpy embed model.gguf < lines.txt > vectors.jsonl
  ggpy embed reranker.gguf --query "Who wrote it?" < passages.txt"""


def add_arguments(parser: Parser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="a name that `ggpy list` shows, hf:user/repo[:QUANT], or a GGUF "
                        "file")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="what to make vectors of")
    group = parser.add_argument_group("vectors")
    group.add_argument("--pooling", choices=("mean", "cls", "last"), help="which hidden states of a text make its "
                       "vector: the mean, the first or the last (default: as the model was made, else mean)")
    group.add_argument("--no-normalize", dest="normalize", action="store_false",
                       help="leave vectors as long as they are; else their length is 1")
    group.add_argument("--query", metavar="TEXT", help="print instead how well each TEXT answers this, a number; "
                       "for rerankers")
    add_model_flags(parser)
    parser.variables = environment.MODEL_VARIABLES


def main(args: argparse.Namespace) -> int:
    from ggpy.tools.loading import load

    texts = args.texts or [line.rstrip("\r\n") for line in sys.stdin]
    with load(args.model, **model_options(args)) as llm:
        rows = (llm.rerank(args.query, texts) if args.query is not None else
                llm.embed(texts, pooling=args.pooling, normalize=args.normalize))
        for row in rows:
            # the shortest digits that give the float32 back
            print(json.dumps([float(str(x)) for x in row] if row.ndim else float(str(row))))
    return 0
