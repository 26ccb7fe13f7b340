"""What travels with a job of an own kernel: its files, its operator's description from text alone, the processes behind walls."""
