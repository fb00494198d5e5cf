"""Ray's processes of one run: started, probed, ended."""
