"""From a call that stores to the rows that the store keeps."""
