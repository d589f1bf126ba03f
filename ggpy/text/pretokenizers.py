"""How byte-pair tokenizers cut text into words, by the name in `tokenizer.ggml.pre`.

A family lists regular expressions (Oniguruma syntax). Each one cuts every piece that the one before it left; matches
and the text between them both remain as pieces. Names and flags are those of llama.cpp's llama-vocab.cpp; where that
file approximates a model's own expression because std::regex cannot express it (gpt-4o, tekken, kimi-k2, ...), the
model's own stands here, so letters outside ASCII may be cut as the model was trained and not as llama.cpp cuts them.
"""

import logging
from dataclasses import dataclass, replace
from typing import Any

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreTokenizer:
    """What a name in `tokenizer.ggml.pre` stands for; flags that the file states itself win over these."""

    patterns: tuple[str, ...]
    byte_level: bool = True             # pieces are spelled in GPT-2's byte alphabet; else raw UTF-8 with <0xXX> tokens
    ignore_merges: bool = False         # a piece that is a token is taken whole
    add_bos: bool = False
    add_sep: bool = False
    has_default_bos: bool = True
    clean_spaces: bool = True           # detokenizing whole texts removes spaces before punctuation
    escape_spaces: bool = False         # spaces are U+2581, as SentencePiece writes them
    whole_newlines: bool = False        # a run of newlines that is a token is taken whole


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_JAIS2_SPACES = "|".join([rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)] + [r"\s{1,2}(?!\S)", r"\s"])

_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _cased_words(suffix: str = "", exclude: str = "") -> str:
    """Words that end where lower case turns to upper case, each with one leading character that is not a letter."""
    upper, lower, lead = f"[{_UPPER}{exclude}]", f"[{_LOWER}{exclude}]", r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}{upper}*{lower}+{suffix}|{lead}{upper}+{lower}*{suffix}"


_PATHLIKE_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_GPT4O = rf"{_cased_words(_CONTRACTION + '?')}|\p{{N}}{{1,3}}|{_PATHLIKE_SYMBOLS}|{_SPACES}"
_TEKKEN = rf"{_cased_words()}|\p{{N}}|{_PATHLIKE_SYMBOLS}|{_SPACES}"
_KIMI_WORDS = _cased_words(_CONTRACTION + "?", exclude=r"&&[^\p{Han}]")
_KIMI_K2 = rf"\p{{Han}}+|{_KIMI_WORDS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"

_ASCII_SYMBOL_WORD = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_MARKED_WORD = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_HAN_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK3 = rf"{_ASCII_SYMBOL_WORD}|{_MARKED_WORD}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
_SPARK = rf"{_ASCII_SYMBOL_WORD}|{_MARKED_WORD}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+"

_DEEPSEEK_LLM_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-"
    "\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"
    "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    "\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_CJK_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Groups of three digits, counted from the right end of a run that was cut out before. A lookahead at every digit would
# say the same in quadratic time.
_THREES = r"\A\d{1,2}(?=(?:\d{3})+\z)|\d{3}"
_NEWLINES = r"[^\n]+|\n+"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"

_DEEPSEEK_LLM_SYMBOLS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-"
    "\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
    "\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)

_DEFAULT = PreTokenizer(patterns=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_UNKNOWN = PreTokenizer(patterns=(_LLAMA3,), clean_spaces=False)


def _family(
    names: str, *patterns: str, base: PreTokenizer | None = None, **flags: Any
) -> dict[str, PreTokenizer]:
    """An entry for each of `names`: flags over those of `base`, or patterns and flags of their own."""
    family = replace(base, **flags) if base else PreTokenizer(patterns=patterns, **flags)
    return dict.fromkeys(names.split(), family)


_GPT2_FAMILY = PreTokenizer(patterns=(_GPT2,))
_DIGITS_FAMILY = PreTokenizer(patterns=(r"\p{N}", _GPT2))
_LLAMA3_FAMILY = PreTokenizer(patterns=(_LLAMA3,))
_QWEN2_FAMILY = PreTokenizer(patterns=(_QWEN2,))
_DEEPSEEK3_FAMILY = PreTokenizer(patterns=(r"\p{N}{1,3}", _HAN_KANA, _DEEPSEEK3), clean_spaces=False)
_GPT4O_FAMILY = PreTokenizer(patterns=(_GPT4O,), clean_spaces=False)
_BLOOM_FAMILY = PreTokenizer(patterns=(_BLOOM,))
_SENTENCEPIECE_FAMILY = PreTokenizer(patterns=(_NEWLINES,), byte_level=False, escape_spaces=True)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": _DEFAULT,
    **_family(
        "gpt-2 gpt2 phi-2 mpt olmo jais exaone4 mellum modern-bert gigachat a.x-4.0 "
        "jina-es jina-de jina-v2-es jina-v2-de",
        base=_GPT2_FAMILY,
    ),
    **_family("jina-v1-en jina-v2-code roberta-bpe", base=_GPT2_FAMILY, add_sep=True),
    **_family("trillion granite-docling", base=_GPT2_FAMILY, clean_spaces=False),
    **_family("starcoder refact codeshell exaone minerva-7b mellum2", base=_DIGITS_FAMILY),
    **_family("command-r smollm", base=_DIGITS_FAMILY, clean_spaces=False),
    **_family(
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 falcon-e pixtral midm-2.0 lfm2 jina-v5-nano",
        base=_LLAMA3_FAMILY, ignore_merges=True, add_bos=True,
    ),
    **_family("dbrx smaug-bpe smaug", base=_LLAMA3_FAMILY),
    **_family("chatglm-bpe", base=_LLAMA3_FAMILY, has_default_bos=False),
    **_family("glm4 glm5", base=_LLAMA3_FAMILY, has_default_bos=False, ignore_merges=True),
    **_family("jais-2", rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|\s*[\r\n]+|{_JAIS2_SPACES}"),
    **_family(
        "qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2", base=_QWEN2_FAMILY, clean_spaces=False
    ),
    **_family("stablelm2 megrez", base=_QWEN2_FAMILY),
    **_family("qwen35", _QWEN35, clean_spaces=False),
    **_family("laguna", _NEWLINES, _QWEN2, clean_spaces=False),
    **_family("ufakzeka", rf"{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}", clean_spaces=False),
    **_family(
        "bailingmoe bailingmoe2 llada-moe",
        rf"'(?i:[sdmt]|ll|ve|re)|{_WORD}|\p{{N}}|{_SYMBOLS}|\s*[\r\n]|\s+(?!\S)|\s+", clean_spaces=False,
    ),
    **_family(
        "seed-coder", rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}", clean_spaces=False
    ),
    **_family(
        "exaone-moe",
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    **_family(
        "minicpm5", r"\p{N}{1,3}", rf"{_CONTRACTION}|{_WORD}|\p{{N}}+|{_SYMBOLS}|{_SPACES}", ignore_merges=True
    ),
    **_family("gpt-4o llama4 kanana2 talkie minimax-m2", base=_GPT4O_FAMILY),
    **_family("granite-embed-multi-97m", base=_GPT4O_FAMILY, ignore_merges=True),
    **_family("tiny_aya cohere2moe", r"(?<!\d)\d++(?!\w)", _THREES, _GPT4O, clean_spaces=False),
    **_family("tekken", _TEKKEN, clean_spaces=False, ignore_merges=True, add_bos=True),
    **_family("kimi-k2", _KIMI_K2, clean_spaces=False),
    **_family("deepseek-v3 hunyuan-dense joyai-llm hy_v4", base=_DEEPSEEK3_FAMILY),
    **_family("spark2_5", r"\p{N}{1,3}", _HAN_KANA, _SPARK, r"\p{N}", clean_spaces=False),
    **_family(
        "deepseek-llm", r"[\r\n]", rf"\s?[{_DEEPSEEK_LLM_LETTERS}]+", _DEEPSEEK_LLM_SYMBOLS, r"\s+$", _CJK_HANGUL,
        r"\p{N}+", clean_spaces=False,
    ),
    **_family(
        "deepseek-coder", r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_HANGUL, r"\p{N}", clean_spaces=False
    ),
    **_family("youtu", _YOUTU_SCRIPTS, _GPT4O.replace(r"\p{N}{1,3}", r"\p{N}"), clean_spaces=False, ignore_merges=True),
    **_family("afmoe", r"\p{N}+", _THREES, _AFMOE_SCRIPTS, _DEEPSEEK3, clean_spaces=False),
    **_family("falcon", r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    **_family("bloom gpt3-finnish", base=_BLOOM_FAMILY),
    **_family("poro-chat poro", base=_BLOOM_FAMILY, clean_spaces=False),
    **_family("viking", _BLOOM, r"\p{N}", clean_spaces=False),
    **_family("superbpe", r"\p{N}+", _THREES, clean_spaces=False),
    **_family(
        "chameleon", "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]", _GPT2, add_bos=True, clean_spaces=False,
    ),
    **_family("gemma4 granite-embed-multi-311m", base=_SENTENCEPIECE_FAMILY, whole_newlines=True),
    **_family("sarvam-moe", base=_SENTENCEPIECE_FAMILY, clean_spaces=False),
}


def find(name: str) -> PreTokenizer:
    """The pre-tokenizer called `name`; for a name that is not known, a warning and the one of Llama 3."""
    if not name:
        logger.warning("tokenizer.ggml.pre is missing: words are cut the 'default' way, which may hurt quality")
        return _DEFAULT
    if name not in PRE_TOKENIZERS:
        logger.warning("tokenizer.ggml.pre %r is not known: words are cut as for Llama 3, which may hurt quality", name)
        return _UNKNOWN
    return PRE_TOKENIZERS[name]
