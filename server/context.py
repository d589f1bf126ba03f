"""What every route may need."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ggpy.server.models import ModelManager
from ggpy.server.settings import ServerSettings


@dataclass(eq=False)
class Server:
    """The server as a whole."""

    settings: ServerSettings
    models: ModelManager
    started_s: float = field(default_factory=time.time)     # seconds since 1970
    is_ending: bool = False                                 # no more requests are taken
