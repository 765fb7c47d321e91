"""What happens to speech between the engine and the bucket: judge, join, resample, encode."""
