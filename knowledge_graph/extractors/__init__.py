"""One extractor a file: text units, tables or modules -> mentions, relations, definitions."""
