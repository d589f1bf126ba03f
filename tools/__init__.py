"""Commands around the engine."""

if __name__ != "ggpy.tools":
    raise ImportError(f"{__name__} is ggpy.tools; import it by that name")
