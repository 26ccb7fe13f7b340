"""The critical path: the chain of work, calls and waits that a run could not have ended earlier than."""
