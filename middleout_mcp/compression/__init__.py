"""What becomes one summary, and how (pure)."""
