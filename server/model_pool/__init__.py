"""The models that a server offers: which there are, and when they are loaded."""
