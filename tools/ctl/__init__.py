"""What reconcilectl is made of: where it looks, what it reads, and how it tells."""
