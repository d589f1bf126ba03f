"""Names of models as Ollama has them: `[host/][namespace/]model[:tag]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ggpy.errors import RequestError, shown

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"
HUB_HOSTS = frozenset({"hf.co", "huggingface.co"})

_HOST = re.compile(r"[A-Za-z0-9_][\w.:-]{0,252}", re.ASCII)
_NAMESPACE = re.compile(r"[A-Za-z0-9_][\w-]{0,79}", re.ASCII)
_PART = re.compile(r"[A-Za-z0-9_][\w.-]{0,79}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelName:
    """A whole name. No part can be a path: none has a slash, or begins with a dot."""

    host: str
    namespace: str
    model: str
    tag: str

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """Read a name; what is left out is the default. Raises RequestError if it is none."""
        path, slash, last = text.rpartition("://")[2].rpartition("/")
        model, colon, tag = last.partition(":")
        *host, namespace = path.split("/") if slash else [DEFAULT_NAMESPACE]
        name = cls(host[0] if len(host) == 1 else DEFAULT_HOST, namespace, model, tag if colon else DEFAULT_TAG)
        # a user of Hugging Face may have a dot in his name
        of_namespace = _PART if name.is_on_hub else _NAMESPACE
        rules = ((_HOST, name.host), (of_namespace, name.namespace), (_PART, name.model), (_PART, name.tag))
        if len(host) > 1 or not all(rule.fullmatch(part) for rule, part in rules):
            raise RequestError(f"invalid model name: {shown(text)}; expected [namespace/]model[:tag] of letters, "
                               "digits, '-', '_' and '.'")
        return name

    @property
    def is_on_hub(self) -> bool:
        """Whether it names a repository of Hugging Face."""
        return self.host.lower() in HUB_HOSTS

    @property
    def hub_name(self) -> str:
        """The same for `ggpy pull`; only for one that is on the hub."""
        quant = "" if self.tag == DEFAULT_TAG else f":{self.tag}"
        return f"hf:{self.namespace}/{self.model}{quant}"

    @property
    def key(self) -> str:
        """What two names have in common that mean the same model: case does not count."""
        return "/".join((self.host, self.namespace, f"{self.model}:{self.tag}")).lower()

    def __str__(self) -> str:
        """The shortest form that has the tag."""
        is_usual = self.host.lower() == DEFAULT_HOST
        parts = [] if is_usual else [self.host]
        if not is_usual or self.namespace.lower() != DEFAULT_NAMESPACE:
            parts.append(self.namespace)
        return "/".join([*parts, f"{self.model}:{self.tag}"])
