"""Requests, scheduling, KV pages, sampling."""
