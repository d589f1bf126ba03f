"""HTTP as all dialects use it: who may ask, bodies, replies and streams."""
