"""What runs beside a job and on its host: sums of kernel launches, sent to a Ridgepoint server.

A package of its own: numpy, msgspec and zstandard, no Django and no torch. An image installs it without the rest.
"""

VERSION = "1"
