"""From a job's script to the segments that an engine speaks."""
