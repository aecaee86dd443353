"""Where a training job runs: on this machine or on a Slurm cluster."""
