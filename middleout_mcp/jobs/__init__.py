"""Work in the background, in small batches."""
