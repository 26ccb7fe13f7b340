"""The audit log: every change of rights, tokens and what may be executed, every delete and export. Rows are only ever added."""
