"""Chats, whichever dialect they come from: prompts of messages, and answers taken apart."""
