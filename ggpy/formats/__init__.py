"""What the bits of each quantisation format mean."""
