"""Arrow batches into record batches, by compiled loops. Needs the extra `spark`."""
