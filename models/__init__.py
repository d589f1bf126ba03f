"""Model architectures, one file per family."""

if __name__ != "ggpy.models":
    raise ImportError(f"{__name__} is ggpy.models; import it by that name")
