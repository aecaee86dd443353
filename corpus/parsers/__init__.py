"""Parsers: one format family a file, each `parse(path, options) -> ParsedDocument`."""
