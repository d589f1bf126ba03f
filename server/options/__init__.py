"""The command line and the environment of `ggpy serve`."""
