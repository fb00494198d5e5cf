"""RLix: several pipelines in one allocation."""
