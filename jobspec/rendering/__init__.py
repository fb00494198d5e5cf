"""A Plan becomes the files of a run folder: scripts, lock, `runtime.pyz`.

Nothing here starts a job; `launchers/` does.
"""
