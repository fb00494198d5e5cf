"""Spec and site become a Plan: what disks, git and the model cache say, looked up once.

Rules over a whole plan are in `checks/`; what a framework runs is in `frameworks/`.
"""
