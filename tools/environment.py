"""llama.cpp's environment variables: LLAMA_ARG_THREADS=4 is -t 4 where -t is not given."""

from __future__ import annotations

from ggpy import config
from ggpy.errors import ConfigError

# flag -> its variable, without LLAMA_ARG_ in front; of two that set the same, the first counts
MODEL_VARIABLES = {
    "--ctx-size": "CTX_SIZE", "--threads": "THREADS", "--batch-size": "BATCH", "--ubatch-size": "UBATCH",
    "--cache-type-k": "CACHE_TYPE_K", "--cache-type-v": "CACHE_TYPE_V",
}
VARIABLES = {
    **MODEL_VARIABLES, "--predict": "N_PREDICT", "--temp": "TEMPERATURE", "--top-k": "TOP_K", "--top-p": "TOP_P",
    "--min-p": "MIN_P", "--repeat-penalty": "REPEAT_PENALTY", "--presence-penalty": "PRESENCE_PENALTY",
    "--frequency-penalty": "FREQUENCY_PENALTY", "--chat-template": "CHAT_TEMPLATE",
    "--chat-template-file": "CHAT_TEMPLATE_FILE", "--chat-template-kwargs": "CHAT_TEMPLATE_KWARGS",
    "--offline": "OFFLINE", "--show-timings": "SHOW_TIMINGS",
}


def model() -> str | None:
    """The model that the variables name. Raises ConfigError if they name two."""
    path, repo, file = map(config.llama_arg, ("MODEL", "HF_REPO", "HF_FILE"))
    if path and repo:
        raise ConfigError(f"LLAMA_ARG_MODEL={path} and LLAMA_ARG_HF_REPO={repo} name two models; unset one, or name "
                          "the model on the command line")
    if repo and file:
        return f"hf:{repo.partition(':')[0]}:{file}"
    return f"hf:{repo}" if repo else path
