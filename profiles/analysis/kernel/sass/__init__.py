"""SASS as a program: what each instruction reads and writes, where control goes, which registers are live."""
