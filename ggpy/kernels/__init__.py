"""How the formats and operations are made fast."""
