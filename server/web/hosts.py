"""What this server is called: the names in a Host header that are its own."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from ggpy.server.settings import ServerSettings, is_loopback


def is_own_host(host: str, settings: ServerSettings) -> bool:
    """Whether `host`, maybe with a port, is an address, localhost, this machine's name or one of --allowed-hosts.

    A page of the web can let a name of its own mean any address, so others are not believed.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:          # brackets around no address, or letters that stand for others
        return False
    if is_loopback(name) or name in settings.allowed_hosts or name == socket.gethostname().lower():
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
