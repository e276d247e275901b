"""Sources, tokenizer, packing, store, loader."""
