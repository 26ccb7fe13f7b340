"""One call of a kernel file's own host function, made without a GPU: what each kernel that it launches is given.

    expression   the call as text, parsed against a whitelist            proposals   calls that the file itself shows
    loading      the file imported, with what is missing stood in for    stand_ins   a GPU and modules that are not here
    choices      values that the host chooses, which can be overridden   recorder    launches kept instead of made
    session      the call made again with other sizes and choices        understand  what follows of all of that: space, grid, sizes
    adapting     the adapter of a recorded call                          top_level   a file's own tests: not run when imported
"""
