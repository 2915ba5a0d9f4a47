"""From a query and candidates to a ranking (pure)."""
