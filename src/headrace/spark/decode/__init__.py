"""Record batches to Arrow, as Spark takes them: compiled loops over whole groups of batches."""
