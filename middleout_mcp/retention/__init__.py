"""Which memories are kept, merged or replaced (pure)."""
