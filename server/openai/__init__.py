"""OpenAI's dialect: chats, completions and responses."""
