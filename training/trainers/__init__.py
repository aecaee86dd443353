"""What torchrun starts: one trainer a file."""
