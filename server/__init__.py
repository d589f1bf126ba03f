"""The HTTP server."""

if __name__ != "ggpy.server":
    raise ImportError(f"{__name__} is ggpy.server; import it by that name")
