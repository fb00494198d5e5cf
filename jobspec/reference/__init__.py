"""Generators of the reference pages in `docs/`; nothing imports them.

Text for people stands in the pages, outside the marks.
"""
