"""Raw data to what a model reads: token ids. `text/` holds the tokenizers."""
