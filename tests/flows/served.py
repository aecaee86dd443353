"""What the tests of the served UI share."""

PATIENCE_MS = 180_000
