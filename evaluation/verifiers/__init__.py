"""One verdict per answer, shared by data checks, rewards and benchmarks."""
