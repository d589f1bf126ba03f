"""The flags that say how tokens are chosen."""

import math
from typing import Any

import pytest

from ggpy import SamplingParams
from ggpy.errors import GGUFError
from ggpy.tools.flags import add_sampling_flags, sampling_params
from ggpy.tools.parser import Parser
from tests.tools.file_metadata import file_metadata


def params_of(*argv: str, metadata: dict[str, Any] | None = None) -> SamplingParams:
    """What a command would sample with."""
    parser = Parser(prog="p")
    add_sampling_flags(parser)
    return sampling_params(parser.parse(argv), file_metadata(metadata or {}))


@pytest.mark.parametrize(("argv", "metadata", "expected"), [
    (["--samplers", "top-k;temp"], {"general.sampling.sequence": "min_p"},
     SamplingParams(samplers=("top_k", "temperature"))),
    (["--sampling-seq", "kt"], {}, SamplingParams(samplers=("top_k", "temperature"))),
    ([], {"general.sampling.sequence": "min_p;temperature", "general.sampling.mirostat_tau": 2.5},
     SamplingParams(samplers=("min_p", "temperature"), mirostat_tau=2.5)),
    (["-l", "15043+1.5", "--logit-bias", "7-inf", "-l", "8-2"], {},
     SamplingParams(logit_bias=((15043, 1.5), (7, -math.inf), (8, -2.0)))),
    (["--dry-multiplier", "0.8", "--dry-sequence-breaker", "\\n", "--dry-sequence-breaker", "#"], {},
     SamplingParams(dry_multiplier=0.8, dry_sequence_breakers=("\n", "#"))),
    (["--dry-sequence-breaker", "none", "--dry-penalty-last-n", "-1"], {},
     SamplingParams(dry_sequence_breakers=(), dry_penalty_last_n=None)),
    (["-n", "-2", "--top-k", "-1"], {}, SamplingParams(max_tokens=None, top_k=0)),
    ([], {"general.sampling.temp": -1.0, "general.sampling.top_k": -1}, SamplingParams(temperature=0, top_k=0)),
    (["--dry-base", "2", "--dry-allowed-length", "3"], {}, SamplingParams(dry_base=2, dry_allowed_length=3)),
    (["--mirostat", "2", "--mirostat-lr", "0.2", "--mirostat-ent", "4"], {},
     SamplingParams(mirostat=2, mirostat_eta=0.2, mirostat_tau=4)),
    (["--top-nsigma", "1", "--typical", "0.9", "--xtc-probability", "0.5", "--xtc-threshold", "0.2"], {},
     SamplingParams(top_n_sigma=1, typical_p=0.9, xtc_probability=0.5, xtc_threshold=0.2)),
    (["--dynatemp-range", "0.5", "--dynatemp-exp", "2", "--adaptive-target", "0.4", "--adaptive-decay", "0.5"], {},
     SamplingParams(dynatemp_range=0.5, dynatemp_exponent=2, adaptive_target=0.4, adaptive_decay=0.5)),
])
def test_flags_are_parameters(argv: list[str], metadata: dict[str, Any], expected: SamplingParams) -> None:
    """Flags, then the model's own wishes, then llama.cpp's defaults."""
    assert params_of(*argv, metadata=metadata) == expected


@pytest.mark.parametrize(("argv", "message"), [
    (["--samplers", "best"], "--samplers best: 'best' is unknown; expected some of penalties, dry, top_n_sigma, top_k, "
     "typ_p, top_p, min_p, xtc, temperature, adaptive_p"),
    (["--sampling-seq", "q"], "--sampling-seq q: 'q' is unknown; expected letters of e (penalties), d (dry), "
     "s (top_n_sigma), k (top_k), y (typ_p), p (top_p), m (min_p), x (xtc), t (temperature), a (adaptive_p)"),
    (["--logit-bias", "15043"], "--logit-bias 15043: expected a token and what is added, such as 15043+1 or 15043-inf"),
    (["-l", "5+x"], "-l 5+x: expected a token and what is added, such as 15043+1 or 15043-inf"),
    (["-l", "5+inf"], "-l 5+inf: expected a token from 0 to 2147483647 and a finite number or -inf"),
    (["--top-k", "many"], "--top-k many: expected a whole number"),
    (["--top-k=1.5"], "--top-k 1.5: expected a whole number"),
    (["--top-k", "2147483648"], "--top-k 2147483648: expected a whole number from 0 to 2147483647, or -1"),
    (["--top-p", "1.5"], "--top-p 1.5: expected a number from 0 to 1"),
    (["--temp", "warm"], "--temp warm: expected a number"),
    (["--temp", "inf"], "--temp inf: expected a finite number"),
    (["--temperature", "nan"], "--temperature nan: expected a finite number"),
    (["-n", "0"], "-n 0: expected a whole number from 1 to 2147483647, or -1, or -2"),
    (["-n", "-5"], "-n -5: expected a whole number from 1 to 2147483647, or -1, or -2"),
    (["--top-k", "-5"], "--top-k -5: expected a whole number from 0 to 2147483647, or -1"),
    (["--temp", "-1"], "--temp -1: expected a number of at least 0"),
    (["--dynatemp-range", "-1"], "--dynatemp-range -1: expected a number of at least 0"),
    (["--repeat-last-n", "-2"], "--repeat-last-n -2: expected a whole number from 0 to 2147483647, or -1"),
    (["-s", "-5"], "-s -5: expected a whole number from 0 to 4294967295, or -1"),
    (["-s", "4294967296"], "-s 4294967296: expected a whole number from 0 to 4294967295, or -1"),
    (["--mirostat", "3"], "--mirostat 3: expected a whole number from 0 to 2"),
    (["-r", ""], "-r '': expected strings that are not empty"),
])
def test_what_is_no_value_is_wrong_usage(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and a line that names flag, value and what was expected."""
    with pytest.raises(SystemExit) as error:
        params_of(*argv)
    assert error.value.code == 2
    assert capsys.readouterr().err == f"p: {message}; see p --help\n"


@pytest.mark.parametrize(("key", "value", "message"), [
    ("temp", "hot", "found STRING, expected a float"),
    ("temp", True, "found BOOL, expected a float"),
    ("top_k", [1, 2], "found an array of 2 INT32, expected an integer"),
    ("penalty_last_n", 1.5, "found FLOAT32, expected an integer"),
    ("sequence", 7, "found UINT32, expected a string"),
    ("sequence", "top_k;best", "'best' is unknown"),
    ("top_p", 7.0, "top_p=7.0: expected a number from 0 to 1; --top-p chooses another value"),
    ("temp", math.nan, "temperature=nan: expected a number of at least 0; --temp chooses another value"),
])
def test_a_wish_that_cannot_work_is_an_error(key: str, value: Any, message: str) -> None:
    """It names the key of the file."""
    with pytest.raises(GGUFError, match=rf"key 'general\.sampling\.{key}'.*: .*{message}"):
        params_of(metadata={f"general.sampling.{key}": value})
