"""Run folders: the names of their files, their records, and where they are found.

What the files mean is in `evidence/`.
"""
