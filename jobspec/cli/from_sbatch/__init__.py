"""`jobspec init --from-sbatch`: a batch script becomes a spec and a site profile; nothing of it is run."""
