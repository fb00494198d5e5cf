"""Files of a run become `Evidence`, and pieces of a verdict that adapters reuse.

The conclusion is drawn in `judging/`.
"""
