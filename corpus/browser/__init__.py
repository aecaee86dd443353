"""The corpus browser: page images with boxes, tables beside their picture, search, quarantine."""
