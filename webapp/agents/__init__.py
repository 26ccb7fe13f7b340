"""Tools for programs that write kernels: a server of the Model Context Protocol over the API, with its log and budgets."""
