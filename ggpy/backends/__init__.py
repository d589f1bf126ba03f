"""Devices: they hold weights and KV pools and run plans."""
