"""Is this node fit for a job? Checks with a severity each, for Slurm and for the node agent.

    python -m training.cluster.health [--json] [--config FILE]    look, change nothing
    python -m training.cluster.health --program                   Slurm's HealthCheckProgram
    python -m training.cluster.health --prolog | --epilog         Slurm's Prolog and Epilog
    srun ... python -m training.cluster.health.bandwidth          the links between nodes

Looks at memory, processors, clock, leftover and stuck processes, disks, mounts, shared file
systems, GPUs, their Xid errors, and DCGM's diagnostics. Each check runs in a child that is killed
when it takes too long.

Not covered: InfiniBand and EFA counters, power supplies, what only a vendor's tool can read.
"""
