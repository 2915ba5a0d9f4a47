"""What may be stored, and how far it may be trusted (pure)."""
