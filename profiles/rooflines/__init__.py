"""The roofline of one or several counter reports: dots, ceilings, arrows, what each loses and what would move it."""
