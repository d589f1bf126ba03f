"""A request as the engine gets it, and its answers: what the dialects have in common."""
