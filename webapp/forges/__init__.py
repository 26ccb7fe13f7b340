"""GitHub, GitLab and Jira: issues linked with threads, verdicts told where the change is, and what they send back."""
