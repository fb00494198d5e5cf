"""Python functions as small jobs of a site: its check, and staging to shared storage."""
