"""Models and data: found in shared storage, downloaded to it, brought to the nodes, verified."""
