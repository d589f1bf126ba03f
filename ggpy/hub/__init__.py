"""From a model's name to a verified file: the catalogue, Hugging Face, and the pulls from both."""
