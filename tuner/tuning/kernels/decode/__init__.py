"""One query token for each sequence against the keys before it: kept in one piece, or in pages."""
