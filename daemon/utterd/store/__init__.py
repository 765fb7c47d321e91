"""Where finished audio lies: an S3-compatible bucket, or a directory that behaves like one."""
