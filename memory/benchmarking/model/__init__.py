"""What a run consists of and what it writes: records, metric paths, tables, files, settings."""
