"""The text of a JSON document: where it may be cut, what decodes, what lies behind its end."""
