"""Evidence becomes a Verdict: the level's criteria, the first cause, what is not proved.

Files are read in `evidence/`.
"""
