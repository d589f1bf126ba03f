"""From a schema, regular expression or grammar to what llguidance compiles."""
