"""Methods that the paper compares with and no maintained library has: LINE and GraphSAGE."""
