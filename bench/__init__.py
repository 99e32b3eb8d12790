"""What safety costs: the job against what people would use instead, on the same accounts and the same emulator."""
